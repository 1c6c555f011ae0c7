"""Label scales: reference energies removed in float64, then one common unit for energy, forces and stress."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
import torch
from ase.data import chemical_symbols
from torch import Tensor

from dcnn.errors import InputError, unknown

Labels = TypeVar("Labels", np.ndarray, Tensor, float)
References = Literal["elements", "mean"]
Unit = Literal["force_rms", "power_of_ten"]


@dataclass(frozen=True)
class LabelScale:
    """E → (E − Σ references) / C,  F → F / C,  stress → stress / C.

    The references depend on the composition alone and all labels share C, so F = −∂E/∂x still holds after
    scaling. ``references`` is a dictionary {Z: energy per atom of that element}, one number (the energy per
    atom, whatever the element) or None. Everything is computed in float64; the caller casts the result.

    >>> scale = LabelScale(10.0, references={1: -13.0, 8: -430.0})
    >>> scale.scale_energy(-466.0, z=[8, 1, 1])
    -1.0
    >>> scale.unscale_energy(-1.0, z=[8, 1, 1])
    -466.0
    """

    constant: float
    references: dict[int, float] | float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.constant) and self.constant > 0):
            raise InputError(f"a label scale needs a positive finite constant, not {self.constant!r}")

    @classmethod
    def power_of_ten(cls, *labels: Any) -> LabelScale:
        """The paper's C: the smallest power of ten with |label| / C ≤ 1 over all labels (arrays or numbers).

        >>> LabelScale.power_of_ten([-406737.5, -406752.4], [[150.2, -29.0, 3.0]]).constant
        1000000.0
        """
        arrays = [np.atleast_1d(_array(label)) for label in labels]
        if not any(array.size for array in arrays):
            raise InputError("LabelScale.power_of_ten needs at least one label")
        for position, array in enumerate(arrays, start=1):
            _check_finite("label in rows {} of array " + str(position), enumerate(array))
        return cls(_power_of_ten(max(np.abs(array).max() for array in arrays if array.size)))

    @classmethod
    def fit(
        cls,
        dataset: Iterable[Any],
        references: References | None = "elements",
        unit: Unit | float = "force_rms",
    ) -> LabelScale:
        """The scale of a data set: reference energies first, then the unit of what is left.

        dataset: frames with ``z``, ``energy``, ``forces`` and maybe ``stress``; a label may be None.
        references: "elements" solves min_e Σ_frames (E − Σ_atoms e[z])² in float64 (the solution of minimum
        norm where compositions do not determine it, as with a single molecule); "mean" takes ΣE / Σn, one
        energy per atom, which for a single composition removes the mean energy of the frames; None removes
        nothing.
        unit: "force_rms" is the root mean square force component, "power_of_ten" the paper's C of the labels
        after the references are removed, or a number.
        """
        if references is not None and references not in get_args(References):
            raise unknown("references", references, get_args(References))
        if isinstance(unit, str) and unit not in get_args(Unit):
            raise unknown("unit", unit, get_args(Unit))
        labels = _Labels.collect(dataset)
        fitted = None if references is None else _fit_references(labels, references)
        if not isinstance(unit, str):
            return cls(float(unit), fitted)
        residual = labels.energies - _reference_energies(fitted, labels.compositions, labels.with_energy)
        if unit == "force_rms":
            return cls(_force_rms(labels, residual), fitted)
        unfitted = cls.power_of_ten(residual, _flatten(labels.forces), _flatten(labels.stress))
        return cls(unfitted.constant, fitted)

    def scale_energy(self, energy: Labels, z: Any, system: Any = None) -> Labels:
        """(E − Σ references) / C in float64.

        energy: one number or (B,). z: the atoms of all systems (N,) with ``system`` (N,) saying which system
        an atom belongs to, or without ``system`` the atoms of the one molecule that every energy is of.
        """
        energy = _float64(energy)
        return cast(Labels, (energy - self._reference(energy, z, system)) / self.constant)

    def unscale_energy(self, energy: Labels, z: Any, system: Any = None) -> Labels:
        """The inverse of :meth:`scale_energy`: E·C + Σ references in float64."""
        energy = _float64(energy)
        return cast(Labels, energy * self.constant + self._reference(energy, z, system))

    def scale_forces(self, forces: Labels) -> Labels:
        """F / C in float64."""
        return cast(Labels, _float64(forces) / self.constant)

    def unscale_forces(self, forces: Labels) -> Labels:
        """F·C in float64."""
        return cast(Labels, _float64(forces) * self.constant)

    def scale_stress(self, stress: Labels) -> Labels:
        """stress / C in float64: stress is an energy by a volume, so it shares the unit of the energy."""
        return self.scale_forces(stress)

    def unscale_stress(self, stress: Labels) -> Labels:
        """stress·C in float64."""
        return self.unscale_forces(stress)

    def to_dict(self) -> dict[str, Any]:
        """A dictionary that JSON and YAML keep exactly (element keys become strings)."""
        references: Any = self.references
        if isinstance(references, dict):
            references = {str(z): float(energy) for z, energy in references.items()}
        return {"constant": float(self.constant), "references": references}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LabelScale:
        """The scale that :meth:`to_dict` wrote."""
        if set(data) != {"constant", "references"}:
            raise InputError(f"a label scale has the fields constant and references, not {sorted(data)}")
        references = data["references"]
        if isinstance(references, Mapping):
            references = {int(z): float(energy) for z, energy in references.items()}
        return cls(float(data["constant"]), references)

    def describe(self, dataset: Iterable[Any]) -> str:
        """A table of label ranges and of their float32 resolution, with and without references.

        All numbers are in label units. "float32 step" is the spacing of float32 at the largest label, "step
        after / C" that of the label divided by C, multiplied back: dividing gains nothing, references do.
        """
        labels = _Labels.collect(dataset)
        units = getattr(dataset, "units", None)
        energy_unit, force_unit = (units.energy, f"{units.energy}/{units.length}") if units else ("", "")
        rows = [("energy", energy_unit, labels.energies)]
        if self.references is not None:
            reference = _reference_energies(self.references, labels.compositions, labels.with_energy)
            rows.append(("energy − references", energy_unit, labels.energies - reference))
        rows.append(("forces", force_unit, _flatten(labels.forces)))
        rows.append(("stress", force_unit and f"{force_unit}³", _flatten(labels.stress)))
        header = ("label", "min", "max", "std", "float32 step", "step after / C")
        lines = ["{:<32} {:>13} {:>13} {:>9} {:>13} {:>15}".format(*header)]
        for name, unit, values in rows:
            if values.size:
                title = f"{name} [{unit}]" if unit else name
                raw, scaled = _float32_step(values), _float32_step(values / self.constant) * self.constant
                line = f"{title:<32} {values.min():>13.4f} {values.max():>13.4f} {values.std():>9.4g}"
                lines.append(f"{line} {raw:>13.2g} {scaled:>15.2g}")
        return "\n".join([*lines, f"C = {self.constant:.6g}; {self._describe_references()}"])

    def _describe_references(self) -> str:
        if self.references is None:
            return "no reference energies"
        if isinstance(self.references, dict):
            energies = ", ".join(f"{_symbol(z)} {energy:.4f}" for z, energy in self.references.items())
            return f"reference energies per atom: {energies}"
        return f"reference energy {self.references:.4f} per atom"

    def _reference(self, energy: Any, z: Any, system: Any) -> Any:
        """The energy to remove from each system, of the kind and on the device of ``energy``."""
        if self.references is None:
            return 0.0
        per_atom = _per_atom(self.references, _integers(z))  # (N,)
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
                    found[number] = _array(label)
            forces = by_name["forces"].get(number)
            if forces is not None and forces.shape != (n := counts.sum(), 3):
                raise InputError(f"frame {number} has {n} atoms but forces of shape {forces.shape}")
        if not compositions:
            raise InputError("the data set has no frames, so there is nothing to fit a label scale to")
        for name, found in by_name.items():
            _check_finite(f"{name} in frames {{}}", found.items())
        energies = np.array([float(e) for e in by_name["energy"].values()])
        return cls(compositions, energies, list(by_name["energy"]), by_name["forces"], by_name["stress"])


def _fit_references(labels: _Labels, kind: References) -> dict[int, float] | float:
    missing = sorted(set(range(len(labels.compositions))) - set(labels.with_energy))
    if missing:
        raise InputError(f"no energy in frames {_some(missing)}: drop them or use references=None")
    if kind == "mean":
        return float(labels.energies.sum() / sum(sum(c.values()) for c in labels.compositions))
    elements = sorted({z for composition in labels.compositions for z in composition})
    counts = np.array([[float(c.get(z, 0)) for z in elements] for c in labels.compositions])  # (frames, Z)
    solution = np.linalg.lstsq(counts, labels.energies, rcond=None)[0]
    # One step of refinement: energies are 10⁵ times their spread, so the first residual carries rounding.
    solution += np.linalg.lstsq(counts, labels.energies - counts @ solution, rcond=None)[0]
    return dict(zip(elements, solution.tolist(), strict=True))


def _force_rms(labels: _Labels, residual: np.ndarray) -> float:
    forces = _flatten(labels.forces)
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


def _power_of_ten(largest: float) -> float:
    if largest == 0:
        return 1.0
    exponent = math.ceil(math.log10(largest))
    # The logarithm is rounded, so its neighbours are tried; "1e-5" is correctly rounded, 10.0**-5 may not be.
    powers = (float(f"1e{e}") for e in (exponent - 1, exponent, exponent + 1))
    return next(power for power in powers if power and largest / power <= 1)


def _float32_step(values: np.ndarray) -> float:
    return float(np.spacing(np.float32(np.abs(values).max())))


def _flatten(arrays: Mapping[int, np.ndarray]) -> np.ndarray:
    return np.concatenate([a.ravel() for a in arrays.values()]) if arrays else np.empty(0)


def _float64(label: Any) -> Any:
    """The label in float64, of its own kind: a tensor, an array or a number."""
    if isinstance(label, Tensor):
        return label.double()
    return float(label) if isinstance(label, int | float) else np.asarray(label, dtype=np.float64)


def _array(label: Any) -> np.ndarray:
    return np.asarray(label.detach().cpu() if isinstance(label, Tensor) else label, dtype=np.float64)


def _integers(z: Any) -> np.ndarray:
    return np.asarray(z.detach().cpu() if isinstance(z, Tensor) else z, dtype=np.int64)


def _check_finite(place: str, values: Iterable[tuple[int, Any]]) -> None:
    bad = [number for number, value in values if not np.isfinite(value).all()]
    if bad:
        raise InputError(f"NaN or infinite {place.format(_some(bad))}: correct or remove them")


def _some(numbers: list[int], shown: int = 5) -> str:
    text = ", ".join(map(str, numbers[:shown]))
    return f"{text} and {len(numbers) - shown} more" if len(numbers) > shown else text


def _symbol(z: int) -> str:
    return chemical_symbols[z] if 0 < z < len(chemical_symbols) else f"Z={z}"
