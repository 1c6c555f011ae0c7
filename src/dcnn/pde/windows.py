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
from dcnn.pde.problem import Hard, Problem


@dataclass(frozen=True)
class Pieces:
    """Points of all windows: the rows of each window, prepared for its network."""

    points: Tensor  # (N, coordinates)
    rows: tuple[Tensor, ...]
    located: tuple[Located, ...]

    def to(self, device: Any) -> Pieces:
        if self.points.device == torch.device(device):
            return self
        return Pieces(
            self.points.to(device), tuple(r.to(device) for r in self.rows), tuple(x.to(device) for x in self.located)
        )


class Windows(nn.Module):
    """`count` networks, the k-th for edges[k] ≤ t < edges[k + 1]; options are those of :class:`PdeNetwork`."""

    batch_norm = False

    def __init__(self, problem: Problem, count: int, **options: Any) -> None:
        super().__init__()
        if "t" not in problem.coordinates:
            raise InputError(f"{problem.where}: points.time_windows={count}, but there is no coordinate t")
        for option in ("hard", "batch_norm"):
            if options.get(option):
                raise InputError(f"network.{option} cannot be combined with points.time_windows={count}")
        if any(condition.kind == "data" and not _starts(condition) for condition in problem.conditions()):
            raise InputError(f"{problem.where}: measured data cannot be combined with points.time_windows={count}")
        low, high = problem.domain["t"]
        self.problem, self.current = problem, 0
        self.hard: dict[str, Hard] = {}  # a constraint at the start of time is none at the start of a window
        self.edges = [low + (high - low) * k / count for k in range(count + 1)]
        self.networks = nn.ModuleList(PdeNetwork(self._window(k), **options) for k in range(count))
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
            return list(found)
        before = self.network(self.current - 1)
        return [Continued(condition, before) if _starts(condition) else condition for condition in found]

    def forward(self, x: Tensor) -> Tensor:
        """Fields (N, fields) at the points x (N, coordinates)."""
        return self._joined(x, [net(x[rows]) for net, rows in zip(self.networks, self._rows(x), strict=True)])

    def at(self, points: Tensor, wanted: Sequence[str]) -> Pieces:
        """The points prepared for :meth:`partials`, each by the network of its window."""
        rows = self._rows(points)
        located = (self.network(k).at(points[r], wanted) for k, r in enumerate(rows))
        return Pieces(points, tuple(rows), tuple(located))

    def partials(self, pieces: Pieces) -> dict[str, Tensor]:
        """Every wanted derivative (N, fields) at prepared points."""
        found = [self.network(k).partials(located) for k, located in enumerate(pieces.located)]
        return {letters: self._joined(pieces.points, [f[letters] for f in found], pieces.rows) for letters in found[0]}

    def _rows(self, x: Tensor) -> list[Tensor]:
        edges = torch.tensor(self.edges[1:-1], dtype=x.dtype, device=x.device)
        window = torch.bucketize(x[:, self.problem.axis("t")].contiguous(), edges, right=True)  # (N,)
        return [(window == k).nonzero()[:, 0] for k in range(len(self.networks))]

    def _joined(self, x: Tensor, parts: Sequence[Tensor], rows: Sequence[Tensor] | None = None) -> Tensor:
        order = torch.cat(list(self._rows(x) if rows is None else rows))
        return torch.cat(list(parts))[order.argsort()]


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
