"""MD17 and revised MD17 files (``.npz``): one molecule, many frames, kcal/mol and Å."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.atoms.data.frame_checks import ANY, LABELS, Require, check_frame
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError, unknown
from dcnn.guard import decoding, read_arrays

# field of a frame -> its key, for each set of labels
LAYOUTS = {
    "md17": {
        "z": "z",
        "positions": "R",
        "energy": "E",
        "forces": "F",
        "cell": "cell",
        "stress": "stress",
        "pbc": "pbc",
    },
    "rmd17": {"z": "nuclear_charges", "positions": "coords", "energy": "energies", "forces": "forces"},
    "rmd17/md17": {
        "z": "nuclear_charges",
        "positions": "coords",
        "energy": "old_energies",
        "forces": "old_forces",
    },
}
INDEX_KEYS = ("old_indices", "index")  # place of a frame in the trajectory it was drawn from


class ArrayFrames(Sequence[Structure]):
    """Frames held as arrays: z (n,) or (M, n), positions (M, n, 3), energy (M,), forces (M, n, 3), pbc (M, 3).

    ``lacks_energy`` … (M,) marks the frames without that entry where only some have it.
    """

    def __init__(self, arrays: dict[str, np.ndarray], path: Path) -> None:
        self.arrays, self.path = arrays, path
        self.places = arrays.get("index")

    def __len__(self) -> int:
        return len(self.arrays["positions"])

    def where(self, number: int) -> str:
        return f"{self.path}, frame {number}"

    def __getitem__(self, number: Any) -> Any:
        a = self.arrays
        held = {
            name: a[name][number]
            for name in ("cell", "pbc", "energy", "forces", "stress")
            if name in a and not (f"lacks_{name}" in a and a[f"lacks_{name}"][number])
        }
        if "energy" in held:
            held["energy"] = float(held["energy"])
        return Structure(
            z=a["z"] if a["z"].ndim == 1 else a["z"][number],
            positions=a["positions"][number],
            info={"index": int(a["index"][number])} if "index" in a else {},
            **held,
        )


def read_npz(
    path: str | Path,
    labels: str | None = None,
    units: Units | str | None = None,
    force_sign: int = 1,
    require: Require = LABELS,
    keys: dict[str, str] | None = None,
) -> Dataset:
    """Frames of an MD17 (``E F R z``) or rMD17 (``nuclear_charges coords energies forces``) file.

    An MD17 file may also hold ``cell`` and ``stress`` (M, 3, 3) and ``pbc`` (M, 3). ``labels="md17"`` on an rMD17
    file takes ``old_energies`` and ``old_forces``, the original labels of the same frames; the default, ``"rmd17"``,
    the revised ones; ``keys`` names entries for ``energy``, ``forces`` and ``stress``. Units are kcal/mol and Å
    unless the file (``e_unit``, ``r_unit``) or ``units`` says so; if both do, they must agree.
    """
    path = Path(path)
    stored = read_arrays(path)
    layout = LAYOUTS[_layout(path, stored, labels)] | (keys or {})
    if "virial" in layout:
        raise InputError(f"{path}: virials are read from files of ASE only; give a stress in an npz file")
    with decoding(path, "npz file"):
        arrays = _arrays(path, stored, layout, require, keys or {})
        for key in INDEX_KEYS:
            if key in stored and stored[key].shape == (len(arrays["positions"]),) and stored[key].dtype.kind in "iu":
                arrays["index"] = stored[key].astype(np.int64)
                break
        declared = _units(path, stored, units)
    return Dataset(ArrayFrames(arrays, path), declared, str(path), path.stem, force_sign)


def _layout(path: Path, stored: dict[str, np.ndarray], labels: str | None) -> str:
    if labels not in (None, "md17", "rmd17"):
        raise unknown("labels", labels, ("md17", "rmd17"))
    if "nuclear_charges" in stored or "coords" in stored:
        return "rmd17/md17" if labels == "md17" else "rmd17"
    if "R" in stored or "z" in stored:
        if labels == "rmd17":
            raise InputError(f"{path}: an MD17 file has no revised labels; leave labels out or use an rMD17 file")
        return "md17"
    raise InputError(
        f"{path}: neither an MD17 file (keys E, F, R, z) nor an rMD17 file (nuclear_charges, coords, "
        f"energies, forces); it holds {', '.join(sorted(stored)) or 'nothing'}"
    )


def _arrays(
    path: Path, stored: dict[str, np.ndarray], layout: dict[str, str], require: Require, keys: Iterable[str]
) -> dict[str, np.ndarray]:
    """The arrays of a layout as int64/float64 of the right shape, every number finite."""
    needed = {"z", "positions", *keys, *(() if require == ANY else require)}
    missing = [key for field, key in layout.items() if key not in stored and field in needed]
    if missing:
        raise InputError(f"{path}: missing key {', '.join(missing)}; the file holds {', '.join(sorted(stored))}")
    positions_key = layout["positions"]
    positions = stored[positions_key]
    if positions.ndim != 3 or positions.shape[2] != 3:
        raise InputError(f"{path}: {positions_key} has shape {positions.shape}, expected (frames, atoms, 3)")
    frames, atoms = positions.shape[:2]
    if frames == 0:
        raise InputError(f"{path}: no frames in this file")
    shapes: dict[str, list[tuple[int, ...]]] = {
        "z": [(atoms,), (frames, atoms)],
        "positions": [(frames, atoms, 3)],
        "energy": [(frames,), (frames, 1)],
        "forces": [(frames, atoms, 3)],
        "cell": [(frames, 3, 3)],
        "stress": [(frames, 3, 3)],
        "pbc": [(frames, 3)],
    }
    layout = layout | {f"lacks_{field}": f"lacks_{key}" for field, key in layout.items() if field not in ("z", "pbc")}
    shapes |= {field: [(frames,)] for field in layout if field.startswith("lacks_")}
    arrays = {}
    for field, key in layout.items():
        if key not in stored:
            continue
        array = stored[key]
        if array.shape not in shapes[field]:
            expected = " or ".join(map(str, shapes[field]))
            raise InputError(f"{path}: {key} has shape {array.shape}, expected {expected} to fit {positions_key}")
        flags = field == "pbc" or field.startswith("lacks_")
        if array.dtype.kind not in ("b" if flags else "iuf"):
            raise InputError(f"{path}: {key} holds {array.dtype}, not {'true and false' if flags else 'numbers'}")
        array = array.astype(np.bool_ if flags else np.int64 if field == "z" else np.float64)
        arrays[field] = array.reshape(frames) if field == "energy" else array
    partial = any(name.startswith("lacks_") for name in arrays) or not arrays.keys() & set(LABELS)
    if partial or _suspicious(arrays):
        for number, frame in enumerate(ArrayFrames(arrays, path)):
            check_frame(frame, f"{path}, frame {number}", require)
    return arrays


def _suspicious(arrays: dict[str, np.ndarray]) -> bool:
    z = arrays["z"]
    finite = all(np.isfinite(array).all() for array in arrays.values())
    return not finite or z.size == 0 or bool(z.min() < 1 or z.max() > 118)


def _units(path: Path, stored: dict[str, np.ndarray], given: Units | str | None) -> Units:
    """Units named in the file (sGDML's ``e_unit`` and ``r_unit``), by the user, or those of MD17."""
    names = [str(stored[key]) if key in stored else default for key, default in _UNIT_KEYS.items()]
    declared = Units(*names)
    if given is None:
        return declared
    wanted = Units.parse(given)
    if wanted != declared and any(key in stored for key in _UNIT_KEYS):
        raise InputError(
            f"{path}: the file says its units are {declared.energy} and {declared.length}, "
            f"units={given!r} says otherwise; leave units out, and convert with to_units"
        )
    return wanted


_UNIT_KEYS = {"e_unit": "kcal/mol", "r_unit": "Ang"}
