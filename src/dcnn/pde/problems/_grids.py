"""What the problems share: grids, and solutions taken from a file instead of computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dcnn.errors import InputError
from dcnn.pde import pdebench
from dcnn.pde.problem import Problem
from dcnn.pde.solution import Array, Solution


def cell_centres(problem: Problem, axis: str, cells: int) -> Array:
    """Middles of `cells` equal cells along an axis of the domain."""
    if not isinstance(cells, int) or cells < 8:
        raise InputError(f"{problem.where}: resolution must be a whole number of at least 8 cells, found {cells!r}")
    low, high = problem.domain[axis]
    return low + (high - low) * (np.arange(cells) + 0.5) / cells


def file_sample(problem: Problem, stated: Mapping[str, float]) -> Solution:
    """Sample `problem.sample` of the file `problem.data`.

    `stated` are parameters that the file's attributes may state too; they must agree.
    """
    with pdebench.open(problem.data, problem.fields) as samples:
        if samples.fields != problem.fields:
            raise InputError(
                f"{problem.data}: holds {', '.join(samples.fields)}, but {problem.name} needs "
                f"{', '.join(problem.fields)}"
            )
        for key, value in stated.items():
            found = samples.attributes.get(key)
            if found is not None and not np.isclose(float(found), value, rtol=1e-3):
                raise InputError(
                    f"{problem.data}: {key} = {found} in the file, {value} in the problem; set {key}={found}"
                )
        if not -len(samples) <= problem.sample < len(samples):
            raise InputError(f"{problem.data}: sample {problem.sample} asked for, the file has {len(samples)}")
        return samples[problem.sample]


def starting_points(solution: Solution) -> tuple[Array, dict[str, Any]]:
    """Points (N, coordinates) at the first time of a solution and the fields there, (N,) each."""
    start = solution.at("t", slice(0, 1))
    return start.points(), {name: values.ravel() for name, values in start.fields.items()}
