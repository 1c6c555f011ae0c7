"""What the paper's settings cost on this machine: a few steps of each network are timed."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dcnn.atoms.config import AtomsConfig
from dcnn.grid.cells import GridCell
from dcnn.pde.config import PdeConfig
from dcnn.results import fit_config as fit

STEPS = 4


@dataclass(frozen=True)
class Cost:
    """Steps of all runs of one network, and the time that one step takes."""

    what: str
    runs: int
    steps: int
    seconds_per_step: float

    @property
    def hours(self) -> float:
        return self.steps * self.seconds_per_step / 3600


def estimate(cells: Sequence[GridCell], timed: Callable[[GridCell], float] | None = None) -> list[Cost]:
    """Cost of every network (of every method for PDEs), each timed on its first cell with one thread."""
    timed = timed or seconds_per_step
    groups: dict[str, list[GridCell]] = {}
    for cell in cells:
        groups.setdefault(str(cell.labels.get("model", cell.config.recipe)), []).append(cell)
    return [
        Cost(what, len(same), sum(steps_of(cell.config) for cell in same), timed(same[0]))
        for what, same in groups.items()
    ]


def steps_of(config: AtomsConfig | PdeConfig) -> int:
    """Optimiser steps of a configuration whose budget is in epochs or steps."""
    training = config.training
    if training.steps is not None:
        return training.steps
    assert isinstance(config, AtomsConfig)
    assert config.data.train is not None
    assert isinstance(training.batch_size, int)
    assert training.epochs is not None
    return training.epochs * math.ceil(config.data.train / training.batch_size)


def seconds_per_step(cell: GridCell) -> float:
    """Mean of a few steps of the cell's own configuration, on a few of its frames."""
    training = replace(cell.config.training, epochs=None, minutes=None, steps=STEPS, threads=1, accelerator="cpu")
    config = cell.config.model_copy(update={"training": training})
    if isinstance(config, AtomsConfig):
        assert isinstance(training.batch_size, int)
        few = {"train": STEPS * training.batch_size, "validation": 1, "test": 1, "split": "random"}
        config = config.model_copy(update={"data": config.data.model_copy(update=few)})
    with tempfile.TemporaryDirectory() as folder:
        result = fit(config, Path(folder) / "timing")
    return result.values["seconds"] / result.values["steps"]
