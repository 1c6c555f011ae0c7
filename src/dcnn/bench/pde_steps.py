"""A training step of the paper's three PDE set-ups, ours against DeepXDE: same points, same loss, same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dcnn.bench.deepxde_setups import RESIDUALS, dde
from dcnn.bench.memory import peak_memory_mb
from dcnn.bench.pair import build_pair
from dcnn.bench.steps import prepare, training_step
from dcnn.bench.timing import StepRatio, interleaved
from dcnn.errors import unknown

PROBLEMS = tuple(RESIDUALS)


def compare_pde(
    names: Sequence[str] = PROBLEMS,
    activation: str = "tanh",
    step: str = "compiled",
    rounds: int = 12,
    threads: int = 2,
    clock: str = "wall",
    memory: bool = True,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> list[StepRatio]:
    """One line a problem; `memory` adds the peak of a process that makes the steps of one side alone."""
    for name in names:
        if name not in PROBLEMS:
            raise unknown("problem of this benchmark", name, PROBLEMS)
    prepare(step, threads)
    found = []
    for done, name in enumerate(names):
        pair = build_pair(name, activation)
        more = {"step": step, "activation": activation, "threads": threads, "clock": clock}
        ours = training_step(pair.task, [pair.batch], step)
        by_graph = None if step == "eager" else [p.grad for p in pair.network.parameters() if p.grad is not None]
        more |= {"points": len(pair.batch.interior), "gradient_difference": pair.gradient_difference(by_graph)}
        times = interleaved({"ours": ours, "theirs": pair.their_step}, rounds, clock)
        if memory:
            problem = {"name": name, "activation": activation}
            more["ours_peak_mb"] = peak_memory_mb(step, threads, problem=problem)
            more["peer_peak_mb"] = peak_memory_mb("deepxde", threads, problem=problem)
        found.append(StepRatio(name, f"DeepXDE {dde.__version__}", times["ours"], times["theirs"], more))
        watch(done + 1, len(names))
    return found
