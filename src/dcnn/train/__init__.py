"""Training: one loop, one configuration, one checkpoint format for potentials and PDE networks."""

from dcnn.train.config import AtomsConfig, PdeConfig
from dcnn.train.fit import fit, resume_run
from dcnn.train.run import Result, Run

__all__ = ["AtomsConfig", "PdeConfig", "Result", "Run", "fit", "resume_run"]
