"""Several frames as flat arrays: what batches, label scales and errors are made of, without a Python object a frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units

LABELS = ("energy", "forces", "stress")
WEIGHT, GROUP = "config_weight", "config_type"  # entries of a frame, as QUIP and MACE name them


@dataclass(frozen=True)
class FrameArrays:
    """B frames of N atoms in all; a label that a frame lacks is NaN, the cell of a frame without one is zero."""

    counts: np.ndarray  # (B,) atoms of a frame
    z: np.ndarray  # (N,)
    positions: np.ndarray  # (N, 3)
    cell: np.ndarray  # (B, 3, 3)
    pbc: np.ndarray  # (B, 3) bool
    energy: np.ndarray  # (B,)
    forces: np.ndarray  # (N, 3)
    stress: np.ndarray  # (B, 3, 3)
    weight: np.ndarray  # (B,)

    @classmethod
    def of(cls, frames: Sequence[Structure]) -> FrameArrays:
        def each(values: Iterable[Any], blank: Any) -> np.ndarray:
            return np.stack([blank if value is None else value for value in values])

        nan, zero = np.full((3, 3), np.nan), np.zeros((3, 3))
        return cls(
            counts=np.array([len(f.z) for f in frames]),
            z=np.concatenate([f.z for f in frames]),
            positions=np.concatenate([f.positions for f in frames]),
            cell=each((f.cell for f in frames), zero),
            pbc=np.stack([np.asarray(f.pbc) for f in frames]),
            energy=np.array([np.nan if f.energy is None else f.energy for f in frames]),
            forces=np.concatenate([np.full((len(f.z), 3), np.nan) if f.forces is None else f.forces for f in frames]),
            stress=each((f.stress for f in frames), nan),
            weight=np.array([float(f.info.get(WEIGHT, 1.0)) for f in frames]),
        )

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def system(self) -> np.ndarray:
        """(N,) the frame of an atom."""
        return np.repeat(np.arange(len(self)), self.counts)

    def known(self, label: str) -> np.ndarray:
        """(B,) whether a frame has this label."""
        if label == "forces":
            return ~np.isnan(self.forces[np.cumsum(self.counts) - 1, 0])
        return ~np.isnan(getattr(self, label)) if label == "energy" else ~np.isnan(self.stress[:, 0, 0])

    def compositions(self, elements: np.ndarray) -> np.ndarray:
        """(B, Z) how many atoms of each of these elements (sorted) a frame has."""
        place = np.searchsorted(elements, self.z)
        flat = np.bincount(self.system * len(elements) + place, minlength=len(self) * len(elements))
        return flat.reshape(len(self), len(elements)).astype(np.float64)

    def to_units(self, stored: Units, units: Units, force_sign: int = 1) -> FrameArrays:
        if stored == units and force_sign == 1:
            return self
        length = stored.length_factor(units)
        return replace(
            self,
            positions=self.positions * length,
            cell=self.cell * length,
            energy=self.energy * stored.energy_factor(units),
            forces=self.forces * (force_sign * stored.force_factor(units)),
            stress=self.stress * stored.stress_factor(units),
        )

    def frame(self, number: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Positions, cell (None without one) and periodicity of one frame."""
        end = int(self.counts[: number + 1].sum())
        cell = self.cell[number]
        return self.positions[end - int(self.counts[number]) : end], cell if cell.any() else None, self.pbc[number]
