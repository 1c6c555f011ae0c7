"""Solutions of several runs of one problem, as with different seeds, as one function with a band."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dcnn.errors import InputError
from dcnn.results.solution_function import SolutionFunction
from dcnn.results.trained_run import TrainedRun


class Band(NamedTuple):
    """The mean of several solutions and their standard deviation, each an array or {field: array}."""

    mean: Any
    spread: Any


class SolutionBand:
    """``band(t=1.0, x=x).mean`` and ``.spread``; derivatives by ``band.partials("xx", t=1.0, x=x)``.

    The spread says how far networks that differ in their seeds agree. What all of them get wrong it does not show.
    """

    def __init__(self, solutions: Sequence[SolutionFunction]) -> None:
        if len(solutions) < 2:
            raise InputError(f"a band needs two solutions or more, found {len(solutions)}")
        for other in solutions[1:]:
            if (other.coordinates, other.fields) != (solutions[0].coordinates, solutions[0].fields):
                raise InputError(
                    f"solutions of {', '.join(solutions[0].fields)} in {', '.join(solutions[0].coordinates)} and of "
                    f"{', '.join(other.fields)} in {', '.join(other.coordinates)} are not of one problem"
                )
        self.solutions = tuple(solutions)

    @classmethod
    def open(cls, *folders: str | Path, trust: bool = False) -> SolutionBand:
        """The solutions of finished runs."""
        return cls([TrainedRun.open(folder, trust).solution for folder in folders])

    def __call__(self, points: Any = None, **named: Any) -> Band:
        return self.partials("", points, **named)

    def partials(self, derivative: str, points: Any = None, **named: Any) -> Band:
        found = [solution.partials(derivative, points, **named) for solution in self.solutions]
        if not isinstance(found[0], dict):
            return Band(np.mean(found, 0), np.std(found, 0, ddof=1))
        stacked = {name: [each[name] for each in found] for name in found[0]}
        mean = {name: np.mean(values, 0) for name, values in stacked.items()}
        return Band(mean, {name: np.std(values, 0, ddof=1) for name, values in stacked.items()})
