"""Label scales: an offset removed in float64, then one common unit for a value and all its derivatives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast, get_args

import numpy as np
import torch
from torch import Tensor

from dcnn.errors import InputError, unknown
from dcnn.lazy import OFFERED

Labels = TypeVar("Labels", np.ndarray, Tensor, float)
Unit = Literal["force_rms", "power_of_ten"]


def no_references() -> Any:
    """Where reference energies are fitted and added up; ``dcnn`` puts the module of ``dcnn.atoms`` here."""
    raise InputError("reference energies of atoms need dcnn[atoms]")


def frames_module() -> Any:
    """The module with ``fit``, ``describe`` and ``reference_energy`` for frames of atoms."""
    return OFFERED.get("references", no_references)()


@dataclass(frozen=True)
class LabelScale:
    """y → (y − offset) / C,  x → (x − centre) / unit,  and so ∂y/∂x → ∂y/∂x · unit / C.

    ``inputs`` holds (centre, unit) of each coordinate, in the order of the columns of x; where it is empty, inputs are
    taken as they are. All labels share C, so a scaled derivative is the derivative of the scaled value.

    For energies of atoms the offset follows from the composition: ``references`` is a dictionary {Z: energy per atom
    of that element}, one number (the energy per atom, whatever the element) or None; forces and stress are divided by
    C. Everything is computed in float64; the caller casts the result.

    >>> scale = LabelScale(10.0, offset=300.0, inputs={"x": (0.0, 2.0)})
    >>> scale.scale({"": 310.0, "x": 5.0, "xx": 5.0})
    {'': 1.0, 'x': 1.0, 'xx': 2.0}
    >>> atoms = LabelScale(10.0, references={1: -13.0, 8: -430.0})
    >>> atoms.scale_energy(-466.0, z=[8, 1, 1]), atoms.unscale_energy(-1.0, z=[8, 1, 1])
    (-1.0, -466.0)
    """

    constant: float
    references: dict[int, float] | float | None = None
    offset: float = 0.0
    inputs: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.constant) and self.constant > 0):
            raise InputError(f"a label scale needs a positive finite constant, not {self.constant!r}")
        for name, (_, unit) in self.inputs.items():
            if not (len(name) == 1 and math.isfinite(unit) and unit > 0):
                raise InputError(f"an input has one letter and a positive finite unit, not {name!r} and {unit!r}")

    @classmethod
    def power_of_ten(cls, *labels: Any) -> LabelScale:
        """The paper's C: the smallest power of ten with |label| / C ≤ 1 over all labels (arrays or numbers).

        >>> LabelScale.power_of_ten([-406737.5, -406752.4], [[150.2, -29.0, 3.0]]).constant
        1000000.0
        """
        arrays = [np.atleast_1d(to_array(label)) for label in labels]
        if not any(array.size for array in arrays):
            raise InputError("LabelScale.power_of_ten needs at least one label")
        for position, array in enumerate(arrays, start=1):
            check_finite("label in rows {} of array " + str(position), enumerate(array))
        return cls(_power_of_ten(max(np.abs(array).max() for array in arrays if array.size)))

    @classmethod
    def fit(
        cls,
        dataset: Any,
        references: Literal["elements", "mean"] | Mapping[Any, float] | None = "elements",
        unit: Unit | float = "force_rms",
        *,
        x: Any = None,
        coordinates: Sequence[str] | None = None,
    ) -> LabelScale:
        """The scale of a data set: the offset first, then the unit of what is left.

        dataset: values (a tensor or array), labels by name ({"": y, "x": dydx, "xx": …}), or frames of atoms with
        ``z``, ``energy``, ``forces`` and maybe ``stress``.
        references: for frames, "elements" solves min_e Σ_frames (E − Σ_atoms e[z])² in float64 (the solution of
        minimum norm where compositions do not determine it, as with a single molecule; free atoms that a file marks
        as such are taken as they are) and "mean" takes ΣE / Σn, one energy per atom; for values both take the mean. A
        dictionary gives energies by element, what is not in it is fitted. None removes nothing.
        unit: "force_rms" is the root mean square of the forces or first derivatives (of the values, where labels by
        name have none), "power_of_ten" the paper's C of the labels after the offset is removed, or a number.
        x: points (N, d) whose mean and spread become centre and unit of the inputs, named by ``coordinates`` (x, y, z,
        and t last if a label has it).
        """
        if isinstance(unit, str) and unit not in get_args(Unit):
            raise unknown("unit", unit, get_args(Unit))
        if not isinstance(dataset, Mapping):
            if not _is_plain(dataset):
                return cast(LabelScale, frames_module().fit(dataset, references, unit))
            dataset = {"": dataset}
        return cls._fit_labels(
            {name: to_array(label) for name, label in dataset.items()}, references, unit, x, coordinates
        )

    @classmethod
    def _fit_labels(
        cls,
        labels: dict[str, np.ndarray],
        references: str | Mapping[Any, float] | None,
        unit: Unit | float,
        x: Any,
        coordinates: Sequence[str] | None,
    ) -> LabelScale:
        if references is not None and references not in ("elements", "mean"):
            raise unknown("references", references, ("elements", "mean"))
        if not any(label.size for label in labels.values()):
            raise InputError("there are no labels to fit a scale to")
        for name, label in labels.items():
            check_finite(f"label {name!r} in rows {{}}", enumerate(np.atleast_1d(label)))
        inputs = {} if x is None else _inputs(to_array(x), labels, coordinates)
        offset = float(labels[""].mean()) if references and "" in labels else 0.0
        scaled = cls(1.0, offset=offset, inputs=inputs).scale(labels)
        if not isinstance(unit, str):
            constant = float(unit)
        elif unit == "power_of_ten":
            constant = cls.power_of_ten(*scaled.values()).constant
        else:
            slopes = [label for name, label in scaled.items() if len(name) == 1] or [scaled.get("", np.zeros(1))]
            constant = float(np.sqrt(np.mean(np.concatenate([np.ravel(slope) for slope in slopes]) ** 2)))
            if constant == 0:
                raise InputError("unit='force_rms' needs labels that are not all equal: give unit a number instead")
        return cls(constant, offset=offset, inputs=inputs)

    def scale(self, labels: Mapping[str, Labels]) -> dict[str, Labels]:
        """Labels by name ("" the value, "x" and "xx" derivatives), each in its scaled unit and in float64."""
        return {name: (to_float64(y) - self._offset(name)) * self._factor(name) for name, y in labels.items()}

    def unscale(self, labels: Mapping[str, Labels]) -> dict[str, Labels]:
        """The inverse of :meth:`scale`."""
        return {name: to_float64(y) / self._factor(name) + self._offset(name) for name, y in labels.items()}

    def scale_inputs(self, x: Labels) -> Labels:
        """(x − centre) / unit of every column of the points x (N, d), in float64."""
        centre, unit = self._columns(x)
        return cast(Labels, (to_float64(x) - centre) / unit)

    def unscale_inputs(self, x: Labels) -> Labels:
        """The inverse of :meth:`scale_inputs`."""
        centre, unit = self._columns(x)
        return cast(Labels, to_float64(x) * unit + centre)

    def _offset(self, name: str) -> float:
        return 0.0 if name else self.offset

    def _factor(self, name: str) -> float:
        """unit of the inputs by which is differentiated / C."""
        for letter in name:
            if self.inputs and letter not in self.inputs:
                raise unknown(f"input in the derivative {name!r}:", letter, list(self.inputs))
        return math.prod(self.inputs[letter][1] for letter in name if self.inputs) / self.constant

    def _columns(self, x: Any) -> tuple[Any, Any]:
        if not self.inputs:
            return 0.0, 1.0
        if len(np.shape(x)) == 0 or np.shape(x)[-1] != len(self.inputs):
            raise InputError(f"points of shape {tuple(np.shape(x))} do not have the columns {', '.join(self.inputs)}")
        pairs = list(self.inputs.values())
        if isinstance(x, Tensor):
            columns = x.new_tensor(pairs, dtype=torch.float64)
            return columns[:, 0], columns[:, 1]
        return np.array(pairs)[:, 0], np.array(pairs)[:, 1]

    def scale_energy(self, energy: Labels, z: Any, system: Any = None) -> Labels:
        """(E − Σ references) / C in float64.

        energy: one number or (B,). z: the atoms of all systems (N,) with ``system`` (N,) saying which system
        an atom belongs to, or without ``system`` the atoms of the one molecule that every energy is of.
        """
        energy = to_float64(energy)
        return cast(Labels, (energy - self._reference(energy, z, system)) / self.constant)

    def unscale_energy(self, energy: Labels, z: Any, system: Any = None) -> Labels:
        """The inverse of :meth:`scale_energy`: E·C + Σ references in float64."""
        energy = to_float64(energy)
        return cast(Labels, energy * self.constant + self._reference(energy, z, system))

    def scale_forces(self, forces: Labels) -> Labels:
        """F / C in float64."""
        return cast(Labels, to_float64(forces) / self.constant)

    def unscale_forces(self, forces: Labels) -> Labels:
        """F·C in float64."""
        return cast(Labels, to_float64(forces) * self.constant)

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
        stored = {"constant": float(self.constant), "references": references}
        more = {"offset": self.offset, "inputs": {name: list(pair) for name, pair in self.inputs.items()}}
        return stored | {name: value for name, value in more.items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LabelScale:
        """The scale that :meth:`to_dict` wrote."""
        if not {"constant", "references"} <= set(data) <= {"constant", "references", "offset", "inputs"}:
            raise InputError(
                f"a label scale has the fields constant, references, offset and inputs, not {sorted(data)}"
            )
        references = data["references"]
        if isinstance(references, Mapping):
            references = {int(z): float(energy) for z, energy in references.items()}
        inputs = {name: (float(centre), float(unit)) for name, (centre, unit) in data.get("inputs", {}).items()}
        return cls(float(data["constant"]), references, float(data.get("offset", 0.0)), inputs)

    def describe(self, dataset: Iterable[Any]) -> str:
        """A table of label ranges of frames and of their float32 resolution, with and without references.

        All numbers are in label units. "float32 step" is the spacing of float32 at the largest label, "step
        after / C" that of the label divided by C, multiplied back: dividing gains nothing, references do.
        """
        return cast(str, frames_module().describe(self, dataset))

    def _reference(self, energy: Any, z: Any, system: Any) -> Any:
        """The energy to remove from each system, of the kind and on the device of ``energy``."""
        if self.references is None:
            return 0.0
        return frames_module().reference_energy(self.references, energy, z, system)


def _is_plain(dataset: Any) -> bool:
    """Numbers, not frames."""
    if isinstance(dataset, Tensor | np.ndarray | int | float):
        return True
    first = dataset[0] if isinstance(dataset, list | tuple) and dataset else None
    return isinstance(first, Tensor | np.ndarray | int | float | list | tuple)


def _inputs(
    x: np.ndarray, labels: Mapping[str, Any], coordinates: Sequence[str] | None
) -> dict[str, tuple[float, float]]:
    """{name: (mean, spread)} of the columns of x."""
    if x.ndim != 2 or not x.size:
        raise InputError(f"x must be points by coordinates, (N, d); got shape {x.shape}")
    check_finite("x in rows {}", enumerate(x))
    with_t = any("t" in name for name in labels)
    names = list(coordinates) if coordinates is not None else ["x", "y", "z"][: x.shape[1] - with_t] + ["t"] * with_t
    if len(names) != x.shape[1]:
        raise InputError(f"x has {x.shape[1]} columns, named {names}: give coordinates, one letter a column")
    return {n: (float(c.mean()), float(c.std()) or 1.0) for n, c in zip(names, x.T, strict=True)}


def _power_of_ten(largest: float) -> float:
    if largest == 0:
        return 1.0
    exponent = math.ceil(math.log10(largest))
    # The logarithm is rounded, so its neighbours are tried; "1e-5" is correctly rounded, 10.0**-5 may not be.
    powers = (float(f"1e{e}") for e in (exponent - 1, exponent, exponent + 1))
    return next(power for power in powers if power and largest / power <= 1)


def to_float64(label: Any) -> Any:
    """The label in float64, of its own kind: a tensor, an array or a number."""
    if isinstance(label, Tensor):
        return label.double()
    return float(label) if isinstance(label, int | float) else np.asarray(label, dtype=np.float64)


def to_array(label: Any) -> np.ndarray:
    return np.asarray(label.detach().cpu() if isinstance(label, Tensor) else label, dtype=np.float64)


def check_finite(place: str, values: Iterable[tuple[int, Any]]) -> None:
    bad = [number for number, value in values if not np.isfinite(value).all()]
    if bad:
        raise InputError(f"NaN or infinite {place.format(some(bad))}: correct or remove them")


def some(numbers: list[int], shown: int = 5) -> str:
    text = ", ".join(map(str, numbers[:shown]))
    return f"{text} and {len(numbers) - shown} more" if len(numbers) > shown else text
