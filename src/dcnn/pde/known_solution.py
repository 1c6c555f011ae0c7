"""The known solution of a problem: computed, or kept from an earlier computation of the very same problem."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dcnn.errors import InputError, unknown
from dcnn.pde.cache import cached
from dcnn.pde.solution import Solution

if TYPE_CHECKING:
    from dcnn.pde.problem import Problem


def known_solution(problem: Problem) -> Solution | None:
    """What `solve` returns, checked; an expensive one comes from the user's cache directory if it is there.

    Over the range of a parameter, solutions at a few of its values, along an axis of its name.
    """
    if problem.ranges:
        return _over_ranges(problem)
    from_file = problem.settings.get("data") is not None  # a file may change under the same name
    stating = "_stating" in problem.__dict__  # the conditions themselves ask for the solution
    if not problem.expensive or from_file or stating or problem.source() is None:
        return _checked(problem, problem.solve())
    return _checked(problem, cached({**problem.identity(), **_statement(problem)}, problem.solve))


def _over_ranges(problem: Problem) -> Solution | None:
    few = 5 if len(problem.ranges) == 1 else 3
    axes = {name: np.linspace(low, high, few) for name, (low, high) in problem.ranges.items()}
    at = (dict(zip(axes, map(float, values), strict=True)) for values in product(*axes.values()))
    parts = [part for values in at if (part := problem.with_settings(**values).reference()) is not None]
    if len(parts) < few ** len(axes):
        return None
    grid, shape = parts[0].grid, [few] * len(axes)
    if any(not np.array_equal(grid[axis], part.grid[axis]) for part in parts for axis in grid):
        raise InputError(f"{problem.where}: `solve` must use one grid for all values of {', '.join(axes)}")
    fields = {k: np.stack([p.fields[k] for p in parts]).reshape(*shape, *parts[0].shape) for k in parts[0].fields}
    return Solution({**axes, **grid}, fields, parts[0].source)


def _statement(problem: Problem) -> dict[str, Any]:
    """What else a stored solution depends on: the text of the problem, its domain, the data of its conditions."""
    known = hashlib.sha256((problem.source() or "").encode())
    unit = torch.rand(64, len(problem.coordinates), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem.__dict__["_stating"] = True
    conditions = problem.conditions()
    del problem.__dict__["_stating"]
    for condition in conditions:
        prepared = condition.prepare(problem, condition.place(problem, unit))
        for key in sorted(prepared):
            known.update(f"{condition.name} {key}".encode() + prepared[key].detach().double().numpy().tobytes())
    return {"statement": known.hexdigest(), "domain": {k: list(v) for k, v in problem.domain.items()}}


def masked(problem: Problem, found: Solution) -> tuple[Solution, NDArray[np.bool_]]:
    """The solution with NaN where the grid is outside the shape of the domain, and which points these are."""
    if problem.shape is None:
        return found, np.zeros(found.shape, dtype=bool)
    columns = [list(found.grid).index(axis) for axis in problem.space]
    away = problem.shape.distance(torch.as_tensor(found.points()[:, columns], dtype=torch.float64))
    outside = away.numpy().reshape(found.shape) > 0
    return replace(found, fields={k: np.where(outside, np.nan, v) for k, v in found.fields.items()}), outside


def _checked(problem: Problem, found: Solution | None) -> Solution | None:
    if found is None:
        return None
    for axis in {*found.grid} ^ {*problem.coordinates}:
        raise unknown(f"coordinate in the solution of {problem.where}", axis, problem.coordinates)
    found, outside = masked(problem, found)
    for name, values in found.fields.items():
        if name not in problem.fields:
            raise unknown(f"field in the solution of {problem.where}", name, problem.fields)
        wrong = ~np.isfinite(values) & ~outside
        if wrong.any():
            raise InputError(f"{problem.where}: {int(wrong.sum())} values of {name!r} are not finite")
    order = [*found.grid]
    if order == [*problem.coordinates]:
        return found
    moved = {k: np.transpose(v, [order.index(c) for c in problem.coordinates]) for k, v in found.fields.items()}
    return Solution({c: found.grid[c] for c in problem.coordinates}, moved, found.source)
