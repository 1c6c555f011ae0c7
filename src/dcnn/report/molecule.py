"""Frames for the 3-D view: atoms, bonds, and the forces of the network beside the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from ase.data import chemical_symbols, covalent_radii
from ase.data.colors import jmol_colors

from dcnn.report.atoms_charts import Predictions, chosen_frames, frame_errors

MOST_ATOMS = 400
STRETCH = 1.2  # a bond is shorter than this times the sum of the covalent radii


def molecule(found: Predictions) -> dict[str, Any]:
    """What templates/molecule.js draws: Å, kcal/mol/Å; axes turned so that a molecule lies flat."""
    errors = frame_errors(found)
    frames = []
    for name, number in chosen_frames(found):
        frame = found.frames[number]
        if len(frame.z) > MOST_ATOMS:
            continue
        atoms = found.system == number
        turn = _flat(frame.positions) if frame.cell is None else np.eye(3)
        centre = frame.positions.mean(0) if frame.cell is None else frame.cell.sum(0) / 2
        frames.append(
            {
                "name": f"{name}: force MAE {errors[number]:.3g} kcal/mol/Å",
                "symbols": [chemical_symbols[z] for z in frame.z],
                "positions": _rounded((frame.positions - centre) @ turn),
                "label": _rounded(found.forces_label[atoms] @ turn),
                "network": _rounded(found.forces[atoms] @ turn),
                "bonds": _bonds(frame.z, frame.positions),
                "cell": [] if frame.cell is None else _rounded(_cell_edges(frame.cell, centre) @ turn),
            }
        )
    elements = sorted({int(z) for _, n in chosen_frames(found) for z in found.frames[n].z})
    return {
        "frames": frames,
        "elements": {
            chemical_symbols[z]: {
                "colour": [int(255 * part) for part in jmol_colors[z]],
                "radius": round(float(covalent_radii[z]), 2),
            }
            for z in elements
        },
    }


def _rounded(values: np.ndarray) -> list[Any]:
    return np.round(values, 3).tolist()


def _flat(positions: np.ndarray) -> np.ndarray:
    """(3, 3) rotation to principal axes, the longest first, so that the first view shows most of the molecule."""
    _, _, axes = np.linalg.svd(positions - positions.mean(0), full_matrices=True)
    if np.linalg.det(axes) < 0:
        axes[2] *= -1
    return axes.T


def _bonds(z: np.ndarray, positions: np.ndarray) -> list[list[int]]:
    distance = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    radii = covalent_radii[z]
    first, second = np.nonzero(np.triu(distance < STRETCH * (radii[:, None] + radii[None]), 1))
    return np.stack([first, second], 1).tolist()


def _cell_edges(cell: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """(12, 2, 3) the edges of the cell, relative to the centre."""
    edges = []
    for axis in range(3):
        others = [a for a in range(3) if a != axis]
        for i in (0, 1):
            for j in (0, 1):
                corner = i * cell[others[0]] + j * cell[others[1]] - centre
                edges.append([corner, corner + cell[axis]])
    return np.array(edges)
