"""Residuals with their derivatives with respect to all weights, row by row.

A residual depends on the network at one point (two across a periodic axis), so that a batched reverse pass over single
points costs little more than the gradient of the loss. Differentiating each residual of a batch would do the work of
all points for every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from dcnn.derivatives import Jet
from dcnn.errors import InputError
from dcnn.pde.network import Located, PdeNetwork
from dcnn.pde.points import PointGroup, Points
from dcnn.pde.problem import Problem

Linear = tuple[Tensor, Tensor]  # residuals (n,) and their Jacobian (n, weights)


class _Rows(nn.Module):
    """The residuals at some rows as a function of the network's weights, for `functional_call`."""

    def __init__(self, network: PdeNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, located: Located, residuals: Callable[[Mapping[str, Tensor]], dict[str, Tensor]]) -> Any:
        return residuals(self.network.partials(located, taylor=True))


def linearise(problem: Problem, network: PdeNetwork, batch: Points, active: set[str]) -> dict[str, Linear]:
    """{term: (r, J)} of the terms of `active`; weights in the order of the parameters that are trained."""
    carried = all(isinstance(g.located, Located) and g.located.features is not None for g in batch.groups)
    if problem.needs_everywhere or network.batch_norm or not carried:
        raise InputError(
            f"{problem.where}: gauss_newton needs residuals of single points, and a network that carries derivatives; "
            "choose lbfgs or adam"
        )
    found: dict[str, Linear] = {}
    for group in batch.groups:
        assert isinstance(group.located, Located)
        if group.interior:
            _add(found, _interior(problem, network, group), active)
        for placed in group.placed:
            condition = placed.condition
            rows = range(*placed.rows.indices(len(group.located.points)))
            names = [name for name in condition.terms(problem) if name in active]
            if not names:
                continue
            size = len(rows) // condition.rows_each

            def residuals(partials: Any, points: Tensor, given: Any, condition: Any = condition) -> dict[str, Tensor]:
                out: dict[str, Tensor] = condition.residuals(problem, partials, given)
                return out

            part = _per_sample(
                network, group.located, rows.start, size, condition.rows_each, residuals, placed.prepared
            )
            _add(found, part, active)
    return found


def _interior(problem: Problem, network: PdeNetwork, group: PointGroup) -> dict[str, Linear]:
    assert isinstance(group.located, Located)

    def residuals(partials: Any, points: Tensor, given: Any) -> dict[str, Tensor]:
        return problem.evaluate(partials, points)

    return _per_sample(network, group.located, 0, group.interior, 1, residuals, {})


def _per_sample(
    network: PdeNetwork,
    located: Located,
    start: int,
    count: int,
    each: int,
    residuals: Callable[..., dict[str, Tensor]],
    prepared: Mapping[str, Tensor],
) -> dict[str, Linear]:
    """Residuals of `count` samples; sample i has rows start + i, start + count + i, … (`each` of them)."""
    module = _Rows(network)
    weights = {name: p for name, p in module.named_parameters() if p.requires_grad}
    others = {name: p for name, p in module.named_parameters() if not p.requires_grad}
    rows = slice(start, start + each * count)
    jets = [located.features, located.lift, located.factor]
    assert located.features is not None

    def cut(jet: Jet | None) -> Tensor | None:
        if jet is None:
            return None
        return jet.rows[:, rows].reshape(len(jet.rows), each, count, -1)  # (terms, each, count, features)

    names: list[str] = []

    def sample(values: Any, parts: Any, points: Tensor, given: Any) -> tuple[Tensor, Tensor]:
        twin = [None if j is None else Jet(part, j.terms, j.closed) for j, part in zip(jets, parts, strict=True)]
        here = Located(points, located.wanted, *twin)
        given = {key: value[None] for key, value in given.items()}
        out = functional_call(module, {**values, **others}, (here, lambda partials: residuals(partials, points, given)))
        names[:] = out
        stacked = torch.cat([out[name].reshape(1) for name in names])  # (terms,)
        return stacked, stacked

    cuts = tuple(cut(jet) for jet in jets)
    points = located.points[rows].reshape(each, count, -1)
    given = {key: value.detach() for key, value in prepared.items()}
    dims = (None, tuple(None if c is None else 2 for c in cuts), 1, dict.fromkeys(given, 0))
    detached = {name: p.detach() for name, p in weights.items()}
    slopes, values = vmap(jacrev(sample, has_aux=True), in_dims=dims)(detached, cuts, points, given)
    J = torch.cat([slopes[name].reshape(count, len(names), -1) for name in weights], 2)  # (count, terms, weights)
    return {name: (values[:, i].detach(), J[:, i].detach()) for i, name in enumerate(names)}


def _add(found: dict[str, Linear], part: dict[str, Linear], active: set[str]) -> None:
    for name, (r, J) in part.items():
        if name in active:  # two conditions may share a term: all their points count
            before = found.get(name)
            found[name] = (r, J) if before is None else (torch.cat([before[0], r]), torch.cat([before[1], J]))
