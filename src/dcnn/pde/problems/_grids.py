"""What the problems share: grids, and solutions taken from a file instead of computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dcnn.errors import InputError
from dcnn.pde.file_solution import solution_in_file
from dcnn.pde.problem import Problem
from dcnn.pde.solution import Array, Solution


def cell_centres(problem: Problem, axis: str, cells: int) -> Array:
    """Middles of `cells` equal cells along an axis of the domain."""
    if not isinstance(cells, int) or cells < 8:
        raise InputError(f"{problem.where}: resolution must be a whole number of at least 8 cells, found {cells!r}")
    low, high = problem.domain[axis]
    return low + (high - low) * (np.arange(cells) + 0.5) / cells


def file_sample(problem: Problem) -> Solution:
    """Sample `problem.sample` of the file `problem.data`, which must hold all fields."""
    found = solution_in_file(problem, problem.data, problem.sample)
    if tuple(found.fields) != problem.fields:
        raise InputError(f"{problem.data}: holds {', '.join(found.fields)}, needed are {', '.join(problem.fields)}")
    return found


def starting_points(solution: Solution) -> tuple[Array, dict[str, Any]]:
    """Points (N, coordinates) at the first time of a solution and the fields there, (N,) each."""
    start = solution.at("t", slice(0, 1))
    return start.points(), {name: values.ravel() for name, values in start.fields.items()}
