"""What a step waits for its batch, and what frames cost in memory and before the first step."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from dcnn.results.domains import as_config, build_task
from dcnn.train.config import merge
from dcnn.train.processes import OneProcess
from dcnn.train.step import Stepper

WARM = 5  # steps that are not counted: pools start, graphs are made


def measure_data(
    values: Mapping[str, Any], workers: Sequence[int], steps: int, show: Callable[[int, int], None]
) -> list[dict[str, Any]]:
    """For each number of workers: seconds of this process before the first step, ms of a step and of waiting for it."""
    found: list[dict[str, Any]] = []
    for count in workers:
        began = time.process_time()
        config = as_config(merge(values, {"data": {"workers": count}}))
        task = build_task(config)
        stage = config.training.stages[0]
        stepper = Stepper(OneProcess(), task, stage, config.training, logging.getLogger("dcnn.bench"))
        ready = time.process_time() - began
        waiting, stepping, cpu = [], [], 0.0
        batches = chain.from_iterable(task.batches(epoch) for epoch in range(WARM + steps))
        for step in range(WARM + steps):
            start = time.perf_counter()
            batch = next(batches)
            got, used = time.perf_counter(), time.process_time()
            stepper(batch, step, stage.learning_rate)
            if step >= WARM:
                cpu += time.process_time() - used
                waiting.append(got - start)
                stepping.append(time.perf_counter() - got)
            show(len(found) * (WARM + steps) + step + 1, len(workers) * (WARM + steps))
        total = sum(waiting) + sum(stepping)
        found.append(
            {
                "workers": count,
                "frames": task.count("train"),
                "cpu_seconds_before_first_step": round(ready, 2),
                "step_ms": 1e3 * sum(stepping) / steps,
                "step_cpu_ms": 1e3 * cpu / steps,
                "waiting_ms": 1e3 * sum(waiting) / steps,
                "waiting_share": sum(waiting) / total,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    return found
