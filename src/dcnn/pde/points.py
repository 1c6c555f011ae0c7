"""A batch of a PDE: interior points and condition points, stacked into as few network evaluations as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dcnn.pde.conditions import Condition
from dcnn.pde.network import Located, PdeNetwork
from dcnn.pde.problem import Collocation, Problem
from dcnn.pde.sampling import unit_points
from dcnn.pde.windows import Pieces, Windows


@dataclass(frozen=True)
class Placed:
    """A condition at rows `rows` of a group, with what its residuals compare with there."""

    condition: Condition
    rows: slice
    prepared: Mapping[str, Tensor]


@dataclass(frozen=True)
class Group:
    """Points evaluated together because they need the same derivatives; the first `interior` are interior points."""

    located: Located | Pieces
    interior: int
    placed: tuple[Placed, ...]

    def to(self, device: Any) -> Group:
        placed = (Placed(p.condition, p.rows, {k: v.to(device) for k, v in p.prepared.items()}) for p in self.placed)
        return Group(self.located.to(device), self.interior, tuple(placed))


class Points:
    """The groups of one batch. Everything here is fixed before the first step on it."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = tuple(groups)

    def to(self, device: Any) -> Points:
        """This on another device (itself if it is there)."""
        if all(g.located.points.device == torch.device(device) for g in self.groups):
            return self
        return Points([g.to(device) for g in self.groups])

    @property
    def interior(self) -> Tensor:
        """The points (N, coordinates) at which the equations are taken."""
        return torch.cat([g.located.points[: g.interior] for g in self.groups])


def gather(
    problem: Problem, network: PdeNetwork | Windows, interior: Tensor, conditions: Sequence[tuple[Condition, Tensor]]
) -> Points:
    """Groups of interior points and (condition, points) by the derivatives that they need.

    Networks with batch statistics get one group of everything: their statistics are those of all points.
    """
    parts: list[tuple[tuple[str, ...], Tensor, Condition | None]] = []
    if len(interior):
        parts.append((problem.wanted, interior, None))
    for condition, points in conditions:
        parts.append((tuple(sorted({"", *condition.wanted(problem)})), points, condition))
    if network.batch_norm:
        everything = tuple(dict.fromkeys(letters for wanted, _, _ in parts for letters in wanted))
        parts = [(everything, points, condition) for _, points, condition in parts]
    keys = dict.fromkeys(frozenset(wanted) for wanted, _, _ in parts)
    return Points([_group(problem, network, [p for p in parts if frozenset(p[0]) == key]) for key in keys])


def _group(
    problem: Problem, network: PdeNetwork | Windows, parts: Sequence[tuple[tuple[str, ...], Tensor, Condition | None]]
) -> Group:
    begin, count, placed = 0, 0, []
    for _, points, condition in parts:
        rows = slice(begin, begin + len(points))
        if condition is None:
            count = len(points)
        else:
            placed.append(Placed(condition, rows, condition.prepare(problem, points)))
        begin = rows.stop
    located = network.at(torch.cat([points for _, points, _ in parts]), parts[0][0])
    return Group(located, count, tuple(placed))


def draw(
    problem: Problem,
    conditions: Sequence[Condition],
    collocation: Collocation,
    random: torch.Generator,
    dtype: torch.dtype,
) -> tuple[Tensor, list[tuple[Condition, Tensor]]]:
    """Interior points (N, coordinates) and the points of every condition.

    With ``collocation.shared`` equations are taken on boundary and initial points too, and conditions pick theirs
    among all of them.
    """
    d, sampler = len(problem.coordinates), collocation.distribution

    def unit(n: int) -> Tensor:
        return unit_points(sampler, n, d, random).to(dtype)

    interior = problem.stretch(unit(collocation.domain))
    counts = {"initial": collocation.initial}
    if not collocation.shared:
        return interior, [(c, c.place(problem, unit(counts.get(c.kind, collocation.boundary)))) for c in conditions]
    faces = [c.place(problem, unit(counts.get(c.kind, collocation.boundary))) for c in conditions if c.size is None]
    everywhere = torch.cat([interior, *faces])
    return everywhere, [(c, c.pick(problem, everywhere)) for c in conditions]
