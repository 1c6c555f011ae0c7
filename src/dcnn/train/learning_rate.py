"""The learning rate as a function of progress, so that a budget may be epochs, steps or minutes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dcnn.train.config import Stage


def learning_rate(stage: Stage, progress: float, drops: int = 0) -> float:
    """The rate at `progress` ∈ [0, 1] of the stage: warm-up, then constant, half a cosine, or `drops` steps down.

    >>> stage = Stage(learning_rate=1.0, warmup=0.1, final=0.0)
    >>> [round(learning_rate(stage, p), 3) for p in (0.05, 0.1, 0.55, 1.0)]
    [0.5, 1.0, 0.5, 0.0]
    >>> learning_rate(Stage(learning_rate=1.0, schedule="plateau", factor=0.5), 0.9, drops=2)
    0.25
    """
    if progress < stage.warmup:
        return stage.learning_rate * progress / stage.warmup
    if stage.schedule != "cosine":
        return stage.learning_rate * max(stage.factor**drops, stage.final)
    done = (min(progress, 1.0) - stage.warmup) / (1 - stage.warmup)
    return stage.learning_rate * (stage.final + (1 - stage.final) * 0.5 * (1 + math.cos(math.pi * done)))


def stage_at(stages: Sequence[Stage], progress: float) -> tuple[int, float]:
    """Which stage runs at `progress` of the whole budget, and how far it is.

    >>> stage_at([Stage(share=0.25), Stage(share=0.75)], 0.625)
    (1, 0.5)
    """
    begin = 0.0
    for index, stage in enumerate(stages):
        if progress < begin + stage.share or index == len(stages) - 1:
            return index, min(1.0, (progress - begin) / stage.share)
        begin += stage.share
    raise AssertionError("unreachable: the last stage takes the rest")


def repeated(stages: Sequence[Stage], rounds: int) -> list[Stage]:
    """The stages gone through `rounds` times within the same budget.

    >>> [stage.share for stage in repeated([Stage(share=0.5), Stage(share=0.5)], 2)]
    [0.25, 0.25, 0.25, 0.25]
    """
    return [replace(stage, share=stage.share / rounds) for _ in range(rounds) for stage in stages]
