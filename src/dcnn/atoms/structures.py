"""One frame of atoms: :class:`Structure`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

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
