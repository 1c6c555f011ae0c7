"""What every frame must satisfy before it is used: finite numbers, known elements, the labels asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from dcnn.atoms.structures import Structure
from dcnn.errors import InputError

LABELS = ("energy", "forces")


@contextmanager
def at(where: str) -> Iterator[None]:
    """Puts file and frame in front of what an :class:`InputError` says."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


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
            if field in require:
                held = ", ".join(sorted(frame.info)) or "nothing else"
                raise InputError(
                    f"{where}: no {field}. The frame also holds: {held}. Name the entry with "
                    f"{'energy' if field == 'energy' else 'forces'}_key, or leave the frame out"
                )
        elif not np.isfinite(value).all():
            bad = np.argwhere(~np.isfinite(np.atleast_1d(value)))[0].tolist()
            what = "" if field == "energy" else f" at {bad}"
            raise InputError(f"{where}: {field} is NaN or infinite{what}; remove the frame or label it again")
    return frame
