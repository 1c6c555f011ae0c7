"""What is in a file of frames, and what is suspicious about it: the report of ``dcnn data info``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from ase.data import chemical_symbols, covalent_radii

from dcnn.atoms.data.consistency import Agreement, check_labels
from dcnn.atoms.data.frame_checks import unread_labels
from dcnn.atoms.data.label_names import options
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.frame_arrays import GROUP, LABELS
from dcnn.atoms.neighbours import half_pairs
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError

ONE_COMPOSITION = "the elements always occur in the same proportion, so that only the sum over a frame means something"
LIMIT = 20_000  # frames looked at in files larger than this
_SMALL_ENERGY = 1.0  # eV per atom; total energies of any electronic-structure program are larger


@dataclass(frozen=True)
class Range:
    """Smallest, largest, mean and standard deviation of one label."""

    smallest: float
    largest: float
    mean: float
    std: float

    @classmethod
    def of(cls, values: np.ndarray) -> Range:
        return cls(float(values.min()), float(values.max()), float(values.mean()), float(values.std()))


@dataclass(frozen=True)
class Summary:
    """Everything :func:`inspect` finds out; numbers are in ``energy_unit`` and ``length_unit``."""

    source: str
    frames: int
    frames_read: int
    atoms: tuple[int, int]
    elements: dict[str, int]
    periodic: int
    energy_unit: str
    length_unit: str
    energy: Range | None
    force_component: Range | None
    labelled: dict[str, int]
    config_types: dict[str, int]
    one_composition: bool
    shortest_distance: float | None
    duplicates: list[tuple[int, int]]
    float32_resolution: float | None
    agreement: Agreement
    unused: dict[str, str]
    isolated: dict[str, float]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for ``--json``."""
        content = asdict(self)
        content["agreement"]["verdict"] = self.agreement.verdict
        finite = {k: None if isinstance(v, float) and v != v else v for k, v in content["agreement"].items()}
        return {**content, "agreement": finite}

    def rows(self) -> list[tuple[str, str]]:
        """Name and text of every line of the report."""
        read = "" if self.frames_read == self.frames else f" ({self.frames_read} read)"
        low, high = self.atoms
        rows = [
            ("file", self.source),
            ("frames", f"{self.frames}{read}"),
            ("atoms per frame", str(low) if low == high else f"{low} to {high}"),
            ("elements", ", ".join(f"{name} {count}" for name, count in self.elements.items())),
            ("periodic frames", str(self.periodic)),
            ("units", f"{self.energy_unit}, {self.length_unit}"),
            (f"energy [{self.energy_unit}]", _text(self.energy)),
            (f"force component [{self.energy_unit}/{self.length_unit}]", _text(self.force_component)),
            ("labelled frames", ", ".join(f"{name} {count}" for name, count in self.labelled.items())),
        ]
        if self.config_types:
            rows.append(("config_type", ", ".join(f"{name} {count}" for name, count in self.config_types.items())))
        if self.shortest_distance is not None:
            rows.append((f"shortest distance [{self.length_unit}]", f"{self.shortest_distance:.3f}"))
        if self.float32_resolution is not None and self.energy is not None:
            rows.append(
                (
                    f"float32 resolution [{self.energy_unit}]",
                    f"{self.float32_resolution:.2g} at the mean energy; energies spread by {self.energy.std:.3g}",
                )
            )
        repeats = ", ".join(f"{later} = {earlier}" for earlier, later in self.duplicates[:5])
        rows.append(("repeated frames", f"{len(self.duplicates)}" + (f" ({repeats})" if repeats else "")))
        rows.append(("energies against forces", self.agreement.describe()))
        if self.isolated:
            atoms = ", ".join(f"{name} {energy:.6g}" for name, energy in self.isolated.items())
            rows.append((f"free atoms [{self.energy_unit}]", f"{atoms} (references, not among the frames)"))
        elif self.one_composition and len(self.elements) > 1:
            rows.append(("reference energies", f"{ONE_COMPOSITION}; for others give scale.references"))
        if self.unused:
            rows.append(("not read, but like labels", f"{', '.join(self.unused)}; take with {options(self.unused)}"))
        return rows


def _text(values: Range | None) -> str:
    if values is None:
        return "none"
    return f"{values.smallest:.6g} to {values.largest:.6g}, mean {values.mean:.6g}, std {values.std:.4g}"


