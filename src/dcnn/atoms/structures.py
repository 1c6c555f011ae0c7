"""One frame of atoms (:class:`Structure`) and several of them as tensors (:class:`AtomsBatch`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dcnn.atoms.neighbours import Pairs
from dcnn.atoms.neighbours import triplets as triplets_of
from dcnn.errors import InputError


@dataclass(frozen=True, eq=False)
class Structure:
    """One frame: atomic numbers, positions, cell and, if known, the total energy, forces and stress.

    The arrays are numpy (``z`` int64, the rest float64) in the units of the dataset they come from; ``cell``
    has the lattice vectors as rows, ``stress`` is the symmetric 3×3 matrix (energy / length³).
    """

    z: np.ndarray
    positions: np.ndarray
    cell: np.ndarray | None = None
    pbc: np.ndarray | None = None
    energy: float | None = None
    forces: np.ndarray | None = None
    stress: np.ndarray | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.z)
        shapes = {
            "z": (n,),
            "positions": (n, 3),
            "cell": (3, 3),
            "pbc": (3,),
            "forces": (n, 3),
            "stress": (3, 3),
        }
        for name, shape in shapes.items():
            value = getattr(self, name)
            if name == "pbc":
                value = np.full(3, self.cell is not None) if value is None else np.broadcast_to(value, 3)
            if value is None:
                continue
            array: np.ndarray = np.asarray(value, {"z": np.int64, "pbc": np.bool_}.get(name, np.float64))
            if array.shape != shape:
                raise InputError(f"{name} of a structure with {n} atoms has shape {array.shape}, expected {shape}")
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.z)

    @classmethod
    def from_ase(cls, atoms: Any) -> Structure:
        """The structure of an ``ase.Atoms``, with the labels its calculator already holds (eV, Å)."""
        results = dict(getattr(atoms.calc, "results", None) or {})
        stress = results.get("stress")
        if stress is not None and np.shape(stress) == (6,):
            xx, yy, zz, yz, xz, xy = stress  # Voigt order
            stress = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        periodic = bool(atoms.pbc.any())
        return cls(
            z=atoms.numbers,
            positions=atoms.positions,
            cell=atoms.cell.array.copy() if periodic else None,
            pbc=atoms.pbc.copy(),
            energy=float(results["energy"]) if results.get("energy") is not None else None,
            forces=results.get("forces"),
            stress=stress,
            info=dict(atoms.info),
        )

    def to_ase(self) -> Any:
        """An ``ase.Atoms`` holding the labels in a single-point calculator; the numbers are not converted."""
        from ase import Atoms
        from ase.calculators.singlepoint import SinglePointCalculator

        atoms = Atoms(self.z, self.positions, cell=self.cell, pbc=self.pbc, info=dict(self.info))
        labels: dict[str, Any] = {"energy": self.energy, "forces": self.forces}
        if self.stress is not None:
            labels["stress"] = self.stress[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]
        labels = {name: value for name, value in labels.items() if value is not None}
        if labels:
            atoms.calc = SinglePointCalculator(atoms, **labels)
        return atoms


class Triplets(NamedTuple):
    """Angles k→j→i as numbers of directed edges: ``edge_kj`` leads into the atom that ``edge_ji`` leaves."""

    edge_kj: Tensor
    edge_ji: Tensor


class Neighbourhoods(NamedTuple):
    """The edges into every atom side by side in n slots (n = largest number of neighbours), the rest empty.

    All angles of a batch are then products of small dense matrices, with no list of triplets.
    """

    edge: Tensor  # (N, n) directed edge in a slot, 0 in an empty one
    slot: Tensor  # (2P,) slot of a directed edge in the flattened (N·n,) table
    angle: Tensor  # (N, n, n) bool: both slots are filled and differ


class Edges:
    """The directed edges of a half pair list, made when first asked for.

    ``frames`` are the pair lists the batch was put together from; with them the triplets of a batch are those
    of its frames, renumbered, instead of being searched again. ``slots`` fixes the width of the neighbourhoods, so
    that it does not depend on the data; no atom may have more neighbours.
    """

    def __init__(
        self, pair_i: Tensor, pair_j: Tensor, n_atoms: int, frames: Sequence[Pairs] = (), slots: int | None = None
    ) -> None:
        self._i, self._j, self._n_atoms, self._frames, self._slots = pair_i, pair_j, n_atoms, frames, slots

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
    def pair(self) -> Tensor:
        return torch.arange(self._i.shape[0], device=self._i.device).repeat(2)

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
        return Neighbourhoods(edge.view(self._n_atoms, width), slot, angle)

    @cached_property
    def triplets(self) -> Triplets:
        if not self._frames:
            found = triplets_of(self._i.cpu().numpy(), self._j.cpu().numpy(), self._n_atoms)
        else:
            count = sum(len(frame.triplets[0]) for frame in self._frames)
            found = np.empty(count, np.int64), np.empty(count, np.int64)
            first = pair = 0
            for frame in self._frames:
                forward = np.arange(pair, pair + len(frame))
                number = np.concatenate([forward, forward + len(self._i)])  # in the batch, of each of its edges
                last = first + len(frame.triplets[0])
                for side in (0, 1):
                    np.take(number, frame.triplets[side], out=found[side][first:last], mode="clip")
                first, pair = last, pair + len(frame)
        return Triplets(*(torch.from_numpy(side).to(self._i.device) for side in found))


@dataclass
class AtomsBatch:
    """Several structures as one graph: atoms, half pairs within the cutoff, and labels.

    Every unordered pair, and every periodic image of it, appears once, with |pair vector| < ``cutoff``.
    Directed edges 0…P−1 are (centre i, neighbour j), P…2P−1 the same pairs reversed; the reverse of edge e
    is (e + P) mod 2P. ``energy`` stays float64 whatever the dtype of the positions.
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
    energy: Tensor | None = None  # (B,) float64
    forces: Tensor | None = None  # (N, 3)
    stress: Tensor | None = None  # (B, 3, 3)
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

    @property
    def edge_center(self) -> Tensor:
        """(2P,) the atom a directed edge leads to."""
        return self._edges().center

    @property
    def edge_neighbour(self) -> Tensor:
        """(2P,) the atom a directed edge comes from."""
        return self._edges().neighbour

    @property
    def edge_pair(self) -> Tensor:
        """(2P,) the half pair a directed edge belongs to."""
        return self._edges().pair

    @property
    def triplets(self) -> Triplets:
        """Every k→j→i as two directed edges that meet in j, without an edge followed by its own reverse."""
        return self._edges().triplets

    @property
    def neighbourhoods(self) -> Neighbourhoods:
        """The edges into every atom as a dense table; the angles between them are the triplets."""
        return self._edges().neighbourhoods

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
