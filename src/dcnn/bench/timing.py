"""Training steps measured in turns within one process, so that a busy machine slows all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

WARM_UP = 1  # rounds
STEPS = 5  # of each side in a turn, as a training makes them one after the other, with its data in the caches
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}

Step = Callable[[], object]


@dataclass(frozen=True)
class StepRatio:
    """One line of a benchmark: milliseconds a step of ours and of a peer, in every round."""

    name: str
    peer: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    more: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Medians over the rounds; `ratio` (peer / ours) with its quartiles, as `dcnn bench --json` prints it."""
        low, ratio, high = statistics.quantiles([b / max(a, 1e-9) for a, b in zip(self.ours, self.theirs, strict=True)])
        return {
            "name": self.name,
            "ours_ms": round(statistics.median(self.ours), 3),
            "peer_ms": round(statistics.median(self.theirs), 3),
            "peer": self.peer,
            "ratio": round(ratio, 3),
            "ratio_quartiles": [round(low, 3), round(high, 3)],
            "rounds": len(self.ours),
            **self.more,
        }


def interleaved(steps: Mapping[str, Step], rounds: int, clock: str = "wall") -> dict[str, tuple[float, ...]]:
    """Milliseconds a step in every round, each a few steps of every side; `clock` "cpu" is for one busy thread.

    >>> {name: len(times) for name, times in interleaved({"a": int, "b": str}, rounds=4).items()}
    {'a': 4, 'b': 4}
    """
    now, times = CLOCKS[clock], {name: list[float]() for name in steps}
    for _ in range(WARM_UP + rounds):
        for name, step in steps.items():
            started = now()
            for _ in range(STEPS):
                step()
            times[name].append(1e3 * (now() - started) / STEPS)
    return {name: tuple(found[WARM_UP:]) for name, found in times.items()}


def product_gflops(size: int = 1024, tries: int = 10) -> float:
    """The best speed of a product of two float32 matrices that this process reaches."""
    a, seconds = torch.ones(size, size), []
    for _ in range(tries):
        started = time.perf_counter()
        torch.mm(a, a)
        seconds.append(time.perf_counter() - started)
    return 2e-9 * size**3 / min(seconds)
