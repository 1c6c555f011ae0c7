"""Is the stress dE/dε / V? What the forces leave of E₂ − E₁ against V σ:ε between frames of slightly other cells."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dcnn.atoms.data.consistency import ENOUGH, SAMPLE
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError

STRAIN = (1e-4, 0.06)  # of cells that are compared
_UNITS = {"GPa": 160.21766, "kbar": 1602.1766, "MPa": 160217.66, "eV (a virial)": 1.0}  # in one eV/Å³


def check_stress(dataset: Dataset) -> float | None:
    """ΔE per work of the stress (1 if all is well), None where too few frames allow it; wrong ones are refused.

    Neighbours in the file are compared if they hold the same atoms in cells that differ by a small strain.
    """
    frames = [dataset[number] for number in range(min(len(dataset), SAMPLE))]
    rows = [row for a, b in pairwise(frames) if (row := _compare(a, b)) is not None]
    if len(rows) < ENOUGH:
        return None
    energy, work, volume = np.array(rows).T
    if not work.any() or not energy.any():
        return None
    correlation = float(energy @ work / np.sqrt((energy @ energy) * (work @ work)))
    slope = float(energy @ work / (work @ work))
    if abs(correlation) < 0.8:
        return slope
    in_file = dataset.units.stress_factor(Units())
    sizes = {name: 1 / (number * in_file) for name, number in _UNITS.items() if name != "eV (a virial)"}
    sizes["eV (a virial)"] = 1 / (float(np.median(volume)))
    unit = next((name for name, size in sizes.items() if abs(abs(slope) / size - 1) < 0.25), "")
    if correlation > 0 and not unit:
        return slope
    is_virial = unit == "eV (a virial)"
    what = "a virial" if is_virial else f"in {unit}" if unit else "of the opposite sign"
    fix = "Name it with virial_key" if is_virial else f"Convert it to dE/dε / V in {dataset.units.energy}/length³"
    raise InputError(
        f"{dataset.source}: the stress is {what}: over {len(rows)} pairs of frames energies change by {slope:.3g} "
        f"times its work (correlation {correlation:.2f}). {fix}"
    )


def _compare(a: Structure, b: Structure) -> tuple[float, float, float] | None:
    """(E_b − E_a without the work of the forces, V σ:ε, V) of two frames, if they can be compared."""
    if a.cell is None or b.cell is None or a.stress is None or b.stress is None or not np.array_equal(a.z, b.z):
        return None
    if a.forces is None or b.forces is None or a.energy is None or b.energy is None or not np.all(a.pbc):
        return None
    volume = abs(float(np.linalg.det(a.cell)))
    if volume < 1e-6:
        return None
    strain = np.linalg.solve(a.cell, b.cell) - np.eye(3)  # cell_b = cell_a (1 + ε)
    if not STRAIN[0] < np.abs(strain).max() < STRAIN[1]:
        return None
    scaled = b.positions @ np.linalg.inv(b.cell) - a.positions @ np.linalg.inv(a.cell)
    moved = (scaled - np.rint(scaled)) @ (0.5 * (a.cell + b.cell))
    if np.abs(moved).max() > 0.3:
        return None
    by_forces = -0.5 * float(((a.forces + b.forces) * moved).sum())
    volume_b = abs(float(np.linalg.det(b.cell)))
    work = 0.5 * float(((volume * a.stress + volume_b * b.stress) * strain).sum())
    return b.energy - a.energy - by_forces, work, volume
