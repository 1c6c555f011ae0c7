"""MD17 and revised MD17 files (``.npz``): one molecule, many frames, kcal/mol and Å."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.atoms.data.check import LABELS, check_frame
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError, unknown

# field of a frame -> its key, for each set of labels
LAYOUTS = {
    "md17": {"z": "z", "positions": "R", "energy": "E", "forces": "F", "cell": "cell", "stress": "stress"},
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
    """Frames held as arrays: z (n,) or (M, n), positions (M, n, 3), energy (M,), forces (M, n, 3)."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays["positions"])

    def __getitem__(self, number: Any) -> Any:
        a = self.arrays
        return Structure(
            z=a["z"] if a["z"].ndim == 1 else a["z"][number],
            positions=a["positions"][number],
            cell=a["cell"][number] if "cell" in a else None,
            energy=float(a["energy"][number]) if "energy" in a else None,
            forces=a["forces"][number] if "forces" in a else None,
            stress=a["stress"][number] if "stress" in a else None,
            info={"index": int(a["index"][number])} if "index" in a else {},
        )


def read_npz(
    path: str | Path,
    labels: str | None = None,
    units: Units | str | None = None,
    force_sign: int = 1,
    require: Sequence[str] = LABELS,
) -> Dataset:
    """Frames of an MD17 (``E F R z``) or rMD17 (``nuclear_charges coords energies forces``) file.

    An MD17 file may also hold ``cell`` and ``stress`` (M, 3, 3). ``labels="md17"`` on an rMD17 file takes
    ``old_energies`` and ``old_forces``, the original labels of the same frames; the default, ``"rmd17"``, the
    revised ones. Units are kcal/mol and Å unless the file (``e_unit``, ``r_unit``) or ``units`` says so; if
    both do, they must agree.
    """
    path = Path(path)
    stored = _read(path)
    layout = LAYOUTS[_layout(path, stored, labels)]
    arrays = _arrays(path, stored, layout, require)
    for key in INDEX_KEYS:
        if key in stored and stored[key].shape == (len(arrays["positions"]),):
            arrays["index"] = stored[key].astype(np.int64)
            break
    return Dataset(ArrayFrames(arrays), _units(path, stored, units), str(path), path.stem, force_sign)


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (OSError, ValueError, TypeError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path}: not a readable npz file ({error}); download or write it again") from None


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
    path: Path, stored: dict[str, np.ndarray], layout: dict[str, str], require: Sequence[str]
) -> dict[str, np.ndarray]:
    """The arrays of a layout as int64/float64 of the right shape, every number finite."""
    missing = [
        key for field, key in layout.items() if key not in stored and (field in require or field in ("z", "positions"))
    ]
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
    }
    arrays = {}
    for field, key in layout.items():
        if key not in stored:
            continue
        array = stored[key]
        if array.shape not in shapes[field]:
            expected = " or ".join(map(str, shapes[field]))
            raise InputError(f"{path}: {key} has shape {array.shape}, expected {expected} to fit {positions_key}")
        if array.dtype.kind not in "iuf":
            raise InputError(f"{path}: {key} holds {array.dtype}, not numbers")
        array = array.astype(np.int64 if field == "z" else np.float64)
        arrays[field] = array.reshape(frames) if field == "energy" else array
    if not all(np.isfinite(array).all() for array in arrays.values()) or _unknown_elements(arrays["z"]):
        for number, frame in enumerate(ArrayFrames(arrays)):
            check_frame(frame, f"{path}, frame {number}", ())
    return arrays


def _unknown_elements(z: np.ndarray) -> bool:
    return bool((z < 1).any() or (z > 118).any())


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
