"""Several structures as tensors: :class:`AtomsBatch`, what every network takes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dcnn.atoms.convolution import convolve, pays


class Neighbourhoods(NamedTuple):
    """The edges into every atom side by side in n slots (n = largest number of neighbours), the rest empty.

    All angles of a batch are then products of small dense matrices, with no list of triplets.
    """

    edge: Tensor  # (N, n) directed edge in a slot, 0 in an empty one
    pair: Tensor  # (N, n) its pair
    neighbour: Tensor  # (N, n) the atom it comes from
    filled: Tensor  # (N, n) bool
    slot: Tensor  # (2P,) slot of a directed edge in the flattened (N·n,) table
    angle: Tensor  # (N, n, n) bool: both slots are filled and differ


class Edges:
    """The directed edges of a half pair list; ``center``, ``neighbour``, ``degree`` and ``neighbourhoods`` are made
    when first asked for.

    ``slots`` fixes the width of the neighbourhoods, so that it does not depend on the data; no atom may have more
    neighbours. A graph of a training step takes the parts that the network asked for (``made``) as its inputs.
    """

    def __init__(self, pair_i: Tensor, pair_j: Tensor, n_atoms: int, slots: int | None = None) -> None:
        self._i, self._j, self._n_atoms, self._slots = pair_i, pair_j, n_atoms, slots

    @cached_property
    def degree(self) -> Tensor:
        """(N,) number of edges into every atom."""
        none = torch.zeros(self._n_atoms, dtype=torch.long, device=self._i.device)
        return none.index_add(0, self.center, torch.ones_like(self.center))

    @cached_property
    def center(self) -> Tensor:
        return torch.cat([self._i, self._j])

    @cached_property
    def neighbour(self) -> Tensor:
        return torch.cat([self._j, self._i])

    @cached_property
    def neighbourhoods(self) -> Neighbourhoods:
        width = self._slots
        if width is None:
            width = int(self.degree.max()) if len(self.center) else 0
        order = torch.argsort(self.center, stable=True)
        first = (torch.cumsum(self.degree, 0) - self.degree)[self.center]
        numbers = torch.arange(order.shape[0], device=order.device)
        rank = torch.empty_like(order)
        rank[order] = numbers
        slot = self.center * width + (rank - first).clamp(max=width - 1)
        edge = torch.zeros(self._n_atoms * width, dtype=torch.long, device=order.device)
        edge[slot] = numbers
        filled = torch.zeros_like(edge, dtype=torch.bool)
        filled[slot] = True
        filled = filled.view(self._n_atoms, width)
        different = ~torch.eye(width, dtype=torch.bool, device=order.device)
        angle = filled.unsqueeze(1) & filled.unsqueeze(2) & different
        edge = edge.view(self._n_atoms, width)
        pair = edge % max(self._i.shape[0], 1)
        return Neighbourhoods(edge, pair, self.neighbour[edge], filled, slot, angle)

    def made(self) -> tuple[str, ...]:
        """The parts that have been asked for so far."""
        return tuple(name for name in ("center", "neighbour", "degree", "neighbourhoods") if name in vars(self))

    def tensors(self, parts: Iterable[str]) -> dict[str, Any]:
        """The pair list and these parts, made now if need be."""
        return {name: getattr(self, name) for name in ("_i", "_j", *parts)}

    def with_tensors(self, tensors: Mapping[str, Any]) -> Edges:
        """The same edges with other tensors in these places."""
        twin = copy.copy(self)
        vars(twin).update(tensors)
        return twin


@dataclass
class AtomsBatch:
    """Several structures as one graph: atoms, half pairs within the cutoff, and labels.

    Every unordered pair, and every periodic image of it, appears once, with |pair vector| < ``cutoff``, which may be
    longer than that of the network. Directed edges 0…P−1 are (centre i, neighbour j), P…2P−1 the same pairs reversed;
    the reverse of edge e is (e + P) mod 2P. ``energy`` stays float64 whatever the dtype of the positions.
    """

    z: Tensor  # (N,) int64
    positions: Tensor  # (N, 3)
    system: Tensor  # (N,) int64
    n_systems: int
    cell: Tensor | None  # (B, 3, 3), rows are lattice vectors
    pbc: Tensor | None  # (B, 3) bool
    pair_i: Tensor  # (P,) int64
    pair_j: Tensor  # (P,) int64
    pair_shift: Tensor | None  # (P, 3) integer image numbers in the float dtype; None when nothing is periodic
    cutoff: float
    energy: Tensor | None = None  # (B,) float64; of all labels: NaN where a structure has none
    forces: Tensor | None = None  # (N, 3)
    stress: Tensor | None = None  # (B, 3, 3)
    weight: Tensor | None = None  # (B,) of a structure in the loss
    edges: Edges | None = field(default=None, repr=False, compare=False)

    def _edges(self) -> Edges:
        if self.edges is None:
            self.edges = Edges(self.pair_i, self.pair_j, self.z.shape[0])
        return self.edges

    def pair_vectors(self) -> Tensor:
        """r_j + shift·cell − r_i of every half pair, (P, 3); differentiable in positions and cell."""
        vectors = self.positions.index_select(0, self.pair_j) - self.positions.index_select(0, self.pair_i)
        if self.pair_shift is None or self.cell is None:
            return vectors
        cell = self.cell.index_select(0, self.system.index_select(0, self.pair_i))  # (P, 3, 3)
        return vectors + (self.pair_shift.unsqueeze(-1) * cell).sum(1)

    def edge_vectors(self) -> Tensor:
        """From the centre of every directed edge to its neighbour, (2P, 3): the pair vectors, then their negatives."""
        vectors = self.pair_vectors()
        return torch.cat([vectors, -vectors])

    @property
    def edge_center(self) -> Tensor:
        """(2P,) the atom a directed edge leads to."""
        return self._edges().center

    @property
    def edge_neighbour(self) -> Tensor:
        """(2P,) the atom a directed edge comes from."""
        return self._edges().neighbour

    @property
    def neighbourhoods(self) -> Neighbourhoods:
        """The edges into every atom as a dense table, for the angles between them."""
        return self._edges().neighbourhoods

    def sum_edges(self, values: Tensor) -> Tensor:
        """Σ of the rows of the edges into every atom, (2P, …) → (N, …)."""
        return sum_by(self.edge_center, values, self.z.shape[0])

    def convolve(self, values: Tensor, filters: Tensor) -> Tensor:
        """Σ over the neighbours j of every atom of values_j ∘ filters_ij, (N, F) and (P, F) → (N, F)."""
        if pays(self.pair_i.shape[0]):
            return convolve(values, filters, self.pair_i, self.pair_j)
        sent = values.index_select(0, self.edge_neighbour)  # (2P, F)
        messages = sent.view(2, *filters.shape) * filters  # both directions of a pair share its filter
        return self.sum_edges(messages.view_as(sent))

    def sum_atoms(self, values: Tensor) -> Tensor:
        """Σ of the rows of the atoms of every system, (N, …) → (B, …)."""
        return sum_by(self.system, values, self.n_systems)

    def within(self, cutoff: float) -> AtomsBatch:
        """The batch without the pairs at a distance of ``cutoff`` and more; itself if it lists none."""
        if self.cutoff <= cutoff:
            return self
        near = self.pair_vectors().detach().square().sum(1) < cutoff**2
        shift = None if self.pair_shift is None else self.pair_shift[near]
        pairs = {"pair_i": self.pair_i[near], "pair_j": self.pair_j[near], "pair_shift": shift}
        return replace(self, **pairs, cutoff=cutoff, edges=None)  # type: ignore[arg-type]

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> AtomsBatch:
        """The batch on another device or in another floating dtype; the energy label stays float64."""
        moved: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, Tensor):
                floating = value.is_floating_point() and entry.name != "energy"
                moved[entry.name] = value.to(device=device, dtype=dtype if floating else None)
        same_place = moved["pair_i"] is self.pair_i
        return replace(self, **moved, edges=self.edges if same_place else None)


def sum_by(index: Tensor, values: Tensor, count: int) -> Tensor:
    """Σ of the rows of ``values`` with the same ``index``, (count, …)."""
    return values.new_zeros((count, *values.shape[1:])).index_add(0, index, values)
