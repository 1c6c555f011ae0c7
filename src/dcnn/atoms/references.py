"""Reference energies: what :class:`dcnn.LabelScale` removes from the energy of a frame before it divides by C.

They depend on the composition alone, so forces and stress do not see them. ``dcnn.LabelScale.fit`` comes here when it
is given frames of atoms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from ase.data import chemical_symbols
from torch import Tensor

from dcnn.errors import InputError, unknown
from dcnn.scaling import LabelScale, Unit, check_finite, flatten, some, to_array

References = Literal["elements", "mean"]


def fit(dataset: Iterable[Any], references: References | None, unit: Unit | float) -> LabelScale:
    """The scale of frames with ``z``, ``energy``, ``forces`` and maybe ``stress``; a label may be None."""
    if references is not None and references not in get_args(References):
        raise unknown("references", references, get_args(References))
    labels = _Labels.collect(dataset)
    fitted = None if references is None else _fit_references(labels, references)
    if not isinstance(unit, str):
        return LabelScale(float(unit), fitted)
    residual = labels.energies - _reference_energies(fitted, labels.compositions, labels.with_energy)
    if unit == "force_rms":
        return LabelScale(_force_rms(labels, residual), fitted)
    unfitted = LabelScale.power_of_ten(residual, flatten(labels.forces), flatten(labels.stress))
    return LabelScale(unfitted.constant, fitted)


def describe(scale: LabelScale, dataset: Iterable[Any]) -> str:
    """A table of label ranges and of their float32 resolution, with and without references."""
    labels = _Labels.collect(dataset)
    units = getattr(dataset, "units", None)
    energy_unit, force_unit = (units.energy, f"{units.energy}/{units.length}") if units else ("", "")
    rows = [("energy", energy_unit, labels.energies)]
    if scale.references is not None:
        reference = _reference_energies(scale.references, labels.compositions, labels.with_energy)
        rows.append(("energy − references", energy_unit, labels.energies - reference))
    rows.append(("forces", force_unit, flatten(labels.forces)))
    rows.append(("stress", force_unit and f"{force_unit}³", flatten(labels.stress)))
    header = ("label", "min", "max", "std", "float32 step", "step after / C")
    lines = ["{:<32} {:>13} {:>13} {:>9} {:>13} {:>15}".format(*header)]
    for name, unit, values in rows:
        if values.size:
            title = f"{name} [{unit}]" if unit else name
            raw, scaled = _float32_step(values), _float32_step(values / scale.constant) * scale.constant
            line = f"{title:<32} {values.min():>13.4f} {values.max():>13.4f} {values.std():>9.4g}"
            lines.append(f"{line} {raw:>13.2g} {scaled:>15.2g}")
    return "\n".join([*lines, f"C = {scale.constant:.6g}; {_described(scale.references)}"])


def _described(references: dict[int, float] | float | None) -> str:
    if references is None:
        return "no reference energies"
    if isinstance(references, dict):
        energies = ", ".join(f"{_symbol(z)} {energy:.4f}" for z, energy in references.items())
        return f"reference energies per atom: {energies}"
    return f"reference energy {references:.4f} per atom"


def reference_energy(references: dict[int, float] | float, energy: Any, z: Any, system: Any) -> Any:
    """The energy to remove from each system, of the kind and on the device of ``energy``."""
    per_atom = _per_atom(references, _integers(z))  # (N,)
    if system is None:
        return float(per_atom.sum())
    shape = np.shape(energy)
    n_systems = math.prod(shape)
    reference = np.bincount(_integers(system), weights=per_atom, minlength=n_systems)  # (B,)
    if len(reference) != n_systems:
        raise InputError(f"system counts {len(reference)} systems, but there are {n_systems} energies")
    reference = reference.reshape(shape)
    return torch.from_numpy(reference).to(energy.device) if isinstance(energy, Tensor) else reference


@dataclass(frozen=True)
class _Labels:
    """The labels of a data set, gathered in one pass; forces and stress by the number of their frame."""

    compositions: list[dict[int, int]]
    energies: np.ndarray
    with_energy: list[int]
    forces: dict[int, np.ndarray]
    stress: dict[int, np.ndarray]

    @classmethod
    def collect(cls, dataset: Iterable[Any]) -> _Labels:
        compositions: list[dict[int, int]] = []
        by_name: dict[str, dict[int, np.ndarray]] = {"energy": {}, "forces": {}, "stress": {}}
        for number, frame in enumerate(dataset):
            elements, counts = np.unique(_integers(frame.z), return_counts=True)
            compositions.append(dict(zip(elements.tolist(), counts.tolist(), strict=True)))
            for name, found in by_name.items():
                label = getattr(frame, name, None)
                if label is not None:
                    found[number] = to_array(label)
            forces = by_name["forces"].get(number)
            if forces is not None and forces.shape != (n := counts.sum(), 3):
                raise InputError(f"frame {number} has {n} atoms but forces of shape {forces.shape}")
        if not compositions:
            raise InputError("the data set has no frames, so there is nothing to fit a label scale to")
        for name, found in by_name.items():
            check_finite(f"{name} in frames {{}}", found.items())
        energies = np.array([float(e) for e in by_name["energy"].values()])
        return cls(compositions, energies, list(by_name["energy"]), by_name["forces"], by_name["stress"])


def _fit_references(labels: _Labels, kind: References) -> dict[int, float] | float:
    missing = sorted(set(range(len(labels.compositions))) - set(labels.with_energy))
    if missing:
        raise InputError(f"no energy in frames {some(missing)}: drop them or use references=None")
    if kind == "mean":
        return float(labels.energies.sum() / sum(sum(c.values()) for c in labels.compositions))
    elements = sorted({z for composition in labels.compositions for z in composition})
    counts = np.array([[float(c.get(z, 0)) for z in elements] for c in labels.compositions])  # (frames, Z)
    solution = np.linalg.lstsq(counts, labels.energies, rcond=None)[0]
    # One step of refinement: energies are 10⁵ times their spread, so the first residual carries rounding.
    solution += np.linalg.lstsq(counts, labels.energies - counts @ solution, rcond=None)[0]
    return dict(zip(elements, solution.tolist(), strict=True))


def _force_rms(labels: _Labels, residual: np.ndarray) -> float:
    forces = flatten(labels.forces)
    if not forces.size:
        spread = f", for example {residual.std():.4g}, the spread of these energies" if residual.size else ""
        raise InputError(
            f"unit='force_rms' needs forces, and none of the {len(labels.compositions)} frames has any: "
            f"use unit='power_of_ten' or a number{spread}"
        )
    if not forces.any():
        raise InputError("unit='force_rms' needs forces that are not all zero: give unit a number instead")
    return float(np.sqrt(np.mean(forces**2)))


def _reference_energies(
    references: dict[int, float] | float | None, compositions: list[dict[int, int]], frames: list[int]
) -> np.ndarray:
    """Σ_atoms reference of each of the given frames."""
    if references is None:
        return np.zeros(len(frames))
    table = {z: _per_atom(references, np.array([z]))[0] for z in set().union(*compositions)}
    return np.array([sum(n * table[z] for z, n in compositions[frame].items()) for frame in frames])


def _per_atom(references: dict[int, float] | float, z: np.ndarray) -> np.ndarray:
    """The reference energy of each atom (N,)."""
    if not isinstance(references, dict):
        return np.full(len(z), references, dtype=np.float64)
    elements, where = np.unique(z, return_inverse=True)
    absent = [_symbol(element) for element in elements.tolist() if element not in references]
    if absent:
        raise InputError(
            f"no reference energy for {', '.join(absent)}: the scale was fitted on frames with "
            f"{', '.join(map(_symbol, references))} only; fit it on data that holds every element"
        )
    return np.array([references[element] for element in elements.tolist()], dtype=np.float64)[where]


def _float32_step(values: np.ndarray) -> float:
    return float(np.spacing(np.float32(np.abs(values).max())))


def _integers(z: Any) -> np.ndarray:
    return np.asarray(z.detach().cpu() if isinstance(z, Tensor) else z, dtype=np.int64)


def _symbol(z: int) -> str:
    return chemical_symbols[z] if 0 < z < len(chemical_symbols) else f"Z={z}"
