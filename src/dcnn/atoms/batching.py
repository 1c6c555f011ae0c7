"""From structures to tensors: :func:`batch`, :func:`collate`, and :class:`Batcher` for training loops."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch, Edges
from dcnn.atoms.forces import energy_and_forces
from dcnn.atoms.neighbours import PairCache, Pairs, half_pairs
from dcnn.atoms.structures import Structure
from dcnn.errors import InputError

SHARED = 0.6  # share of the pairs of a molecule within the cutoff from which on all are listed
LARGEST = 64  # atoms of a molecule for which that is looked at


class _Topology(NamedTuple):
    """All indices of a batch; one object serves every batch made of the same pair lists."""

    system: Tensor
    pair_i: Tensor
    pair_j: Tensor
    shift: Tensor | None
    edges: Edges


@lru_cache(maxsize=4)
def _topology(frames: tuple[Pairs, ...], dtype: torch.dtype) -> _Topology:
    atoms = np.array([frame.n_atoms for frame in frames])
    before = np.repeat(np.cumsum(atoms) - atoms, [len(frame) for frame in frames])
    pair_i = torch.from_numpy(np.concatenate([frame.i for frame in frames]) + before)
    pair_j = torch.from_numpy(np.concatenate([frame.j for frame in frames]) + before)
    shift = None
    if any(frame.shift is not None for frame in frames):
        parts = [np.zeros((len(f), 3), np.int64) if f.shift is None else f.shift for f in frames]
        shift = torch.from_numpy(np.concatenate(parts)).to(dtype)
    system = torch.from_numpy(np.repeat(np.arange(len(frames)), atoms))
    return _Topology(system, pair_i, pair_j, shift, Edges(pair_i, pair_j, int(atoms.sum())))


def _joined(values: Iterable[Any], dtype: torch.dtype, stack: bool = False) -> Tensor | None:
    """The values as one tensor, or None if a structure lacks its own."""
    parts = list(values)
    if any(part is None for part in parts):
        return None
    return torch.from_numpy(np.stack(parts) if stack else np.concatenate(parts)).to(dtype)


def _stresses(structures: Sequence[Structure], dtype: torch.dtype) -> Tensor | None:
    """(B, 3, 3), NaN where a structure has none, or None if no structure has one."""
    if all(structure.stress is None for structure in structures):
        return None
    missing = np.full((3, 3), np.nan)
    return torch.from_numpy(np.stack([missing if s.stress is None else s.stress for s in structures])).to(dtype)


def collate(
    structures: Sequence[Structure],
    neighbours: float | Sequence[Pairs],
    dtype: torch.dtype = torch.float64,
) -> AtomsBatch:
    """One :class:`AtomsBatch` of several structures.

    ``neighbours`` is the cutoff, or the pair lists of the structures where they are known already
    (:class:`Batcher` keeps them between epochs). Energies and forces are taken over where *every* structure has
    them; a stress that only some have is NaN for the others.
    """
    if len(structures) == 0:
        raise InputError("cannot make a batch of no structures: the split or selection is empty")
    if isinstance(neighbours, (int, float)):
        cutoff = float(neighbours)
        frames = tuple(half_pairs(s.positions, cutoff, s.cell, s.pbc) for s in structures)
    else:
        frames = tuple(neighbours)
        cutoff = frames[0].cutoff
    topology = _topology(frames, dtype)
    cell = pbc = None
    if topology.shift is not None:
        zero = np.zeros((3, 3))
        cell = _joined((zero if s.cell is None else s.cell for s in structures), dtype, stack=True)
        pbc = _joined((s.pbc for s in structures), torch.bool, stack=True)
    z, positions = (
        np.concatenate([s.z for s in structures]),
        np.concatenate([s.positions for s in structures]),
    )
    return AtomsBatch(
        z=torch.from_numpy(z),
        positions=torch.from_numpy(positions).to(dtype),
        system=topology.system,
        n_systems=len(structures),
        cell=cell,
        pbc=pbc,
        pair_i=topology.pair_i,
        pair_j=topology.pair_j,
        pair_shift=topology.shift,
        cutoff=cutoff,
        energy=_joined((s.energy for s in structures), torch.float64, stack=True),
        forces=_joined((s.forces for s in structures), dtype),
        stress=_stresses(structures, dtype),
        edges=topology.edges,
    )


def batch(
    z: Any,
    positions: Any,
    system: Any = None,
    cell: Any = None,
    pbc: Any = None,
    cutoff: float = 6.0,
) -> AtomsBatch:
    """An :class:`AtomsBatch` of tensors or arrays: ``z`` (N,), ``positions`` (N, 3), ``system`` (N,) or None.

    ``cell`` is (3, 3) or (B, 3, 3) with lattice vectors as rows; ``pbc`` defaults to all directions when a
    cell is given. ``positions`` and ``cell`` keep their graph, so derivatives go through the batch.

    >>> water = batch(z=[8, 1, 1], positions=[[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    >>> water.pair_i.tolist(), water.pair_j.tolist()
    ([0, 0, 1], [1, 2, 2])
    """
    positions = torch.as_tensor(positions)
    if not positions.is_floating_point():
        positions = positions.to(torch.get_default_dtype())
    device, dtype = positions.device, positions.dtype
    z = torch.as_tensor(z, device=device).long()
    system = torch.zeros_like(z) if system is None else torch.as_tensor(system, device=device).long()
    n = len(z)
    if positions.shape != (n, 3) or system.shape != (n,) or n == 0:
        raise InputError(
            f"batch: z {tuple(z.shape)}, positions {tuple(positions.shape)} and system {tuple(system.shape)} "
            "do not fit; expected (N,), (N, 3) and (N,) with at least one atom"
        )
    if int(z.min()) < 1 or int(z.max()) > 118:
        raise InputError(f"batch: unknown element with atomic number {int(z.min() if z.min() < 1 else z.max())}")
    n_systems = int(system.max()) + 1
    if cell is not None:
        cell = torch.as_tensor(cell, device=device).to(dtype)
        cell = cell.expand(n_systems, 3, 3) if cell.dim() == 2 else cell
        n_systems = max(n_systems, len(cell))
        if cell.shape != (n_systems, 3, 3):
            raise InputError(f"batch: cell has shape {tuple(cell.shape)}, expected (3, 3) or ({n_systems}, 3, 3)")
        pbc = torch.as_tensor(True if pbc is None else pbc, device=device).bool().expand(n_systems, 3)
    members = [np.flatnonzero(system.cpu().numpy() == b) for b in range(n_systems)]
    empty = [b for b, atoms in enumerate(members) if len(atoms) == 0]
    if empty or int(system.min()) < 0:
        what = f"system {empty[0]} of {n_systems} has no atoms" if empty else f"system holds {int(system.min())}"
        raise InputError(f"batch: {what}; number the systems 0, 1, 2, … without a gap, one cell each")
    points = positions.detach().cpu().double().numpy()
    cells = None if cell is None else cell.detach().cpu().double().numpy()
    frames = [
        half_pairs(points[atoms], cutoff)
        if cells is None
        else half_pairs(points[atoms], cutoff, cells[b], pbc[b].cpu().numpy())
        for b, atoms in enumerate(members)
    ]
    pair_i, pair_j = (
        torch.from_numpy(np.concatenate([atoms[getattr(f, side)] for atoms, f in zip(members, frames, strict=True)]))
        for side in "ij"
    )
    periodic = [f.shift for f in frames if f.shift is not None]
    shift = None
    if periodic:
        parts = [np.zeros((len(f), 3), np.int64) if f.shift is None else f.shift for f in frames]
        shift = torch.from_numpy(np.concatenate(parts)).to(device, dtype)
    return AtomsBatch(
        z=z,
        positions=positions,
        system=system,
        n_systems=n_systems,
        cell=cell,
        pbc=pbc if cell is not None else None,
        pair_i=pair_i.to(device),
        pair_j=pair_j.to(device),
        pair_shift=shift,
        cutoff=cutoff,
    )


def shared_radius(frames: Sequence[Structure], network: nn.Module) -> float:
    """How far to list pairs so that all frames of one small molecule share one list: as far as any two atoms are apart.

    It stays at the network's cutoff for crystals, for frames of several molecules, where the cutoff leaves out more
    than it is worth, and if the network does not give the same with the longer list, which is tried on the frame with
    the two atoms that are farthest apart.
    """
    cutoff, first = float(network.cutoff), frames[0]  # type: ignore[arg-type]
    if len(first.z) > LARGEST:
        return cutoff
    if any(frame.cell is not None or not np.array_equal(frame.z, first.z) for frame in frames):
        return cutoff
    i, j = np.triu_indices(len(first.z), k=1)
    within, largest, farthest = 0, 0.0, first
    for frame in frames:
        distance = np.linalg.norm(frame.positions[i] - frame.positions[j], axis=1)  # (pairs,)
        within += int((distance < cutoff).sum())
        if distance.max(initial=0.0) > largest:
            largest, farthest = float(distance.max()), frame
    radius = 1.001 * largest
    if radius <= cutoff or within < SHARED * len(i) * len(frames) or not unaffected(network, farthest, radius):
        return cutoff
    return radius


def unaffected(network: nn.Module, frame: Structure, radius: float) -> bool:
    """Whether energy and forces in training mode stay the same with pairs listed up to ``radius``."""
    found = []
    for listed in (float(network.cutoff), radius):  # type: ignore[arg-type]
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)  # of dropout
            twin = copy.deepcopy(network).double().train()
            found.append(torch.cat([part.flatten() for part in energy_and_forces(twin, collate([frame], listed))]))
    near, longer = found
    return bool((near - longer).abs().max() <= 1e-8 * near.abs().max())


class Batcher:
    """Batches of a dataset by frame numbers, with every pair list computed once.

    ``batcher([3, 1, 4])`` is the batch of these frames. Pair lists stay in memory up to ``memory``
    bytes; frames whose lists are equal share them, so that a small molecule with all its atoms inside the cutoff costs
    nothing but the copy of its positions.
    """

    def __init__(
        self,
        dataset: Sequence[Structure],
        cutoff: float,
        dtype: torch.dtype = torch.float32,
        memory: int = 2 * 1024**3,
    ) -> None:
        self.dataset = dataset
        self.dtype = dtype
        self.pairs = PairCache(cutoff, memory)

    def __call__(self, frames: Iterable[int]) -> AtomsBatch:
        numbers = [int(frame) for frame in frames]
        structures = [self.dataset[number] for number in numbers]
        return collate(structures, [self._pairs(number) for number in numbers], self.dtype)

    def _pairs(self, number: int) -> Pairs:
        def compute() -> Pairs:
            structure = self.dataset[number]
            try:
                return half_pairs(structure.positions, self.pairs.cutoff, structure.cell, structure.pbc)
            except InputError as error:
                where = getattr(self.dataset, "where", "frame {}".format)
                raise InputError(f"{where(number)}: {error}") from None

        return self.pairs.get(number, compute)


import dcnn.atoms.audit_sample  # noqa: E402, F401  (dcnn.audit takes batches; at the end, since it imports `batch`)
