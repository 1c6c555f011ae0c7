"""What surrounds an atom, as a few numbers: smooth counts of neighbours by element and distance."""

from __future__ import annotations

import numpy as np

from dcnn.atoms.neighbours import half_pairs
from dcnn.atoms.structures import Structure

REACH_A = 5.0
CENTRES_A = np.linspace(0.75, 4.5, 11)
WIDTH_A = CENTRES_A[1] - CENTRES_A[0]


def environments(structure: Structure) -> dict[tuple[int, int], np.ndarray]:
    """{(Z, neighbour's Z): (atoms of Z, 11)}: Σ_j exp(−((r − c)/w)²)·½(1 + cos πr/5 Å) over neighbours of an element.

    Rotations, shifts and the order of atoms do not change it; it is smooth in the positions.
    """
    pairs = half_pairs(structure.positions, REACH_A, structure.cell, structure.pbc)
    vectors = structure.positions[pairs.j] - structure.positions[pairs.i]
    if pairs.shift is not None and structure.cell is not None:
        vectors = vectors + pairs.shift @ structure.cell
    return of_pairs(structure.z, pairs.i, pairs.j, np.linalg.norm(vectors, axis=1))


def of_pairs(z: np.ndarray, i: np.ndarray, j: np.ndarray, distance: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    """:func:`environments` from a half list of pairs and their distances; pairs beyond 5 Å do not count."""
    near = distance < REACH_A
    i, j, distance = i[near], j[near], distance[near, None]
    smooth = (
        np.exp(-(((distance - CENTRES_A) / WIDTH_A) ** 2)) * 0.5 * (1 + np.cos(np.pi * distance / REACH_A))
    )  # (P, 11)
    elements = np.unique(z)
    table = np.zeros((len(z), len(elements), len(CENTRES_A)))
    column = np.searchsorted(elements, z)
    np.add.at(table, (i, column[j]), smooth)
    np.add.at(table, (j, column[i]), smooth)
    return {
        (int(own), int(other)): table[z == own, number]
        for own in elements
        for number, other in enumerate(elements)
    }  # fmt: skip


def fingerprint(structure: Structure, elements: list[int]) -> np.ndarray:
    """(E·E·22,) mean and spread of the environments of the atoms of each element; comparable between structures."""
    found = environments(structure)
    blank = np.zeros((1, len(CENTRES_A)))
    parts = [found.get((own, other), blank) for own in elements for other in elements]
    return np.concatenate([np.concatenate([part.mean(0), part.std(0)]) for part in parts])
