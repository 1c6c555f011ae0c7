"""The range of what a potential was trained on, kept in its checkpoints, and how far a structure is outside."""

# ruff: noqa: N815  units are written as they are: A, eV
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase.data import chemical_symbols

from dcnn.atoms.environments import REACH_A, of_pairs
from dcnn.atoms.neighbours import half_pairs
from dcnn.atoms.structures import Structure
from dcnn.errors import DcnnError

SAMPLED = 2000  # frames that are looked at
CLOSER = 0.9  # of the shortest distance trained on
LONELIER = 1.25  # times the largest distance of an atom to its nearest neighbour
STRONGER = 2.0  # times the largest force trained on
BEYOND = 0.5  # widths of the range of energies and environments
LEAST_ENERGY_EV, LEAST_COUNT = 0.05, 0.3  # a range that is narrower counts as this wide


class OutsideRangeError(DcnnError):
    """A structure is outside of what the potential was trained on; ``atoms`` is the structure, as ASE has it."""

    atoms: Any = None


@dataclass(frozen=True)
class TrainedRange:
    """Bounds over training frames.

    shortest_A: by pair of elements (lower Z first). nearest_A: by element, the largest distance from an atom to its
    nearest neighbour (up to 5 Å; inf where one had none). energy_eV: of an atom on average, without references.
    force_eV_A: largest norm. counts: by (Z, neighbour's Z), lowest and highest (11,) of the smooth numbers of
    neighbours by distance (:mod:`dcnn.atoms.environments`). periodic: in how many directions.
    """

    shortest_A: Mapping[tuple[int, int], float]
    nearest_A: Mapping[int, float]
    energy_eV: tuple[float, float]
    force_eV_A: float
    counts: Mapping[tuple[int, int], tuple[np.ndarray, np.ndarray]]
    periodic: frozenset[int]

    @classmethod
    def of(cls, frames: Sequence[Structure], references: Any, unit_eV: float) -> TrainedRange:
        """Of labelled frames; ``references(z)`` is the constant part of their energy in eV, ``unit_eV`` their unit."""
        shortest: dict[tuple[int, int], float] = {}
        lonely: dict[int, float] = {}
        counts: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        energies, forces, periodic = [], [0.0], set()
        for number in np.unique(np.linspace(0, len(frames) - 1, SAMPLED).astype(int)):
            frame = frames[int(number)]
            pairs, nearest, environments = _looked_at(frame)
            for z, distance in nearest.items():
                lonely[z] = max(distance, lonely.get(z, 0.0))
            for pair, distance in pairs.items():
                shortest[pair] = min(distance, shortest.get(pair, np.inf))
            for key, values in environments.items():
                low, high = counts.get(key, (values[0], values[0]))
                counts[key] = np.minimum(low, values.min(0)), np.maximum(high, values.max(0))
            if frame.energy is not None:
                energies.append((frame.energy * unit_eV - references(frame.z)) / len(frame))
            if frame.forces is not None and len(frame.forces):
                forces.append(float(np.linalg.norm(frame.forces, axis=1).max()) * unit_eV)
            periodic.add(_directions(frame))
        bounds = (float(np.min(energies)), float(np.max(energies))) if energies else (-np.inf, np.inf)
        return cls(shortest, lonely, bounds, max(forces), counts, frozenset(periodic))

    def outside(
        self,
        structure: Structure,
        energy_eV: float | None = None,
        forces_eV_A: np.ndarray | None = None,
        pairs: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    ) -> list[str]:
        """What about the structure is not within the range, in words; [] if it is.

        energy_eV: predicted, without references. pairs: i, j and distance of every pair within 5 Å, if they are known.
        """
        found = []
        if _directions(structure) not in self.periodic:
            trained = " or ".join(str(n) for n in sorted(self.periodic))
            found.append(f"periodic in {_directions(structure)} directions, trained on {trained}")
        distances, nearest, environments = _looked_at(structure, pairs)
        for (a, b), distance in distances.items():
            known = self.shortest_A.get((a, b))
            if known is None:
                found.append(f"{_name(a, b)} within {REACH_A:g} Å, of which no training frame had any")
            elif distance < CLOSER * known:
                found.append(f"{_name(a, b)} {distance:.2f} Å apart, trained from {known:.2f} Å")
        for z, distance in nearest.items():
            if distance > LONELIER * self.nearest_A.get(z, np.inf):
                trained = f"trained up to {self.nearest_A[z]:.2f} Å"
                found.append(f"{chemical_symbols[z]} with its nearest neighbour at {distance:.2f} Å, {trained}")
        if energy_eV is not None:
            low, high = self.energy_eV
            each, margin = energy_eV / len(structure), BEYOND * max(high - low, LEAST_ENERGY_EV)
            if not low - margin <= each <= high + 2 * margin:
                found.append(f"an energy of {each:.3g} eV an atom, trained on {low:.3g} to {high:.3g}")
        if forces_eV_A is not None and len(forces_eV_A):
            largest = float(np.linalg.norm(forces_eV_A, axis=1).max())
            if not largest <= STRONGER * max(self.force_eV_A, 1e-3):
                found.append(f"a force of {largest:.3g} eV/Å, trained up to {self.force_eV_A:.3g}")
        if not found and (worst := self._strangest(environments)):
            found.append(worst)
        return found

    def _strangest(self, environments: Mapping[tuple[int, int], np.ndarray]) -> str | None:
        worst, words = 0.0, None
        for (own, other), values in environments.items():
            if (own, other) not in self.counts:
                continue  # an element that is not near any of these: said by its distance, or there is no pair
            low, high = self.counts[own, other]
            width = np.maximum(high - low, LEAST_COUNT)
            beyond = np.maximum((low - values) / width, (values - high) / width)  # (atoms, 11)
            if beyond.max() > max(BEYOND, worst):
                worst = float(beyond.max())
                way = "more" if (values - high).max() >= (low - values).max() else "fewer"
                words = f"{way} {chemical_symbols[other]} around {chemical_symbols[own]} than in any training frame"
        return words

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a checkpoint keeps them."""
        return {
            "shortest_A": {f"{a}-{b}": value for (a, b), value in self.shortest_A.items()},
            "nearest_A": {str(z): value for z, value in self.nearest_A.items()},
            "energy_eV": list(self.energy_eV),
            "force_eV_A": self.force_eV_A,
            "counts": {f"{a}-{b}": [low.tolist(), high.tolist()] for (a, b), (low, high) in self.counts.items()},
            "periodic": sorted(self.periodic),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainedRange:
        """The range that :meth:`to_dict` wrote."""
        low, high = values["energy_eV"]
        counts = {_pair(k): (np.array(v[0], float), np.array(v[1], float)) for k, v in values["counts"].items()}
        shortest = {_pair(key): float(value) for key, value in values["shortest_A"].items()}
        nearest = {int(z): float(value) for z, value in values["nearest_A"].items()}
        periodic = frozenset(int(n) for n in values["periodic"])
        return cls(shortest, nearest, (float(low), float(high)), float(values["force_eV_A"]), counts, periodic)


def _looked_at(
    structure: Structure, pairs: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
) -> tuple[dict[tuple[int, int], float], dict[int, float], dict[tuple[int, int], np.ndarray]]:
    """The shortest distance by pair of elements, the largest to a nearest neighbour by element, the environments."""
    if pairs is None:
        listed = half_pairs(structure.positions, REACH_A, structure.cell, structure.pbc)
        vectors = structure.positions[listed.j] - structure.positions[listed.i]
        if listed.shift is not None and structure.cell is not None:
            vectors = vectors + listed.shift @ structure.cell
        pairs = listed.i, listed.j, np.linalg.norm(vectors, axis=1)
    i, j, distance = pairs
    near = distance < REACH_A
    i, j, distance = i[near], j[near], distance[near]
    closest = np.full(len(structure), np.inf)
    np.minimum.at(closest, i, distance)
    np.minimum.at(closest, j, distance)
    nearest = {int(z): float(closest[structure.z == z].max()) for z in np.unique(structure.z)}
    keys = np.sort(np.stack([structure.z[i], structure.z[j]], 1), axis=1)  # (P, 2)
    shortest = {}
    for a, b in np.unique(keys, axis=0).tolist():
        shortest[a, b] = float(distance[(keys[:, 0] == a) & (keys[:, 1] == b)].min())
    return shortest, nearest, of_pairs(structure.z, i, j, distance)


def _directions(structure: Structure) -> int:
    return int(np.count_nonzero(structure.pbc))  # type: ignore[arg-type]


def _name(a: int, b: int) -> str:
    return f"{chemical_symbols[a]} and {chemical_symbols[b]}"


def _pair(text: str) -> tuple[int, int]:
    a, _, b = text.partition("-")
    return int(a), int(b)
