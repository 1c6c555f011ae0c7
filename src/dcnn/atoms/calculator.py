"""The ASE calculator of a trained potential: molecular dynamics, geometry optimisation, phonons and the rest of ASE."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ase.calculators.calculator import Calculator as AseCalculator
from ase.calculators.calculator import all_changes
from ase.stress import full_3x3_to_voigt_6_stress

from dcnn.atoms.potential import Potential
from dcnn.atoms.skin import SkinList, all_pairs_radius
from dcnn.atoms.structures import Structure
from dcnn.atoms.trained_range import OutsideRangeError
from dcnn.errors import unknown

OUTSIDE = ("stop", "warn", "ignore")


class Calculator(AseCalculator):
    """``atoms.calc = Calculator("RUN")``: energy (eV), forces (eV/Å) and, for crystals, stress (eV/Å³).

    potential: a run folder, a checkpoint, a :class:`Potential`, or several runs: a committee, whose mean is taken and
    whose disagreement stands in ``results["energy_std"]`` (eV) and ``results["forces_std"]`` (N,) (eV/Å). skin (Å):
    pairs are searched for with this margin, and again only when an atom has moved by more than half of it. dtype: of
    the network, for a run or a checkpoint;
    float64 makes optimisers converge and energies drift less, float32 is faster for large systems. Structures that
    are periodic in all three directions have a stress. Elements that were not trained on are refused. compiled: a
    molecule whose evaluations have taken as long as compiling does is evaluated by compiled code from then on.
    outside: what happens where a structure leaves the range that the run was trained on: "stop" (an
    :class:`~dcnn.atoms.trained_range.OutsideRangeError` with the atoms), "warn" (once) or "ignore".
    """

    implemented_properties = ["energy", "free_energy", "forces", "stress"]  # noqa: RUF012 (ASE declares it so)

    def __init__(
        self,
        potential: str | Path | Potential | Sequence[str | Path],
        skin: float = 1.0,
        dtype: torch.dtype | str = torch.float64,
        device: torch.device | str = "cpu",
        compiled: bool = True,
        outside: str = "stop",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if not isinstance(potential, Potential):
            potential = Potential.load(potential, device, dtype)
        if outside not in OUTSIDE:
            raise unknown("value of outside", outside, OUTSIDE)
        self.potential, self.outside = potential, outside
        self.pairs = SkinList(potential.cutoff, skin, potential.device, potential.dtype)
        self.compiled = compiled
        if compiled:
            potential.compile_if_repeated()

    def check_state(self, atoms: Any, tol: float = 0.0) -> list[str]:
        """What has changed at all of what a network depends on; ASE's own comparison takes longer than the network."""
        if self.atoms is None:
            return list(all_changes)
        then = self.atoms
        pairs = {name: (getattr(atoms, name), getattr(then, name)) for name in ("positions", "numbers", "pbc")}
        pairs["cell"] = atoms.cell.array, then.cell.array
        return [name for name, (a, b) in pairs.items() if a.shape != b.shape or (a != b).any()]

    def calculate(
        self, atoms: Any = None, properties: Sequence[str] = ("energy",), system_changes: Sequence[str] = all_changes
    ) -> None:
        """Fills ``results`` for ``atoms``; ASE calls it when something has changed."""
        super().calculate(atoms, properties, system_changes)
        atoms = self.atoms
        if "numbers" in system_changes:
            self.potential.require_elements(atoms.numbers)
        cell = atoms.cell.array.copy() if atoms.pbc.any() else None
        structure = Structure(atoms.numbers, atoms.positions, cell, atoms.pbc)
        if self.compiled and {"numbers", "pbc"} & set(system_changes):
            self.pairs.cutoff = (
                self.potential.cutoff if cell is not None else all_pairs_radius(self.potential.network, structure)
            )
        prediction = self.potential(self.pairs(structure), stress=bool(np.all(atoms.pbc)))
        energy = float(prediction.energy)
        self.results = {"energy": energy, "free_energy": energy, "forces": prediction.forces.cpu().numpy()}
        if prediction.stress is not None:
            self.results["stress"] = full_3x3_to_voigt_6_stress(prediction.stress[0].cpu().numpy())
        if prediction.forces_std is not None and prediction.energy_std is not None:
            self.results["energy_std"] = float(prediction.energy_std)
            self.results["forces_std"] = prediction.forces_std.cpu().numpy()
        if self.outside != "ignore":
            self._stay_inside(structure)

    def _stay_inside(self, structure: Structure) -> None:
        results = self.results
        found = self.potential.outside(structure, results["energy"], results["forces"], self.pairs.listed())
        if not found:
            return
        message = f"outside of what the potential was trained on: {'; '.join(found)}"
        if self.outside == "warn":
            warnings.warn(message, stacklevel=4)
            self.outside = "ignore"  # once is enough
            return
        error = OutsideRangeError(
            f"{message}. Train on frames like these, or go on with outside='warn' (--outside warn)"
        )
        error.atoms = self.atoms
        raise error
