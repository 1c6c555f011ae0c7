"""OC20 / OC22 structure-to-energy-and-forces files (``.lmdb``): pickled PyG ``Data`` by number, eV and Å."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import lmdb
import numpy as np

from dcnn.atoms.data.check import LABELS, at, check_frame
from dcnn.atoms.data.unpickle import Bag, safe_loads
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError

# our field -> the names it goes by, first found wins
FIELDS = {
    "positions": ("pos", "positions"),
    "z": ("atomic_numbers", "z"),
    "cell": ("cell",),
    "energy": ("energy", "y", "y_relaxed"),
    "forces": ("forces", "force"),
    "stress": ("stress",),
}
EXTRA = ("tags", "fixed", "sid", "fid", "natoms", "oc22", "nads")


class LmdbFrames(Sequence[Structure]):
    """Frames of one LMDB file, each read and unpickled when asked for."""

    def __init__(self, path: Path, require: Sequence[str]) -> None:
        self.path = path
        self.require = tuple(require)
        self._environment: Any = None
        with self._open().begin() as transaction:
            length = transaction.get(b"length")
            if length is not None:
                self._length = int(safe_loads(length, f"{path}, key 'length'"))
            else:
                self._length = sum(key.isdigit() for key, _ in transaction.cursor())
        if self._length == 0:
            raise InputError(f"{path}: no frames in this file")

    def __len__(self) -> int:
        return self._length

    def where(self, number: int) -> str:
        return f"{self.path}, frame {number}"

    def __getitem__(self, number: Any) -> Any:
        where = self.where(number)
        with self._open().begin() as transaction:
            raw = transaction.get(str(number).encode("ascii"))
        if raw is None:
            raise InputError(f"{where}: missing key {number} (the file says it has {self._length} frames)")
        record = safe_loads(inflated(raw), where)
        with at(where):
            frame = structure_of(record)
        return check_frame(frame, where, self.require)

    def _open(self) -> Any:
        if self._environment is None:  # opened late so that a pickled dataset opens its own in every process
            self._environment = _environment(self.path)
        return self._environment

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_environment": None}


_OPEN: WeakValueDictionary[str, Any] = WeakValueDictionary()


def _environment(path: Path) -> Any:
    """The file opened for reading; LMDB allows that once a process, so that datasets of one file share it."""
    key = str(path.resolve())
    found = _OPEN.get(key)
    if found is None:
        try:
            found = lmdb.open(
                key, subdir=path.is_dir(), readonly=True, lock=False, readahead=False, meminit=False, max_spare_txns=4
            )
        except lmdb.Error as error:
            raise InputError(f"{path}: not a readable LMDB file ({error})") from None
        _OPEN[key] = found
    return found


def inflated(raw: bytes) -> bytes:
    """The record itself, whether or not it was written through zlib (a pickle never begins with 0x78)."""
    return zlib.decompress(raw) if raw[:1] == b"\x78" else raw


def structure_of(record: Any) -> Structure:
    """The frame in an unpickled record: a PyG object of either layout, or a dictionary."""
    stored = record.fields() if isinstance(record, Bag) else record
    if not isinstance(stored, dict):
        raise InputError(f"the record is a {type(record).__name__}, not a PyG Data object")
    found: dict[str, Any] = {}
    for field, names in FIELDS.items():
        value = next((stored[name] for name in names if stored.get(name) is not None), None)
        if value is not None:
            found[field] = np.asarray(value)
        elif field in ("positions", "z"):
            raise InputError(f"missing {names[0]}; the record holds {', '.join(sorted(map(str, stored)))}")
    z = found["z"].reshape(-1)
    if not np.array_equal(z, np.rint(z)):
        raise InputError("atomic_numbers are not whole numbers")
    if "stress" in found and found["stress"].size != 9:
        raise InputError(f"stress has shape {found['stress'].shape}, expected (3, 3)")
    return Structure(
        z=z.astype(np.int64),
        positions=found["positions"],
        cell=found["cell"].reshape(-1, 3) if "cell" in found else None,
        energy=float(found["energy"].reshape(-1)[0]) if "energy" in found else None,
        forces=found.get("forces"),
        stress=found["stress"].reshape(3, 3) if "stress" in found else None,
        info={name: stored[name] for name in EXTRA if stored.get(name) is not None},
    )


def read_lmdb(
    path: str | Path,
    units: Units | str | None = None,
    force_sign: int = 1,
    require: Sequence[str] = LABELS,
) -> Dataset:
    """Frames of an S2EF LMDB file, streamed: nothing but the frame asked for is in memory. eV and Å."""
    path = Path(path)
    return Dataset(LmdbFrames(path, require), units or "eV", str(path), path.stem, force_sign)
