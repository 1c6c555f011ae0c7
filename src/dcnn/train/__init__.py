"""The engine: one loop, one checkpoint format, one run folder for every kind of task."""

from dcnn.train.config import Stage, Training
from dcnn.train.run import Result, Run

__all__ = ["Result", "Run", "Stage", "Training"]
