"""Do the energies belong to the forces? E₂ − E₁ against the work −½(F₁ + F₂)·(R₂ − R₁) between close frames.

The trapezoid is exact for a quadratic energy, so that frames a few tenths of an ångström apart suffice.
Consecutive frames of crystals are compared as they are; of molecules, each frame with the one most like it,
turned on top of it, so that shuffled files can be judged too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dcnn.atoms.dataset import Dataset
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import ENERGY, LENGTH
from dcnn.errors import InputError

SAMPLE = 600  # frames looked at
CLOSE = 0.3  # Å, largest displacement of an atom between two frames that are compared
ENOUGH = 8  # pairs of close frames below which nothing is said
_RATIOS = {
    f"{a} for {b}": factor_a / factor_b
    for table in (ENERGY, LENGTH)
    for a, factor_a in table.items()
    for b, factor_b in table.items()
    if a != b
}


@dataclass(frozen=True)
class Agreement:
    """How well ΔE follows the work of the forces over ``pairs`` pairs of close frames.

    ``correlation`` is about the origin; ``slope`` is ΔE per work, 1 when energies and forces belong together.
    """

    pairs: int
    correlation: float
    slope: float
    displacement: float
    n_atoms: int

    @property
    def verdict(self) -> str:
        """``agree``, ``wrong sign``, ``per atom``, ``units``, ``weak`` or ``cannot be judged``."""
        if self.pairs < ENOUGH:
            return "cannot be judged"
        if self.correlation < -0.8:
            return "wrong sign"
        if self.correlation < 0.8:
            return "weak"
        if self.n_atoms > 2 and abs(self.slope * self.n_atoms - 1) < 0.2:
            return "per atom"
        return "units" if self._ratio() else "agree"

    def _ratio(self) -> str:
        return next((name for name, r in _RATIOS.items() if abs(self.slope * r - 1) < 0.15), "")

    def describe(self) -> str:
        """One line for people."""
        if self.pairs < ENOUGH:
            return f"cannot be judged: {self.pairs} pairs of frames within {CLOSE} Å of each other"
        return (
            f"correlation {self.correlation:.4f}, slope {self.slope:.3f} over {self.pairs} pairs of close "
            f"frames (atoms move at most {self.displacement:.2f} Å): {self.verdict}"
        )

    def refuse(self, dataset: Dataset) -> None:
        """Raises an :class:`InputError` when the labels contradict each other."""
        if self.verdict == "wrong sign":
            sign = -dataset.force_sign
            raise InputError(
                f"{dataset.source}: the forces have the wrong sign, energies rise along them "
                f"({self.describe()}). Pass --force-sign {sign} (force_sign={sign} in Python)"
            )
        if self.verdict == "units":
            raise InputError(
                f"{dataset.source}: energies and forces are in different units: energy differences are "
                f"{self.slope:.4g} times the work of the forces, as with {self._ratio()}. Convert one of "
                "them in the file"
            )

    def warnings(self, dataset: Dataset) -> list[str]:
        """What is suspicious but may be meant."""
        if self.verdict == "per atom":
            return [
                f"{dataset.source}: energies look like energies per atom: they change by "
                f"1/{self.n_atoms} of the work of the forces in frames of {self.n_atoms} atoms. Multiply "
                "them by the number of atoms"
            ]
        if self.verdict == "weak":
            return [f"{dataset.source}: energies and forces hardly agree: {self.describe()}"]
        return []


def check_labels(dataset: Dataset) -> Agreement:
    """The agreement of energies and forces among the first frames, in trajectory order where it is known."""
    index = dataset.trajectory_index()
    order = np.arange(len(dataset)) if index is None else np.argsort(index, kind="stable")
    frames = [dataset[int(number)] for number in order[:SAMPLE]]
    frames = [frame for frame in frames if frame.energy is not None and frame.forces is not None]
    unit = LENGTH[dataset.units.length]
    compared = [row for row in map(_compare, *_zipped(close_pairs(frames))) if row[2] * unit < CLOSE]
    compared = sorted(compared, key=lambda row: row[2])[:100]
    if not compared:
        return Agreement(0, np.nan, np.nan, np.nan, 0)
    energy, work, moved = np.array(compared).T
    sizes = [len(frame) for frame in frames]
    norms = np.sqrt((energy @ energy) * (work @ work))
    if norms == 0:
        return Agreement(0, np.nan, np.nan, np.nan, 0)
    product = float(energy @ work)
    return Agreement(
        pairs=len(energy),
        correlation=product / float(norms),
        slope=product / float(work @ work),
        displacement=float(moved.max() * unit),
        n_atoms=int(np.median(sizes)),
    )


def _zipped(pairs: Iterator[tuple[Structure, Structure]]) -> tuple[list[Structure], list[Structure]]:
    listed = list(pairs)
    return [a for a, _ in listed], [b for _, b in listed]


def close_pairs(frames: Sequence[Structure]) -> Iterator[tuple[Structure, Structure]]:
    """Pairs of frames worth comparing: neighbours in the file (crystals), most alike (molecules)."""
    molecules: dict[bytes, list[Structure]] = defaultdict(list)
    for frame in frames:
        if frame.cell is None:
            molecules[frame.z.tobytes()].append(frame)
    for a, b in pairwise(frames):
        same_cell = a.cell is not None and b.cell is not None and np.allclose(a.cell, b.cell, rtol=0, atol=1e-6)
        if same_cell and np.array_equal(a.z, b.z):
            yield a, b
    for group in molecules.values():
        n = len(group[0])
        if len(group) > 1 and 1 < n <= 100:
            yield from _most_alike(group)


def _most_alike(group: Sequence[Structure]) -> Iterator[tuple[Structure, Structure]]:
    first, second = np.triu_indices(len(group[0]), 1)
    positions = np.stack([frame.positions for frame in group])
    distances = np.linalg.norm(positions[:, first] - positions[:, second], axis=-1)  # (M, pairs of atoms)
    square = (distances**2).sum(1)
    apart = square[:, None] + square[None] - 2 * distances @ distances.T
    # a frame written twice says nothing about forces
    apart[apart < 1e-9 * square.mean()] = np.inf
    seen = set()
    for a, b in enumerate(apart.argmin(1)):
        pair = (min(a, int(b)), max(a, int(b)))
        if a != b and pair not in seen:
            seen.add(pair)
            yield group[a], group[int(b)]


def _compare(a: Structure, b: Structure) -> tuple[float, float, float]:
    """(E_b − E_a, work of the mean force from a to b, largest displacement of an atom)."""
    if a.forces is None or b.forces is None or a.energy is None or b.energy is None:
        raise InputError("energies and forces can be compared only where both are given")
    if a.cell is not None:
        periodic = a.pbc if a.pbc is not None else np.ones(3, bool)
        moved = b.positions - a.positions
        moved = moved - (np.rint(moved @ np.linalg.pinv(a.cell)) * periodic) @ a.cell  # a slab's cell may be flat
        forces_b = b.forces
    else:
        ra, rb = a.positions - a.positions.mean(0), b.positions - b.positions.mean(0)
        u, _, vt = np.linalg.svd(rb.T @ ra)
        u[:, -1] *= np.sign(np.linalg.det(u @ vt))  # a rotation, never a mirror image
        moved, forces_b = rb @ (u @ vt) - ra, b.forces @ (u @ vt)
    work = -0.5 * float(((a.forces + forces_b) * moved).sum())
    return b.energy - a.energy, work, float(np.linalg.norm(moved, axis=1).max())
