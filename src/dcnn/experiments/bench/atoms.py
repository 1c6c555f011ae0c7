"""A training step of the five small potentials on ethanol: one traced (or compiled) graph against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dcnn.atoms.models import NAMES, module_of
from dcnn.experiments.bench.steps import prepare, training_step
from dcnn.experiments.bench.timing import Comparison, Step, interleaved
from dcnn.train.config import validate
from dcnn.train.tasks import build_task


def compare_atoms(
    names: Sequence[str] = NAMES,
    step: str = "traced",
    rounds: int = 12,
    threads: int = 2,
    clock: str = "wall",
    batch_size: int = 5,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> list[Comparison]:
    """One line a network (without batch normalization): `step` against the eager step of the same weights."""
    for name in names:
        module_of(name)
    prepare(step, threads)
    found = []
    for done, name in enumerate(names):
        times = interleaved(
            {kind: _step(name, kind, batch_size) for kind in dict.fromkeys((step, "eager"))}, rounds, clock
        )
        more = {"step": step, "threads": threads, "clock": clock, "batch_size": batch_size}
        found.append(Comparison(name, "eager step", times[step], times["eager"], more))
        watch(done + 1, len(names))
    return found


def _step(name: str, kind: str, batch_size: int) -> Step:
    config = validate(
        {
            "kind": "atoms",
            "data": {"path": "demo", "train": 50, "validation": 10, "test": 10},
            "model": {"name": name, "normalization": False},
            "scale": {"references": "elements", "unit": "force_rms"},
            "training": {"batch_size": batch_size, "epochs": 1},
        }
    )
    task = build_task(config)
    return training_step(task, next(iter(task.batches(0, rank=0, world=1))), kind)
