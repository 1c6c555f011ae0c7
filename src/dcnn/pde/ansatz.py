"""Can the form of the network (embedded inputs, lift, factor) hold the conditions it claims, and a known solution?"""

from __future__ import annotations

import copy
import warnings

import numpy as np
import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.pde.conditions import Condition, Sampled
from dcnn.pde.network import PdeNetwork
from dcnn.pde.solution import Array, Solution

WAVES = 20  # along one axis, in the trial of a known solution
SHARES = (0.1, 0.2, 0.5, 1.0)  # of the time, where it is tried


def check_ansatz(network: PdeNetwork, embedded: bool, reference: Solution | None) -> None:
    """An InputError if a condition that need not be trained does not hold, a warning if the reference cannot be met."""
    problem = network.problem
    trial = copy.deepcopy(network).double().eval()
    trained = {c.terms(problem) for c in problem.soft_conditions(embedded=embedded, hard=bool(network.hard))}
    for condition in problem.soft_conditions():
        if condition.terms(problem) not in trained:
            _check_condition(trial, condition)
    if reference is not None and problem.shape is None and (embedded or network.hard):
        for field, axis, error in misfits(trial, embedded, reference):
            warnings.warn(
                f"{problem.where}: the form of the network (periodic or reflecting inputs, hard constraints) cannot "
                f"follow the known solution of {field!r} along {axis!r}: off by {error:.1e} of its size. Set "
                "network.modes=0 or network.hard=false, or correct lift and factor.",
                stacklevel=2,
            )


def _check_condition(network: PdeNetwork, condition: Condition) -> None:
    problem = network.problem
    unit = torch.rand(64, len(problem.coordinates), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for part in range(condition.parts(problem)):
        points = condition.place(problem, unit, part)
        prepared = condition.prepare(problem, points)
        if isinstance(condition, Sampled):  # a grid may have many
            rows = slice(None, None, -(-len(points) // 256))
            points, prepared = points[rows], {key: value[rows] for key, value in prepared.items()}
        with torch.no_grad():
            found = condition.residuals(
                problem, network.partials(network.at(points, condition.wanted(problem))), prepared
            )
        for key, column, letters in condition.targets(problem):
            size = float(network.unit[column])
            for letter in letters:
                size /= (problem.domain[letter][1] - problem.domain[letter][0]) / 2
            off = float(found[condition.term_name(key)].abs().max()) / size
            if off > 1e-3:
                raise InputError(
                    f"{problem.where}: {condition.term_name(key)} is not trained because inputs or hard_constraints "
                    f"are said to satisfy it, but a random network misses it by {off:.1e} (in units of the field). "
                    "Correct lift and factor, take the term out of `satisfies`, or set network.modes=0"
                )


def misfits(network: PdeNetwork, embedded: bool, reference: Solution) -> list[tuple[str, str, float]]:
    """(field, axis, error) where a line of the reference is out of reach.

    Along each axis the network is replaced by any smooth function of its inputs: waves for an embedded axis, Chebyshev
    polynomials for a plain one. Reported is what the same functions without a form fit far better: polynomials, or
    the waves themselves where the solution is periodic (a layer at the seam is no fault of the form).
    """
    problem, found = network.problem, []
    for field, values in reference.fields.items():
        size = float(np.abs(values).max()) or 1.0
        column = problem.fields.index(field)
        for axis in problem.coordinates:
            begin = network.hard[field].begin if axis == "t" and field in network.hard else None
            cut = slice(0 if begin is None else int(np.searchsorted(reference.grid[axis], begin)), None)
            positions = reference.grid[axis][cut]
            if len(positions) < 4 * WAVES:
                continue
            free = _basis(network, axis, positions, embedded=False)
            wound = embedded and axis in problem.periodic
            formed = _basis(network, axis, positions, embedded)
            worst = 0.0
            for points, line in _lines(reference, axis, values):
                points, line = points[cut], line[cut]
                lift, factor = _form(network, torch.as_tensor(points), column)
                error, least = _misfit(factor[:, None] * formed, line - lift), _misfit(free, line)
                if wound and abs(line[0] - line[-1]) < 0.1 * size:
                    least = max(least, _misfit(formed, line))
                if error > 5 * least + 3e-3 * size:
                    worst = max(worst, error / size)
            if worst:
                found.append((field, axis, worst))
    return found


def _lines(reference: Solution, axis: str, values: Array) -> list[tuple[Array, Array]]:
    """Points (N, coordinates) and values (N,) of lines along an axis: at several times, otherwise in the middle."""
    lines: list[tuple[Array, Array]] = []
    for share in SHARES if "t" in reference.grid and axis != "t" else (0.5,):
        place = tuple(
            slice(None) if name == axis else int((share if name == "t" else 0.5) * (len(grid) - 1))
            for name, grid in reference.grid.items()
        )
        columns = [grid[i] for (grid, i) in zip(reference.grid.values(), place, strict=True)]
        points = np.stack([np.broadcast_to(c, len(reference.grid[axis])) for c in columns], 1).astype(np.float64)
        lines.append((points, values[place]))
    return lines


def _form(network: PdeNetwork, points: Tensor, column: int) -> tuple[Array, Array]:
    """Lift and factor of a field at the points."""
    if not network.hard:
        return np.zeros(len(points)), np.ones(len(points))
    _, lift, factor = network.split(network.known(points))
    return lift[:, column].numpy(), factor[:, column].numpy()


def _basis(network: PdeNetwork, axis: str, positions: Array, embedded: bool) -> Array:
    problem = network.problem
    low, high = problem.domain[axis]
    k = np.arange(1, WAVES + 1)
    if embedded and axis in problem.periodic:
        angle = 2 * np.pi / problem.periodic[axis] * np.outer(positions, k)
        return np.concatenate([np.ones((len(positions), 1)), np.sin(angle), np.cos(angle)], 1)
    if embedded and axis in problem.reflecting:
        return np.cos(np.pi / (high - low) * np.outer(positions - low, np.arange(2 * WAVES + 1)))
    return np.polynomial.chebyshev.chebvander((2 * positions - low - high) / (high - low), 2 * WAVES)


def _misfit(basis: Array, values: Array) -> float:
    found, *_ = np.linalg.lstsq(basis, values, rcond=1e-12)
    return float(np.abs(basis @ found - values).max())
