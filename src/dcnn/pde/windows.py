"""Marching in time: one network for each window of time, trained one after the other.

Each window starts where the trained one before it ends, and from its weights. A wave that crosses the domain several
times is long for one network and short for each of many.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.pde.conditions import Condition, Initial
from dcnn.pde.network import Located, PdeNetwork
from dcnn.pde.problem import Problem


@dataclass(frozen=True)
class Pieces:
    """Points of several windows: the rows of each, prepared for its network."""

    points: Tensor  # (N, coordinates)
    windows: tuple[int, ...]
    rows: tuple[Tensor, ...]
    located: tuple[Located, ...]

    def to(self, device: Any) -> Pieces:
        if self.points.device == torch.device(device):
            return self
        rows, located = tuple(r.to(device) for r in self.rows), tuple(x.to(device) for x in self.located)
        return Pieces(self.points.to(device), self.windows, rows, located)


class Windows(nn.Module):
    """`count` networks, the k-th for edges[k] ≤ t < edges[k + 1]; options are those of :class:`PdeNetwork`.

    Windows are of equal length; with `transient` τ, in log(1 + (t − t₀)/τ). Hard constraints hold exactly in the first
    window and are the form of the fields, u = lift + factor · network, in the others.
    """

    batch_norm = False

    def __init__(self, problem: Problem, count: int, **options: Any) -> None:
        super().__init__()
        if "t" not in problem.coordinates:
            raise InputError(f"{problem.where}: points.time_windows={count}, but there is no coordinate t")
        if options.get("batch_norm"):
            raise InputError(f"network.batch_norm cannot be combined with points.time_windows={count}")
        if any(condition.kind == "data" and not _starts(condition) for condition in problem.soft_conditions()):
            raise InputError(f"{problem.where}: measured data cannot be combined with points.time_windows={count}")
        self.problem, self.current = problem, 0
        self.edges = window_edges(*problem.domain["t"], count, options.pop("transient", None))
        self.networks = nn.ModuleList(PdeNetwork(self._window(k), **options) for k in range(count))
        self.hard = self.network(0).hard
        self._train_only(0)

    def _window(self, k: int) -> Problem:
        """The problem within one window of time."""
        twin = copy.copy(self.problem)
        twin.domain = {**self.problem.domain, "t": (self.edges[k], self.edges[k + 1])}
        return twin

    def network(self, k: int) -> PdeNetwork:
        """The network of window k; its `problem` is the one within this window."""
        found = self.networks[k]
        assert isinstance(found, PdeNetwork)
        return found

    def begin(self, k: int) -> None:
        """Trains window k from now on; it and all later ones start from the weights of the one before."""
        if k > self.current:
            weights = self.networks[k - 1].state_dict()
            for later in self.networks[k:]:
                later.load_state_dict(weights)
        self.current = k
        self._train_only(k)

    def _train_only(self, k: int) -> None:
        self.requires_grad_(False)
        self.networks[k].requires_grad_(True)

    def conditions(self, found: Sequence[Condition]) -> list[Condition]:
        """Those of the current window: after the first, the start is where the window before ended."""
        if self.current == 0:
            exact = {term for constraint in self.hard.values() for term in constraint.satisfies}
            return [condition for condition in found if not exact.issuperset(condition.terms(self.problem))]
        before = self.network(self.current - 1)
        return [Continued(condition, before) if _starts(condition) else condition for condition in found]

    def forward(self, x: Tensor) -> Tensor:
        """Fields (N, fields) at the points x (N, coordinates)."""
        found = self._rows(x)
        return _in_order([self.networks[k](x[rows]) for k, rows in found.items()], tuple(found.values()))

    def at(self, points: Tensor, wanted: Sequence[str]) -> Pieces:
        """The points prepared for :meth:`partials`, each by the network of its window."""
        found = self._rows(points)
        located = (self.network(k).at(points[rows], wanted) for k, rows in found.items())
        return Pieces(points, tuple(found), tuple(found.values()), tuple(located))

    def partials(self, pieces: Pieces) -> dict[str, Tensor]:
        """Every wanted derivative (N, fields) at prepared points."""
        parts = [self.network(k).partials(x) for k, x in zip(pieces.windows, pieces.located, strict=True)]
        return {letters: _in_order([part[letters] for part in parts], pieces.rows) for letters in parts[0]}

    def _rows(self, x: Tensor) -> dict[int, Tensor]:
        """The rows of each window that has any."""
        edges = torch.tensor(self.edges[1:-1], dtype=x.dtype, device=x.device)
        window = torch.bucketize(x[:, self.problem.axis("t")].contiguous(), edges, right=True)  # (N,)
        return {k: (window == k).nonzero()[:, 0] for k in window.unique().tolist()}


def _in_order(parts: Sequence[Tensor], rows: Sequence[Tensor]) -> Tensor:
    """The parts stacked, then each row where it came from."""
    return torch.cat(list(parts))[torch.cat(list(rows)).argsort()]


def window_edges(begin: float, end: float, count: int, transient: float | None = None) -> list[float]:
    """count + 1 times from `begin` to `end`, evenly spaced or, with `transient` τ, in log(1 + (t − begin)/τ).

    >>> window_edges(0.0, 3.0, 2), window_edges(0.0, 3.0, 2, transient=1.0)
    ([0.0, 1.5, 3.0], [0.0, 1.0, 3.0])
    """
    shares = [k / count for k in range(count + 1)]
    if transient is not None:
        whole = (end - begin) / transient
        shares = [((1 + whole) ** share - 1) / whole for share in shares]
    return [begin + (end - begin) * share for share in shares]


class Continued(Initial):
    """An initial condition at the start of a later window: the values that the network before has there."""

    def __init__(self, first: Condition, before: PdeNetwork) -> None:
        super().__init__(name=first.name, term=first.term, **dict.fromkeys(first.keys, 0.0))
        self.before = before

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        """The earlier network's fields (or their derivatives) at its last time."""
        with torch.no_grad():
            found = self.before.partials(self.before.at(points, self.wanted(problem)))
        return {key: found[letters][:, column] for key, column, letters in self.targets(problem)}


def _starts(condition: Condition) -> bool:
    """Whether this is an initial condition: stated as one, or sampled on a grid under that name."""
    return condition.kind == "initial" or condition.name == "initial"
