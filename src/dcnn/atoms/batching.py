"""From structures to tensors: :func:`batch`, :func:`collate`, and :class:`Batcher` for training loops."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch, Edges
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.forces import energy_and_forces
from dcnn.atoms.frame_arrays import LABELS, FrameArrays
from dcnn.atoms.neighbours import PairCache, Pairs, half_pairs
from dcnn.atoms.structures import Structure
from dcnn.errors import InputError
from dcnn.guard import error_context
from dcnn.scaling import LabelScale

SHARED = 0.6  # share of the pairs of a molecule within the cutoff from which on all are listed
MEMORY = 256 * 1024**2  # bytes of pair lists that are kept
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


def collate(
    structures: Sequence[Structure],
    neighbours: float | Sequence[Pairs],
    dtype: torch.dtype = torch.float64,
) -> AtomsBatch:
    """One :class:`AtomsBatch` of several structures.

    ``neighbours`` is the cutoff, or the pair lists of the structures where they are known already
    (:class:`Batcher` keeps them between epochs). A label that only some structures have is NaN for the others.
    """
    if len(structures) == 0:
        raise InputError("cannot make a batch of no structures: the split or selection is empty")
    if isinstance(neighbours, (int, float)):
        neighbours = [half_pairs(s.positions, float(neighbours), s.cell, s.pbc) for s in structures]
    return assemble(FrameArrays.of(structures), neighbours, dtype)


def assemble(
    frames: FrameArrays, neighbours: Sequence[Pairs], dtype: torch.dtype, labels: Iterable[str] | None = None
) -> AtomsBatch:
    """The batch of flat arrays and pair lists, with these labels (default: those that a frame has)."""
    wanted = [name for name in LABELS if frames.known(name).any()] if labels is None else labels
    topology = _topology(tuple(neighbours), dtype)
    periodic = topology.shift is not None
    held = {name: torch.from_numpy(getattr(frames, name)).to(dtype) for name in wanted if name != "energy"}
    return AtomsBatch(
        z=torch.from_numpy(frames.z),
        positions=torch.from_numpy(frames.positions).to(dtype),
        system=topology.system,
        n_systems=len(frames),
        cell=torch.from_numpy(frames.cell).to(dtype) if periodic else None,
        pbc=torch.from_numpy(frames.pbc) if periodic else None,
        pair_i=topology.pair_i,
        pair_j=topology.pair_j,
        pair_shift=topology.shift,
        cutoff=neighbours[0].cutoff,
        energy=torch.from_numpy(frames.energy) if "energy" in wanted else None,
        edges=topology.edges,
        **held,
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


def shared_radius(chunks: Iterable[FrameArrays], network: nn.Module) -> float:
    """How far to list pairs so that all frames of one small molecule share one list: as far as any two atoms are apart.

    It stays at the network's cutoff for crystals, for frames of several molecules, where the cutoff leaves out more
    than it is worth, and if the network does not give the same with the longer list, which is tried on the frame with
    the two atoms that are farthest apart.
    """
    cutoff = float(network.cutoff)  # type: ignore[arg-type]
    z, pairs, within, listed, largest, farthest = None, None, 0, 0, 0.0, None
    for chunk in chunks:
        z = chunk.z[: chunk.counts[0]] if z is None else z
        if len(z) > LARGEST or chunk.cell.any() or (chunk.counts != len(z)).any():
            return cutoff
        if (chunk.z.reshape(-1, len(z)) != z).any():
            return cutoff
        pairs = np.triu_indices(len(z), k=1) if pairs is None else pairs
        positions = chunk.positions.reshape(-1, len(z), 3)
        distance = np.linalg.norm(positions[:, pairs[0]] - positions[:, pairs[1]], axis=2)  # (B, pairs)
        within, listed = within + int((distance < cutoff).sum()), listed + distance.size
        if distance.max(initial=0.0) > largest:
            largest = float(distance.max())
            farthest = Structure(z, positions[distance.max(1).argmax()])
    radius = 1.001 * largest
    if farthest is None or radius <= cutoff or within < SHARED * listed or not unaffected(network, farthest, radius):
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
    """Batches of a dataset by frame numbers, with pair lists kept between epochs.

    ``batcher([3, 1, 4])`` is the batch of these frames. Pair lists stay in memory up to ``memory``
    bytes; frames whose lists are equal share them, so that a small molecule with all its atoms inside the cutoff costs
    nothing but the copy of its positions. With a ``scale`` labels are in its unit. ``labels`` are those that every
    batch has (default: those that its frames have); ``weights`` are by ``config_type`` and make the batch hold one for
    each frame.
    """

    def __init__(
        self,
        dataset: Sequence[Structure],
        cutoff: float,
        dtype: torch.dtype = torch.float32,
        memory: int = MEMORY,
        scale: LabelScale | None = None,
        labels: Iterable[str] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        self.dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
        self.dtype, self.scale, self.weights = dtype, scale, weights
        self.labels = None if labels is None else tuple(labels)
        self.pairs = PairCache(cutoff, memory)

    def __call__(self, frames: Iterable[int]) -> AtomsBatch:
        entries = np.fromiter(frames, np.int64)
        if len(entries) == 0:
            raise InputError("cannot make a batch of no structures: the split or selection is empty")
        arrays = self.dataset.arrays(entries)
        lists = [self._pairs(int(entry), arrays, place) for place, entry in enumerate(entries)]
        batch = assemble(scaled(arrays, self.scale) if self.scale else arrays, lists, self.dtype, self.labels)
        if self.weights is None:
            return batch
        groups = [self.weights.get(group, 1.0) for group in self.dataset.groups(entries)]
        return replace(batch, weight=torch.from_numpy(arrays.weight * np.array(groups)).to(self.dtype))

    def _pairs(self, entry: int, arrays: FrameArrays, place: int) -> Pairs:
        def compute() -> Pairs:
            positions, cell, pbc = arrays.frame(place)
            with error_context(self.dataset.where(entry)):
                return half_pairs(positions, self.pairs.cutoff, cell, pbc)

        return self.pairs.get(entry, compute)


def pair_counts(dataset: Dataset, cutoff: float) -> np.ndarray:
    """(M,) pairs within the cutoff of every entry."""
    counts = np.zeros(len(dataset), np.int64)
    for begin in range(0, len(dataset), 1000):
        arrays = dataset.arrays(range(begin, min(begin + 1000, len(dataset))))
        for number in range(len(arrays)):
            positions, cell, pbc = arrays.frame(number)
            counts[begin + number] = len(half_pairs(positions, cutoff, cell, pbc))
    return counts


def scaled(frames: FrameArrays, scale: LabelScale) -> FrameArrays:
    """The frames with labels in the unit of the scale, still in float64."""
    return replace(
        frames,
        energy=scale.scale_energy(frames.energy, frames.z, frames.system),
        forces=scale.scale_forces(frames.forces),
        stress=scale.scale_stress(frames.stress),
    )


import dcnn.atoms.audit_sample  # noqa: E402, F401  (dcnn.audit takes batches; at the end, since it imports `batch`)
