"""A training step of the five small potentials: one traced (or compiled) graph against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dcnn.atoms.models import NAMES, find
from dcnn.bench.steps import prepare, training_step
from dcnn.bench.timing import Step, StepRatio, interleaved
from dcnn.results import build_task
from dcnn.results import parse as validate

BATCHES = 10


def compare_atoms(
    names: Sequence[str] = NAMES,
    step: str = "traced",
    rounds: int = 12,
    threads: int = 2,
    clock: str = "wall",
    batch_size: int = 5,
    data: str = "demo",
    cutoff: float | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> list[StepRatio]:
    """One line a network (without batch normalization): `step` against the eager step of the same weights.

    A few batches of the file `data` are taken in turn; cutoff in Å, the network's own if None.
    """
    for name in names:
        find(name)
    prepare(step, threads)
    found = []
    for done, name in enumerate(names):
        overrides = {} if cutoff is None else {"cutoff": cutoff}
        kinds = dict.fromkeys((step, "eager"))
        times = interleaved({kind: _step(name, overrides, kind, data, batch_size) for kind in kinds}, rounds, clock)
        more = {"step": step, "threads": threads, "clock": clock, "batch_size": batch_size, "data": data}
        found.append(StepRatio(name, "eager step", times[step], times["eager"], more))
        watch(done + 1, len(names))
    return found


def _step(name: str, overrides: dict[str, Any], kind: str, data: str, batch_size: int) -> Step:
    config = validate(
        {
            "kind": "atoms",
            "data": {"path": data, "train": BATCHES * batch_size, "validation": 1, "test": 1},
            "model": {"name": name, "normalization": False, "overrides": overrides},
            "scale": {"references": "elements", "unit": "force_rms"},
            "training": {"batch_size": batch_size, "epochs": 1},
        }
    )
    task = build_task(config)
    return training_step(task, list(task.batches(0, rank=0, world=1)), kind)
