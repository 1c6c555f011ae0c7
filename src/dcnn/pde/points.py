"""A batch of a PDE: interior points and condition points, stacked into as few network evaluations as possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.pde.boundary import Edge
from dcnn.pde.conditions import Condition, Sampled
from dcnn.pde.integrals import Integral
from dcnn.pde.network import Located
from dcnn.pde.problem import Collocation, Problem
from dcnn.pde.sampling import unit_points
from dcnn.pde.windows import Pieces


@dataclass(frozen=True)
class Placed:
    """A condition at rows `rows` of a group, with what its residuals compare with there."""

    condition: Condition
    rows: slice
    prepared: Mapping[str, Tensor]


@dataclass(frozen=True)
class PointGroup:
    """Points evaluated together because they need the same derivatives; the first `interior` are interior points."""

    located: Located | Pieces
    interior: int
    placed: tuple[Placed, ...]

    def to(self, device: Any) -> PointGroup:
        placed = (Placed(p.condition, p.rows, {k: v.to(device) for k, v in p.prepared.items()}) for p in self.placed)
        return PointGroup(self.located.to(device), self.interior, tuple(placed))


@dataclass(frozen=True)
class Points:
    """The groups of one batch. Everything here is fixed before the first step on it."""

    groups: tuple[PointGroup, ...]

    def to(self, device: Any) -> Points:
        """This on another device (itself if it is there)."""
        if all(g.located.points.device == torch.device(device) for g in self.groups):
            return self
        return Points(tuple(g.to(device) for g in self.groups))

    @property
    def interior(self) -> Tensor:
        """The points (N, coordinates) at which the equations are taken."""
        return torch.cat([g.located.points[: g.interior] for g in self.groups])


def gather(problem: Problem, network: Any, interior: Tensor, conditions: Sequence[tuple[Condition, Tensor]]) -> Points:
    """Groups of interior points and (condition, points) by the derivatives that they need, located by the network.

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
    return Points(tuple(_group(problem, network, [p for p in parts if frozenset(p[0]) == key]) for key in keys))


def _group(
    problem: Problem, network: Any, parts: Sequence[tuple[tuple[str, ...], Tensor, Condition | None]]
) -> PointGroup:
    stacked: list[tuple[Tensor, slice]] = []
    count, placed = 0, []
    for _, points, condition in parts:
        rows = next((rows for others, rows in stacked if torch.equal(others, points)), None)
        if rows is None:  # conditions at the same points share one evaluation of the network
            begin = stacked[-1][1].stop if stacked else 0
            rows = slice(begin, begin + len(points))
            stacked.append((points, rows))
        if condition is None:
            count = len(points)
        else:
            placed.append(Placed(condition, rows, condition.prepare(problem, points)))
    located = network.at(torch.cat([points for points, _ in stacked]), parts[0][0])
    return PointGroup(located, count, tuple(placed))


def draw(
    problem: Problem,
    conditions: Sequence[Condition],
    collocation: Collocation,
    random: torch.Generator,
    dtype: torch.dtype,
    transient: float | None = None,
    begin: float | None = None,
) -> tuple[Tensor, list[tuple[Condition, Tensor]]]:
    """Interior points (N, coordinates) and the points of every condition.

    With ``collocation.shared``, as DeepXDE does, equations are taken on boundary and initial points too, and conditions
    pick theirs among all of them. With `transient` τ points are spread evenly in log(1 + (t − t₀)/τ), so that there are
    more of them at the start. Interior points have times from `begin` on, if it is given.
    """
    d, sampler = len(problem.coordinates), collocation.distribution

    def unit(n: int) -> Tensor:
        points = unit_points(sampler, n, d, random)
        if transient is not None:
            axis, (begin, end) = problem.axis("t"), problem.domain["t"]
            share = transient / (end - begin)
            points[:, axis] = share * torch.expm1(points[:, axis] * math.log1p(1 / share))
        return points.to(dtype)

    def enough(n: int, place: Callable[[Tensor], Tensor]) -> Tensor:
        """n points of a shape: more are drawn until as many as that are in it."""
        for doubled in range(12):
            found = place(unit(n << doubled))
            if len(found) >= n:  # the pieces of a surface come one after the other
                return found[torch.randperm(len(found), generator=random)[:n]]
        raise InputError(f"{problem.where}: not one of {n << 11} points is in the shape of the domain, or on this part")

    if collocation.shared:
        if problem.shape is not None:
            raise InputError(f"{problem.where}: points.shared is for boxes, not for shapes; set points.shared=false")
        interior, boundary, initial = (
            problem.stretch(unit(n + 1)[1:])  # the first point of a Hammersley sequence is a corner
            for n in (collocation.domain, collocation.boundary, collocation.initial)
        )
        faces = [(problem.axis(c), end) for c in problem.space for end in problem.domain[c]]
        order = torch.randperm(len(boundary), generator=random)
        for i, (column, end) in enumerate(faces):
            boundary[order[i :: len(faces)], column] = end
        timed = "t" in problem.coordinates
        if timed:
            initial[:, problem.axis("t")] = problem.domain["t"][0]
        everywhere = torch.cat([initial, boundary, interior] if timed else [boundary, interior])
        return everywhere, [(c, c.pick(problem, everywhere)) for c in conditions]

    def placed(condition: Condition) -> Tensor:
        """Every part has samples of its own: every k-th point of a Sobol sequence covers one half of a face only."""
        count = collocation.initial if condition.kind == "initial" else collocation.boundary
        inner = isinstance(condition, Edge) and condition.inner is not None
        if inner or (problem.shape is not None and not isinstance(condition, Sampled | Integral)):
            return enough(count, lambda u: within(condition.place(problem, u), condition.kind == "initial"))
        parts = condition.parts(problem)
        return torch.cat([condition.place(problem, unit(-(-count // parts)), part) for part in range(parts)])

    def within(points: Tensor, checked: bool = True) -> Tensor:
        return points[problem.inside(points)] if checked else points

    if problem.shape is not None:
        interior = enough(collocation.domain, lambda u: within(problem.stretch(u)))
    else:
        interior = problem.stretch(unit(collocation.domain))
    if begin is not None:
        column, (start, end) = problem.axis("t"), problem.domain["t"]
        if not start <= begin < end:
            raise InputError(f"{problem.where}: hard constraints begin at t = {begin:g}, but t is {start:g} to {end:g}")
        interior[:, column] = end - (end - interior[:, column]) * (end - begin) / (end - start)
    return interior, [(c, placed(c)) for c in conditions]