def inspect(dataset: Dataset, limit: int = LIMIT) -> Summary:
    """Reads the frames (at most ``limit``, evenly spread) and reports what they are and what looks wrong.

    ``agreement.refuse(dataset)`` of the result raises where energies and forces contradict each other.
    """
    step = max(1, -(-len(dataset) // limit))
    numbers = range(0, len(dataset), step)
    counts: Counter[int] = Counter()
    sizes, energies, forces, periodic = [], [], [], 0
    labelled, groups = Counter(dict.fromkeys(LABELS, 0)), Counter[str]()
    compositions: set[tuple[tuple[int, int], ...]] = set()
    seen: dict[bytes, int] = {}
    duplicates = []
    unused: dict[str, str] = {}
    for number in numbers:
        frame = dataset[number]
        counts.update(frame.z.tolist())
        sizes.append(len(frame))
        energies.append(np.nan if frame.energy is None else frame.energy)
        if frame.forces is not None:
            forces.append(frame.forces.ravel())
        labelled.update(name for name in LABELS if getattr(frame, name) is not None)
        groups.update([group] if (group := str(frame.info.get(GROUP, ""))) else [])
        compositions.add(tuple(sorted(Counter(frame.z.tolist()).items())))
        unused |= unread_labels(frame)
        periodic += frame.cell is not None
        earlier = seen.setdefault(_fingerprint(frame), number)
        if earlier != number:
            duplicates.append((earlier, number))
    energy = np.array(energies)
    known = energy[np.isfinite(energy)]
    bonds = _bonds(dataset)
    agreement = check_labels(dataset)
    warnings = agreement.warnings(dataset)
    if agreement.verdict != "per atom":
        warnings += _magnitude(dataset, energy, np.array(sizes))
    warnings += _lengths(dataset, bonds)
    if duplicates:
        warnings.append(
            f"{dataset.source}: {len(duplicates)} frames repeat an earlier one; they leak into a random test"
        )
    resolution = float(np.spacing(np.float32(np.abs(known).mean()))) if len(known) else None
    return Summary(
        source=dataset.source,
        frames=len(dataset),
        frames_read=len(numbers),
        atoms=(min(sizes), max(sizes)),
        elements={chemical_symbols[z]: count for z, count in sorted(counts.items())},
        periodic=periodic,
        energy_unit=dataset.units.energy,
        length_unit=dataset.units.length,
        energy=Range.of(known) if len(known) else None,
        force_component=Range.of(np.concatenate(forces)) if forces else None,
        labelled=dict(labelled),
        config_types=dict(sorted(groups.items())),
        one_composition=_rank(compositions) < len(counts),
        shortest_distance=float(min(d for d, _ in bonds)) if bonds else None,
        duplicates=duplicates,
        float32_resolution=resolution,
        agreement=agreement,
        unused=unused,
        isolated={chemical_symbols[z]: energy for z, energy in dataset.isolated.items()},
        warnings=warnings,
    )


def _rank(compositions: set[tuple[tuple[int, int], ...]]) -> int:
    """How many elements least squares can tell apart."""
    elements = sorted({z for composition in compositions for z, _ in composition})
    table = np.array([[dict(composition).get(z, 0) for z in elements] for composition in compositions])
    return int(np.linalg.matrix_rank(table))


def _fingerprint(frame: Structure) -> bytes:
    cell = b"" if frame.cell is None else np.round(frame.cell, 5).tobytes()
    whole = frame.z.tobytes() + (np.round(frame.positions, 5) + 0.0).tobytes() + cell  # + 0.0: no negative zeros
    return blake2b(whole, digest_size=16).digest()


def _bonds(dataset: Dataset, sample: int = 200) -> list[tuple[float, float]]:
    """(shortest distance, its ratio to the covalent radii) of some frames; the distance in the dataset's unit."""
    length = dataset.units.length_factor(Units("eV", "Ang"))
    found = []
    for number in range(0, len(dataset), max(1, len(dataset) // sample)):
        frame = dataset[number]
        cell = None if frame.cell is None else frame.cell * length
        positions = frame.positions * length
        try:
            pairs = half_pairs(positions, 5.0, cell, frame.pbc)
        except InputError as error:
            raise InputError(f"{dataset.where(number)}: {error}") from None
        if len(pairs) == 0:
            continue
        shift = 0.0 if pairs.shift is None or cell is None else pairs.shift @ cell
        distance = np.linalg.norm(positions[pairs.j] + shift - positions[pairs.i], axis=1)
        ratio = distance / (covalent_radii[frame.z[pairs.i]] + covalent_radii[frame.z[pairs.j]])
        found.append((float(distance.min()) / length, float(ratio.min())))
    return found


def _lengths(dataset: Dataset, bonds: list[tuple[float, float]]) -> list[str]:
    """Warns where bonds are as long or short as a mix-up of Å and Bohr makes them."""
    ratio = float(np.median([r for _, r in bonds])) if bonds else 1.0
    if 0.65 < ratio < 1.5:
        return []
    return [
        f"{dataset.source}: the shortest bonds are {ratio:.2f} times the sum of covalent radii if lengths are in "
        f"{dataset.units.length}; check the unit of length (units='{dataset.units.energy}, "
        f"{'Bohr' if dataset.units.length == 'Ang' else 'Ang'}')"
    ]


def _magnitude(dataset: Dataset, energy: np.ndarray, sizes: np.ndarray) -> list[str]:
    """Warns where energies do not look like total energies."""
    energy, sizes = energy[np.isfinite(energy)], sizes[np.isfinite(energy)]
    if len(energy) == 0 or sizes.max() < 3:
        return []
    in_ev = energy * dataset.units.energy_factor(Units("eV"))
    per_atom = float(np.median(np.abs(in_ev) / sizes))
    varied = sizes.max() > 1.5 * sizes.min() and len(energy) >= 10
    if varied and _relative_spread(in_ev) < _relative_spread(in_ev / sizes):
        why = "they do not grow with the number of atoms"
    elif per_atom < _SMALL_ENERGY:
        why = f"{per_atom:.2g} eV per atom is little for a total energy"
    else:
        return []
    return [
        f"{dataset.source}: energies may be per atom or relative to a reference: {why}. If they are per atom, "
        "multiply them by the number of atoms"
    ]


def _relative_spread(values: np.ndarray) -> float:
    return float(values.std() / max(abs(values.mean()), 1e-12))
