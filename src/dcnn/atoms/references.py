"""Reference energies: what :class:`dcnn.LabelScale` removes from the energy of a frame before it divides by C.

They depend on the composition alone, so forces and stress do not see them. ``dcnn.LabelScale.fit`` comes here when it
is given frames of atoms. Frames are read some thousand at a time, as often as needed; none is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal, get_args

import numpy as np
import torch
from ase.data import atomic_numbers, chemical_symbols
from torch import Tensor

from dcnn.atoms.data.inspect import ONE_COMPOSITION
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.frame_arrays import FrameArrays
from dcnn.errors import InputError, unknown
from dcnn.scaling import LabelScale, Unit, check_finite, to_array

References = Literal["elements", "mean"]
Chunks = Callable[[], Iterable[FrameArrays]]
SMALL = 1e-10  # singular values below this share of the largest are rounding


class LeastSquares:
    """min_e Σ_frames (E − Σ_atoms e[z])², chunk by chunk: a QR decomposition of Z + 1 columns is all that is kept."""

    def __init__(self, elements: np.ndarray) -> None:
        self.elements, self.rows = elements, 0
        self._r: np.ndarray = np.zeros((0, len(elements) + 1))

    def add(self, chunk: FrameArrays, removed: np.ndarray | None = None) -> None:
        """The frames of a chunk that have an energy; removed: energy of each element that is subtracted before."""
        known = chunk.known("energy")
        counts = chunk.compositions(self.elements)[known]  # (B, Z)
        energy = chunk.energy[known] - (0.0 if removed is None else counts @ removed)
        self.rows += len(energy)
        self._r = np.asarray(np.linalg.qr(np.vstack([self._r, np.column_stack([counts, energy])]), mode="r"))

    def solution(self, free: np.ndarray | None = None) -> np.ndarray:
        """(Z,) of minimum norm where compositions do not determine it; 0 where ``free`` is false."""
        chosen = np.ones(len(self.elements), bool) if free is None else free
        found = np.zeros(len(self.elements))
        found[chosen] = np.linalg.lstsq(self._r[:, :-1][:, chosen], self._r[:, -1], rcond=SMALL)[0]
        return found

    @property
    def determined(self) -> bool:
        """Whether the compositions tell all elements apart."""
        return int(np.linalg.matrix_rank(self._r[:, :-1], rtol=SMALL)) == len(self.elements)


def fit(dataset: Iterable[Any], references: References | Mapping[Any, float] | None, unit: Unit | float) -> LabelScale:
    """The scale of frames with ``z``, ``energy``, ``forces`` and maybe ``stress``; a label may be None."""
    if isinstance(references, str) and references not in get_args(References):
        raise unknown("references", references, get_args(References))
    chunks = _chunks_of(dataset)
    given = named_energies(references) if isinstance(references, Mapping) else {}
    if references == "elements" and isinstance(dataset, Dataset):
        given = dataset.isolated  # of free atoms, by which MACE's files mean just this
    fitted = None if references is None else _fit_references(chunks, references == "mean", given)
    return LabelScale(_unit(chunks, fitted, unit), fitted) if isinstance(unit, str) else LabelScale(float(unit), fitted)


def named_energies(references: Mapping[Any, float]) -> dict[int, float]:
    """{Z: energy} of energies by symbol or atomic number.

    >>> named_energies({"H": -13.6, 8: -2041.8})
    {1: -13.6, 8: -2041.8}
    """
    found = {}
    for name, energy in references.items():
        z = int(name) if str(name).isdigit() else atomic_numbers.get(str(name), 0)
        if not 0 < z < len(chemical_symbols):
            raise InputError(f"references: {name!r} is no element; give energies by symbol, as in {{H: -13.6}}")
        if not math.isfinite(energy):
            raise InputError(f"references: the energy of {name} is {energy}")
        found[z] = float(energy)
    return dict(sorted(found.items()))


def elements_of(chunks: Iterable[FrameArrays]) -> np.ndarray:
    """The atomic numbers that occur, sorted."""
    seen = np.zeros(256, bool)
    for chunk in chunks:
        seen[chunk.z] = True
    return np.flatnonzero(seen)


def energy_spread(dataset: Iterable[Any], scale: LabelScale) -> float:
    """The root mean square of what the references leave of the energies."""
    left = _Range()
    for chunk in _chunks_of(dataset)():
        left.add(chunk.energy if scale.references is None else chunk.energy - _of_frames(scale.references, chunk))
    return left.rms if left.count else 0.0


def undetermined(dataset: Iterable[Any]) -> bool:
    """Whether least squares cannot tell the elements of these frames apart, as with one molecule."""
    chunks = _chunks_of(dataset)
    squares = LeastSquares(elements_of(chunks()))
    for chunk in chunks():
        squares.add(chunk)
    return squares.rows > 0 and not squares.determined


def describe(scale: LabelScale, dataset: Iterable[Any]) -> str:
    """A table of label ranges and of their float32 resolution, with and without references."""
    chunks, units = _chunks_of(dataset), getattr(dataset, "units", None)
    energy_unit, force_unit = (units.energy, f"{units.energy}/{units.length}") if units else ("", "")
    rows = {
        "energy": _Range(energy_unit),
        "energy − references": _Range(energy_unit),
        "forces": _Range(force_unit),
        "stress": _Range(force_unit and f"{force_unit}³"),
    }
    for chunk in chunks():
        rows["energy"].add(chunk.energy)
        if scale.references is not None:
            rows["energy − references"].add(chunk.energy - _of_frames(scale.references, chunk))
        rows["forces"].add(chunk.forces)
        rows["stress"].add(chunk.stress)
    header = ("label", "min", "max", "std", "float32 step", "step after / C")
    lines = ["{:<32} {:>13} {:>13} {:>9} {:>13} {:>15}".format(*header)]
    for name, row in rows.items():
        if row.count:
            title = f"{name} [{row.unit}]" if row.unit else name
            raw, scaled = (_float32_step(row.largest / c) * c for c in (1.0, scale.constant))
            line = f"{title:<32} {row.low:>13.4f} {row.high:>13.4f} {row.std:>9.4g}"
            lines.append(f"{line} {raw:>13.2g} {scaled:>15.2g}")
    note = f" ({ONE_COMPOSITION})" if isinstance(scale.references, dict) and undetermined(dataset) else ""
    return "\n".join([*lines, f"C = {scale.constant:.6g}; {_described(scale.references)}{note}"])


class _Range:
    """Smallest, largest and spread of numbers that come chunk by chunk; NaN is left out."""

    def __init__(self, unit: str = "") -> None:
        self.unit, self.count, self.mean, self._squares = unit, 0, 0.0, 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, values: np.ndarray) -> None:
        known = values[~np.isnan(values)]
        if not known.size:
            return
        self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))
        mean, total = float(known.mean()), self.count + known.size
        step = mean - self.mean  # Chan's formula: no difference of large numbers
        self._squares += float(np.square(known - mean).sum()) + step**2 * self.count * known.size / total
        self.mean, self.count = self.mean + step * known.size / total, total

    @property
    def std(self) -> float:
        return math.sqrt(self._squares / self.count)

    @property
    def rms(self) -> float:
        return math.sqrt(self._squares / self.count + self.mean**2)

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high)) if self.count else 0.0


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


def _chunks_of(dataset: Iterable[Any]) -> Chunks:
    """What gives the frames as flat arrays, as often as it is called."""
    if isinstance(dataset, Dataset) and dataset.packed:
        return dataset.chunks
    frames = list(dataset) if isinstance(dataset, Iterator) else dataset
    return lambda: _checked(frames)


def _checked(frames: Iterable[Any], size: int = 4096) -> Iterator[FrameArrays]:
    """Any objects with ``z`` and labels as flat arrays, their shapes and numbers looked at."""
    source, begin = iter(frames), 0
    while part := list(islice(source, size)):
        by_name: dict[str, dict[int, np.ndarray]] = {"energy": {}, "forces": {}, "stress": {}}
        z = [_integers(frame.z) for frame in part]
        for number, frame in enumerate(part, begin):
            for name, found in by_name.items():
                label = getattr(frame, name, None)
                if label is not None:
                    found[number] = to_array(label)
            forces = by_name["forces"].get(number)
            if forces is not None and forces.shape != (n := len(z[number - begin]), 3):
                raise InputError(f"frame {number} has {n} atoms but forces of shape {forces.shape}")
        for name, found in by_name.items():
            check_finite(f"{name} in frames {{}}", found.items())
        numbers, nothing = range(begin, begin + len(part)), np.full((3, 3), np.nan)
        rows = [by_name["forces"].get(n, np.full((len(z[n - begin]), 3), np.nan)) for n in numbers]
        yield FrameArrays(
            counts=np.array([len(each) for each in z]),
            z=np.concatenate(z),
            positions=np.zeros((0, 3)),
            cell=np.zeros((0, 3, 3)),
            pbc=np.zeros((0, 3), bool),
            energy=np.array([float(by_name["energy"].get(n, np.array(np.nan))) for n in numbers]),
            forces=np.concatenate(rows),
            stress=np.stack([by_name["stress"].get(n, nothing) for n in numbers]),
            weight=np.ones(len(part)),
        )
        begin += len(part)
    if not begin:
        raise InputError("the data set has no frames, so there is nothing to fit a label scale to")


def _fit_references(chunks: Chunks, mean: bool, given: dict[int, float]) -> dict[int, float] | float | None:
    """By element, or per atom; None where no frame has an energy. ``given`` are not fitted."""
    elements = elements_of(chunks())
    squares, energy, atoms = LeastSquares(elements), 0.0, 0
    fixed = np.array([given.get(z, 0.0) for z in elements.tolist()])
    free = np.array([z not in given for z in elements.tolist()])
    for chunk in chunks():
        known = chunk.known("energy")
        energy, atoms = energy + float(chunk.energy[known].sum()), atoms + int(chunk.counts[known].sum())
        squares.add(chunk, fixed)
    if mean:
        return energy / atoms if atoms else None
    if not atoms and free.any():
        return {**given} if given else None
    solution = fixed + squares.solution(free) if free.any() else fixed
    if free.any():  # Once more: energies are 10⁵ times their spread, so the first residual carries rounding.
        again = LeastSquares(elements)
        for chunk in chunks():
            again.add(chunk, solution)
        solution = solution + again.solution(free)
    return {**given, **dict(zip(elements.tolist(), solution.tolist(), strict=True))}


def _unit(chunks: Chunks, references: dict[int, float] | float | None, unit: str) -> float:
    """The root mean square of the forces, or the paper's C of all that is left."""
    energies, forces, stress, frames = _Range(), _Range(), _Range(), 0
    for chunk in chunks():
        frames += len(chunk)
        left = chunk.energy if references is None else chunk.energy - _of_frames(references, chunk)
        for label, values in ((energies, left), (forces, chunk.forces), (stress, chunk.stress)):
            label.add(values)
    if unit == "power_of_ten":
        return LabelScale.power_of_ten([energies.largest, forces.largest, stress.largest]).constant
    if not forces.count:
        spread = f", for example {energies.std:.4g}, the spread of these energies" if energies.count else ""
        raise InputError(
            f"unit='force_rms' needs forces, and none of the {frames} frames has any: "
            f"use unit='power_of_ten' or a number{spread}"
        )
    if not forces.largest:
        raise InputError("unit='force_rms' needs forces that are not all zero: give unit a number instead")
    return forces.rms


def _of_frames(references: dict[int, float] | float, chunk: FrameArrays) -> np.ndarray:
    """Σ_atoms reference of every frame, (B,)."""
    return np.bincount(chunk.system, weights=_per_atom(references, chunk.z), minlength=len(chunk))


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


def _float32_step(largest: float) -> float:
    return float(np.spacing(np.float32(largest)))


def _integers(z: Any) -> np.ndarray:
    return np.asarray(z.detach().cpu() if isinstance(z, Tensor) else z, dtype=np.int64)


def _symbol(z: int) -> str:
    return chemical_symbols[z] if 0 < z < len(chemical_symbols) else f"Z={z}"
