"""What every frame must satisfy before it is used: finite numbers, known elements, the labels asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from dcnn.atoms.data.label_names import lookalikes, options
from dcnn.atoms.structures import Structure
from dcnn.errors import InputError

LABELS = ("energy", "forces")
ANY: Literal["any"] = "any"  # at least one label a frame
Require = Sequence[str] | Literal["any"]


def is_isolated_atom(frame: Structure) -> bool:
    """A free atom whose energy is a reference (``config_type=IsolatedAtom``, the convention of MACE)."""
    return len(frame) == 1 and str(frame.info.get("config_type", "")).lower() == "isolatedatom"


def check_frame(
    frame: Structure, where: str, require: Require = LABELS, keys: Mapping[str, str] | None = None
) -> Structure:
    """The frame itself, or an :class:`InputError` that names file, frame, field and what to do.

    keys: entries that were to be taken as labels.
    """
    if len(frame) == 0:
        raise InputError(f"{where}: the frame has no atoms; remove it")
    if frame.z.min() < 1 or frame.z.max() > 118:
        atom = int(np.flatnonzero((frame.z < 1) | (frame.z > 118))[0])
        raise InputError(f"{where}: atom {atom} has the unknown element {frame.z[atom]}; atomic numbers are 1 to 118")
    for field in ("positions", "cell", "energy", "forces", "stress"):
        value = getattr(frame, field)
        if value is not None and not np.isfinite(value).all():
            _refuse_numbers(field, np.atleast_1d(value), where)
    missing = [field for field in LABELS if getattr(frame, field) is None]
    if require == ANY:
        missing = missing if len(missing) == len(LABELS) and frame.stress is None else []
    else:
        missing = [f for f in missing if f in require and not (f == "forces" and is_isolated_atom(frame))]
    if missing:
        similar = {k: v for k, v in unread_labels(frame).items() if v in missing}
        held = ", ".join(sorted(frame.info)) or "nothing else"
        hint = f"{options(similar)} takes it" if similar else f"Name the entry with {missing[0]}_key"
        names = {field: f"entry {key!r} for the {field}" for field, key in (keys or {}).items()}
        what = " and no ".join(names.get(field, field) for field in missing)
        raise InputError(f"{where}: no {what}. The frame also holds: {held}. {hint}, or leave the frame out")
    return frame


def _refuse_numbers(field: str, value: np.ndarray, where: str) -> None:
    """One message for a number that is none: an energy, an entry, or the forces of some atoms."""
    atoms = np.isnan(value).all(axis=1) if field == "forces" else np.zeros(1, bool)
    if atoms.any() and np.isfinite(value[~atoms]).all():
        raise InputError(
            f"{where}: forces of {int(atoms.sum())} of {len(atoms)} atoms are NaN (the first is atom "
            f"{int(atoms.argmax())}); a frame has the forces of all its atoms or none: label it again, or remove them"
        )
    what = "" if field == "energy" else f" at {np.argwhere(~np.isfinite(value))[0].tolist()}"
    raise InputError(f"{where}: {field} is NaN or infinite{what}; remove the frame or label it again")


def unread_labels(frame: Structure) -> dict[str, str]:
    """Entry → field of what looks like a label that the frame has no other of."""
    stress = frame.stress is not None
    has = {"energy": frame.energy is not None, "forces": frame.forces is not None, "stress": stress, "virial": stress}
    return {name: field for name, field in lookalikes(frame.info, len(frame)).items() if not has[field]}
