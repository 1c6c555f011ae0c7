"""Labels under the names people give them: which option takes an entry, and virials turned into stress.

Stress is dE/dε / V: positive under tension, as in ASE. A virial is −V · stress, as QUIP, GAP and MACE write it.
Six numbers are in Voigt order xx yy zz yz xz xy; nine are a symmetric matrix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dcnn.atoms.structures import full_stress
from dcnn.errors import InputError

_LOOKS_LIKE = {
    "energy": re.compile(r"energ|toten|(^|_)e(_?(tot|dft|0))?$", re.IGNORECASE),
    "forces": re.compile(r"forces?($|_)|gradient", re.IGNORECASE),
    "stress": re.compile(r"stress", re.IGNORECASE),
    "virial": re.compile(r"virial", re.IGNORECASE),
}


def lookalikes(entries: Mapping[str, Any], n_atoms: int) -> dict[str, str]:
    """Entry → field (energy, forces, stress, virial) of what has the name and the shape of a label.

    >>> lookalikes({"REF_energy": -1.5, "energy_unit": "eV", "dft_forces": np.zeros((2, 3)), "charge": 0}, 2)
    {'REF_energy': 'energy', 'dft_forces': 'forces'}
    """
    sizes = {"energy": (1,), "forces": (3 * n_atoms,), "stress": (6, 9), "virial": (6, 9)}
    found = {}
    for name, value in entries.items():
        array = np.asarray(value) if isinstance(value, (int, float, list, np.ndarray, np.number)) else np.array("")
        for field, pattern in _LOOKS_LIKE.items():
            if pattern.search(str(name)) and array.dtype.kind in "iuf" and array.size in sizes[field]:
                found[name] = field
                break
    return found


def options(entries: Mapping[str, str], dashes: str = "") -> str:
    """How to take what :func:`lookalikes` found: ``energy_key=REF_energy``, with dashes ``--energy-key REF_energy``."""
    if dashes:
        return " ".join(f"{dashes}{field}-key {name}" for name, field in sorted(entries.items()))
    return ", ".join(f"{field}_key={name}" for name, field in sorted(entries.items()))


def stress_of(found: Mapping[str, Any], cell: np.ndarray | None) -> np.ndarray | None:
    """The stress (3, 3) of entries ``stress`` or ``virial``; the latter needs the cell's volume."""
    if found.get("stress") is not None:
        return full_stress(found["stress"])
    if found.get("virial") is None:
        return None
    volume = 0.0 if cell is None else abs(float(np.linalg.det(cell)))
    if volume < 1e-9:
        raise InputError("a virial needs a cell with a volume to become a stress")
    return -full_stress(found["virial"]) / volume
