"""One frame of atoms: :class:`Structure`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dcnn.atoms.units import Units
from dcnn.errors import InputError


@dataclass(frozen=True, eq=False)
class Structure:
    """One frame: atomic numbers, positions, cell and, if known, the total energy, forces and stress.

    The arrays are numpy (``z`` int64, the rest float64) in ``units``; ``cell`` has the lattice vectors as rows,
    ``stress`` is the symmetric 3×3 matrix (energy / length³, positive under tension, as in ASE). ``info`` keeps
    what else the file said, also the ``momenta`` and ``constraints`` of ``ase.Atoms``.
    """

    z: np.ndarray
    positions: np.ndarray
    cell: np.ndarray | None = None
    pbc: np.ndarray | None = None
    energy: float | None = None
    forces: np.ndarray | None = None
    stress: np.ndarray | None = None
    info: dict[str, Any] = field(default_factory=dict)
    units: Units = Units()  # noqa: RUF009 (frozen)

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
        """A copy of an ``ase.Atoms`` (eV, Å) with the labels its calculator holds for the atoms as they are now."""
        results = dict(getattr(atoms.calc, "results", None) or {})
        if results and _moved_since(atoms, getattr(atoms.calc, "atoms", None)):
            results = {}  # of an earlier geometry
        info = dict(atoms.info)
        if atoms.has("momenta"):
            info["momenta"] = atoms.get_momenta()
        if atoms.constraints:
            info["constraints"] = [constraint.todict() for constraint in atoms.constraints]
        forces = results.get("forces")
        return cls(
            z=atoms.numbers.copy(),
            positions=atoms.positions.copy(),
            cell=atoms.cell.array.copy() if atoms.pbc.any() else None,
            pbc=atoms.pbc.copy(),
            energy=float(results["energy"]) if results.get("energy") is not None else None,
            forces=None if forces is None else np.array(forces),
            stress=None if results.get("stress") is None else full_stress(results["stress"]),
            info=info,
        )

    def to_units(self, units: Units, force_sign: int = 1) -> Structure:
        """The same frame in other units."""
        length = self.units.length_factor(units)
        force = force_sign * self.units.force_factor(units)
        stress = self.units.stress_factor(units)
        return replace(
            self,
            positions=self.positions * length,
            cell=None if self.cell is None else self.cell * length,
            energy=None if self.energy is None else self.energy * self.units.energy_factor(units),
            forces=None if self.forces is None else self.forces * force,
            stress=None if self.stress is None else self.stress * stress,
            units=units,
        )

    def to_ase(self) -> Any:
        """An ``ase.Atoms`` in eV and Å with the labels in a single-point calculator, momenta and constraints."""
        from ase import Atoms
        from ase.calculators.singlepoint import SinglePointCalculator
        from ase.constraints import dict2constraint

        frame = self if self.units == Units() else self.to_units(Units())
        info = dict(frame.info)
        momenta, constraints = info.pop("momenta", None), info.pop("constraints", ())
        atoms = Atoms(frame.z, frame.positions, cell=frame.cell, pbc=frame.pbc, info=info, momenta=momenta)
        atoms.set_constraint([dict2constraint(constraint) for constraint in constraints])
        labels: dict[str, Any] = {"energy": frame.energy, "forces": frame.forces}
        if frame.stress is not None:
            labels["stress"] = frame.stress[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]
        labels = {name: value for name, value in labels.items() if value is not None}
        if labels:
            atoms.calc = SinglePointCalculator(atoms, **labels)
        return atoms


def full_stress(values: Any) -> np.ndarray:
    """The symmetric 3×3 matrix of 6 numbers in Voigt order (xx yy zz yz xz xy), or of 9.

    >>> full_stress([1, 2, 3, 0.1, 0.2, 0.3])[0]
    array([1. , 0.3, 0.2])
    """
    given = np.asarray(values, np.float64)
    if given.size == 6:
        return given.reshape(6)[[[0, 5, 4], [5, 1, 3], [4, 3, 2]]]
    if given.size != 9:
        raise InputError(f"stress has shape {given.shape}, expected (3, 3) or xx yy zz yz xz xy")
    full = given.reshape(3, 3)
    if np.abs(full - full.T).max() > 1e-3 * np.abs(full).max() + 1e-6:
        raise InputError(f"stress is not symmetric: {full.tolist()}")
    return 0.5 * (full + full.T)


def _moved_since(atoms: Any, labelled: Any) -> bool:
    """Whether atoms are no longer those that their calculator computed; quicker than ASE's own comparison."""
    if labelled is None:
        return False
    same = atoms.arrays.keys() == labelled.arrays.keys() and all(
        np.array_equal(values, labelled.arrays[name]) for name, values in atoms.arrays.items()
    )
    same = same and np.array_equal(atoms.cell.array, labelled.cell.array) and np.array_equal(atoms.pbc, labelled.pbc)
    return not same and bool(atoms.calc.check_state(atoms))
