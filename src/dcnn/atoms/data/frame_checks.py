"""What every frame must satisfy before it is used: finite numbers, known elements, the labels asked for.

:func:`check_frame` looks at one frame when it is read, :func:`check_geometries` at all frames before training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ase.data import chemical_symbols

from dcnn.atoms.data.label_names import lookalikes, options
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.neighbours import check_geometry
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError
from dcnn.guard import error_context

LABELS = ("energy", "forces")


def is_isolated_atom(frame: Structure) -> bool:
    """A free atom whose energy is a reference (``config_type=IsolatedAtom``, the convention of MACE)."""
    return len(frame) == 1 and str(frame.info.get("config_type", "")).lower() == "isolatedatom"


def check_frame(frame: Structure, where: str, require: Sequence[str] = LABELS) -> Structure:
    """The frame itself, or an :class:`InputError` that names file, frame, field and what to do."""
    if len(frame) == 0:
        raise InputError(f"{where}: the frame has no atoms; remove it")
    if frame.z.min() < 1 or frame.z.max() > 118:
        atom = int(np.flatnonzero((frame.z < 1) | (frame.z > 118))[0])
        raise InputError(f"{where}: atom {atom} has the unknown element {frame.z[atom]}; atomic numbers are 1 to 118")
    for field in ("positions", "cell", "energy", "forces", "stress"):
        value = getattr(frame, field)
        if value is None:
            if field in require and not (field == "forces" and is_isolated_atom(frame)):
                similar = {k: v for k, v in unread_labels(frame).items() if v == field}
                held = ", ".join(sorted(frame.info)) or "nothing else"
                hint = f"{options(similar)} takes it" if similar else f"Name the entry with {field}_key"
                raise InputError(f"{where}: no {field}. The frame also holds: {held}. {hint}, or leave the frame out")
        elif not np.isfinite(value).all():
            bad = np.argwhere(~np.isfinite(np.atleast_1d(value)))[0].tolist()
            what = "" if field == "energy" else f" at {bad}"
            raise InputError(f"{where}: {field} is NaN or infinite{what}; remove the frame or label it again")
    return frame


def unread_labels(frame: Structure) -> dict[str, str]:
    """Entry → field of what looks like a label that the frame has no other of."""
    stress = frame.stress is not None
    has = {"energy": frame.energy is not None, "forces": frame.forces is not None, "stress": stress, "virial": stress}
    return {name: field for name, field in lookalikes(frame.info, len(frame)).items() if not has[field]}


def check_geometries(dataset: Dataset, cutoff: float = 6.0, largest_z: int = 118) -> None:
    """Refuses atoms in one place, cells without volume and elements beyond ``largest_z`` in any frame, by its number.

    Training calls it for every part before the first step: what is wrong with a test frame is not found after it.
    """
    in_ang = dataset.to_units(Units(dataset.units.energy, "Ang"))
    for number, frame in enumerate(in_ang):
        with error_context(in_ang.where(number)):
            if frame.z.max() > largest_z:
                strange = sorted({chemical_symbols[z] for z in frame.z if z > largest_z})
                raise InputError(
                    f"holds {', '.join(strange)}; this network has elements up to {chemical_symbols[largest_z]}"
                )
            check_geometry(frame.positions, cutoff, frame.cell, frame.pbc)
