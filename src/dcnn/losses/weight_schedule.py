"""Weights that change with the training step."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from dcnn.errors import InputError, unknown

KINDS = ("linear", "cosine", "step")


@dataclass(frozen=True)
class Schedule:
    """A weight given at some steps and interpolated between them; constant outside.

    kind "linear" joins the points by straight lines, "cosine" by w₀ + (w₁ − w₀)(1 − cos πs)/2 with s from 0
    to 1, "step" keeps each weight until the next point.

    >>> ramp = Schedule.linear(1.0, 11.0, steps=100)
    >>> [ramp(step) for step in (0, 50, 100, 900)]
    [1.0, 6.0, 11.0, 11.0]
    """

    points: tuple[tuple[int, float], ...]
    kind: str = "linear"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("schedule", self.kind, KINDS)
        steps = [step for step, _ in self.points]
        if not steps or steps != sorted(set(steps)):
            raise InputError(f"a schedule needs one or more points at increasing steps, not at {steps}")
        if not all(math.isfinite(weight) and weight >= 0 for _, weight in self.points):
            raise InputError(f"the weights of a schedule must be finite and not negative: {self.points}")

    @classmethod
    def constant(cls, weight: float) -> Schedule:
        """The same weight at every step."""
        return cls(((0, weight),))

    @classmethod
    def linear(cls, start: float, end: float, steps: int, begin: int = 0) -> Schedule:
        """From ``start`` to ``end`` along a line during ``steps`` steps from step ``begin``."""
        return cls(((begin, start), (begin + steps, end)))

    @classmethod
    def cosine(cls, start: float, end: float, steps: int, begin: int = 0) -> Schedule:
        """From ``start`` to ``end`` along half a cosine during ``steps`` steps from step ``begin``."""
        return cls(((begin, start), (begin + steps, end)), "cosine")

    @classmethod
    def piecewise(cls, weights: Mapping[int, float]) -> Schedule:
        """The weight of the last step in ``weights`` that has been reached: ``{0: 1.0, 1000: 30.0}``."""
        return cls(tuple(sorted(weights.items())), "step")

    def __call__(self, step: int) -> float:
        """The weight at a step."""
        after = bisect_right(self.points, step, key=lambda point: point[0])
        if after == 0:
            return self.points[0][1]
        begin, weight = self.points[after - 1]
        if after == len(self.points) or self.kind == "step":
            return weight
        end, next_weight = self.points[after]
        share = (step - begin) / (end - begin)
        if self.kind == "cosine":
            share = (1 - math.cos(math.pi * share)) / 2
        return weight + (next_weight - weight) * share
