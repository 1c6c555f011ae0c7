"""Pairs along a trajectory: searched for with a margin, and again only when an atom has used half of it up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.batching import LARGEST, SHARED, collate, unaffected
from dcnn.atoms.environments import REACH_A
from dcnn.atoms.neighbours import Pairs, half_pairs
from dcnn.atoms.structures import Structure
from dcnn.errors import InputError

EVERYWHERE = 1e3  # Å, farther than the atoms of a small molecule are ever apart


def all_pairs_radius(network: nn.Module, structure: Structure) -> float:
    """How far to list pairs of a molecule: all of them if it is small and that changes nothing, so that there is one
    shape for all its steps, or else up to the network's cutoff.
    """
    cutoff = float(network.cutoff)  # type: ignore[arg-type]
    if not 1 < len(structure.z) <= LARGEST:
        return cutoff
    i, j = np.triu_indices(len(structure.z), k=1)
    distance = np.linalg.norm(structure.positions[i] - structure.positions[j], axis=1)
    if (distance < cutoff).mean() < SHARED:
        return cutoff
    return EVERYWHERE if unaffected(network, structure, max(2 * cutoff, 2 * float(distance.max()))) else cutoff


class SkinList:
    """Batches of one structure that moves, with pairs |r| < cutoff.

    A search lists the pairs up to cutoff + skin. As long as no atom has moved by more than skin/2 since, nothing
    nearer than the cutoff can be missing from the list, so that it is only filtered by distance. Where the filter
    lets the same pairs through as before, all index tensors of the last batch are used again. ``searches`` and
    ``changes`` count how often a search was made and how often the indices changed.
    """

    def __init__(self, cutoff: float, skin: float, device: torch.device, dtype: torch.dtype) -> None:
        if skin < 0:
            raise InputError(f"the skin is {skin} Å; it is a distance, 0 or more")
        self.cutoff, self.skin, self.device, self.dtype = cutoff, skin, device, dtype
        self.searches = self.changes = 0
        self._searched: Structure | None = None
        self._wide: Pairs
        self._near: np.ndarray | None = None
        self._batch: AtomsBatch
        self._squares: np.ndarray  # (P,) of the distances in the wide list

    def __call__(self, structure: Structure) -> AtomsBatch:
        """The batch of the structure where it is now."""
        if not np.isfinite(structure.positions).all():
            raise InputError(f"the position of atom {int(np.argwhere(~np.isfinite(structure.positions))[0, 0])} is NaN")
        if self._outdated(structure):
            self._wide = half_pairs(structure.positions, self.cutoff + self.skin, structure.cell, structure.pbc)
            self._searched, self._near = structure, None
            self.searches += 1
        near = self._within_cutoff(structure)  # (P,)
        if self._near is not None and np.array_equal(near, self._near):
            positions = torch.from_numpy(structure.positions).to(self.device, self.dtype)
            return replace(self._batch, positions=positions)
        wide, self._near = self._wide, near
        shift = None if wide.shift is None else wide.shift[near]
        pairs = Pairs(wide.n_atoms, self.cutoff, wide.i[near], wide.j[near], shift)
        self._batch = collate([structure], [pairs], self.dtype).to(self.device)
        self.changes += 1
        return self._batch

    def listed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """i, j and distance of every pair of the last structure; None if the list is shorter than 5 Å."""
        if self.cutoff + 0.5 * self.skin < REACH_A:
            return None
        return self._wide.i, self._wide.j, np.sqrt(self._squares)

    def _outdated(self, now: Structure) -> bool:
        then = self._searched
        if then is None or not np.array_equal(now.z, then.z) or not np.array_equal(now.pbc, then.pbc):  # type: ignore[arg-type]
            return True
        if (now.cell is None) != (then.cell is None):
            return True
        if now.cell is not None and not np.array_equal(now.cell, then.cell):  # type: ignore[arg-type]
            return True
        return bool(np.square(now.positions - then.positions).sum(1).max() > (0.5 * self.skin) ** 2)

    def _within_cutoff(self, structure: Structure) -> np.ndarray:
        vectors = structure.positions[self._wide.j] - structure.positions[self._wide.i]  # (P, 3)
        if self._wide.shift is not None:
            assert structure.cell is not None
            vectors = vectors + self._wide.shift @ structure.cell
        self._squares = np.einsum("pa,pa->p", vectors, vectors)
        return self._squares < self.cutoff**2
