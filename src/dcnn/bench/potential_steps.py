"""A training step of potentials: one traced (or compiled) graph against eager PyTorch, ours or the published way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

from dcnn.atoms.models import NAMES, find
from dcnn.bench.memory import peak_memory_mb
from dcnn.bench.plain_networks import PEERS, check_same
from dcnn.bench.steps import prepare, training_step
from dcnn.bench.timing import Step, StepRatio, interleaved, product_gflops
from dcnn.errors import DcnnError, InputError, unknown
from dcnn.results import build_task
from dcnn.results import parse as validate

BATCHES = 10
AGAINST = {"eager": "eager step", "plain": "published way", "pyg": "PyTorch Geometric"}


@dataclass(frozen=True)
class PotentialSteps:
    """Steps of one network (without batch normalization) on a few batches of a file, taken in turn."""

    network: str
    preset: str = "small"
    data: str = "demo"
    batch_size: int = 5
    cutoff: float | None = None  # Å; the network's own if None

    def step(self, side: str) -> Step:
        """`side`: a kind of step of ours ("eager", "traced", "compiled"), or "plain" or "pyg", which are checked
        to be the same network first and make eager steps.
        """
        overrides = {} if self.cutoff is None else {"cutoff": self.cutoff}
        model = {"name": self.network, "preset": self.preset, "normalization": False, "overrides": overrides}
        config = validate(
            {
                "kind": "atoms",
                "data": {"path": self.data, "train": BATCHES * self.batch_size, "validation": 1, "test": 1},
                "model": model,
                "scale": {"references": "elements", "unit": "force_rms"},
                "training": {"batch_size": self.batch_size, "epochs": 1},
            }
        )
        task = build_task(config)
        batches = list(task.batches(0, rank=0, world=1))
        if side not in PEERS:
            return training_step(task, batches, side)
        check_same(side, self.network, task.network, batches[0])
        task.network = PEERS[side](self.network, task.network)
        return training_step(task, batches, "eager")

    def peak_mb(self, side: str, threads: int) -> float | None:
        """Peak memory of a process that makes the steps of one side alone."""
        return peak_memory_mb(side, threads, potential=asdict(self))


def compare_atoms(
    names: Sequence[str] = NAMES,
    step: str = "traced",
    rounds: int = 12,
    threads: int = 2,
    clock: str = "wall",
    batch_size: int = 5,
    data: str = "demo",
    cutoff: float | None = None,
    preset: str = "small",
    against: str = "eager",
    memory: bool = False,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> list[StepRatio]:
    """One line a network: `step` of ours against `against`, with the same weights on the same batches.

    `product_share` is how much of the time the matrix products of our step would take at this machine's best speed.
    """
    for name in names:
        find(name)
    if against not in AGAINST:
        raise unknown("peer", against, AGAINST)
    prepare(step, threads)
    best = product_gflops()
    found = []
    for done, name in enumerate(names):
        potential = PotentialSteps(name, preset, data, batch_size, cutoff)
        try:
            steps = {side: potential.step(side) for side in dict.fromkeys((step, against, "eager"))}
        except InputError:
            raise
        except DcnnError as error:  # the lines of the other networks are not lost
            logging.getLogger(__name__).warning("%s is left out: %s", name, error)
            continue
        more: dict[str, Any] = {"step": step, "threads": threads, "clock": clock, **asdict(potential)}
        more["gflop"] = _flop(steps["eager"]) / 1e9
        times = interleaved({side: steps[side] for side in dict.fromkeys((step, against))}, rounds, clock)
        line = StepRatio(name, AGAINST[against], times[step], times[against], more)
        more["product_share"] = round(more["gflop"] / (1e-3 * line.to_dict()["ours_ms"] * best), 3)
        if memory:
            more["ours_peak_mb"] = potential.peak_mb(step, threads)
            more["peer_peak_mb"] = potential.peak_mb(against, threads)
        found.append(line)
        watch(done + 1, len(names))
    if not found:
        raise DcnnError("no network could be measured; the warnings above say why")
    return found


def _flop(step: Step) -> float:
    with FlopCounterMode(display=False) as counter:
        step()
    return float(counter.get_total_flops())
