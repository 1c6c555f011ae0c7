"""OC20 / OC22 structure-to-energy-and-forces files (``.lmdb``): pickled PyG ``Data`` by number, eV and Å."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.atoms.data.frame_checks import LABELS, Require, check_frame
from dcnn.atoms.data.label_names import stress_of
from dcnn.atoms.data.lmdb_pages import LmdbPages
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.frame_arrays import GROUP, WEIGHT
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError
from dcnn.guard import ALLOWANCE, RATIO, decoding, error_context
from dcnn.unpickle import Bag, safe_loads

# our field -> the names it goes by, first found wins
FIELDS = {
    "positions": ("pos", "positions"),
    "z": ("atomic_numbers", "z"),
    "cell": ("cell",),
    "pbc": ("pbc",),
    "energy": ("energy", "y", "y_relaxed"),
    "forces": ("forces", "force"),
    "stress": ("stress",),
}
EXTRA = ("tags", "fixed", "sid", "fid", "natoms", "oc22", "nads", GROUP, WEIGHT)


class LmdbFrames(Sequence[Structure]):
    """Frames of one LMDB file, each read and unpickled when asked for."""

    def __init__(self, path: Path, require: Require, keys: dict[str, str]) -> None:
        self.path, self.require, self.keys = path, require, keys
        self._pages: LmdbPages | None = None
        with decoding(path, "LMDB file"):
            length = self._open().get(b"length")
            if length is not None:
                self._length = int(safe_loads(length, f"{path}, key 'length'"))
            else:
                self._length = sum(key.isdigit() for key in self._open())
        if self._length <= 0:
            raise InputError(f"{path}: no frames in this file")
        if self._length > self._open().entries:
            raise InputError(f"{path}: says it has {self._length} frames, but holds {self._open().entries} entries")

    def __len__(self) -> int:
        return self._length

    def where(self, number: int) -> str:
        return f"{self.path}, frame {number}"

    def __getitem__(self, number: Any) -> Any:
        where = self.where(number)
        with decoding(where, "LMDB record"), error_context(where):
            raw = self._open().get(str(number).encode("ascii"))
            if raw is None:
                raise InputError(f"missing key {number} (the file says it has {self._length} frames)")
            record = safe_loads(inflated(raw), where)
            frame = structure_of(record, self.keys)
        return check_frame(frame, where, self.require, self.keys)

    def _open(self) -> LmdbPages:
        if self._pages is None:  # opened late so that a pickled dataset opens its own in every process
            self._pages = LmdbPages(self.path)
        return self._pages

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pages": None}


def inflated(raw: bytes) -> bytes:
    """The record itself, whether or not it was written through zlib (a pickle never begins with 0x78)."""
    if raw[:1] != b"\x78":
        return raw
    unfolding = zlib.decompressobj()
    found = unfolding.decompress(raw, max(ALLOWANCE // 8, RATIO * len(raw)))
    if not unfolding.eof:
        raise InputError(f"the record is cut off, or unfolds to more than {len(found):,} bytes; refused as unsafe")
    return found


def structure_of(record: Any, keys: dict[str, str]) -> Structure:
    """The frame in an unpickled record: a PyG object of either layout, or a dictionary."""
    stored = record.fields() if isinstance(record, Bag) else record
    if not isinstance(stored, dict):
        raise InputError(f"the record is a {type(record).__name__}, not a PyG Data object")
    found: dict[str, Any] = {}
    for field, names in (FIELDS | {field: (key,) for field, key in keys.items()}).items():
        value = next((stored[name] for name in names if stored.get(name) is not None), None)
        if value is not None:
            found[field] = np.asarray(value)
        elif field in ("positions", "z"):
            raise InputError(f"missing {names[0]}; the record holds {', '.join(sorted(map(str, stored)))}")
    z = found["z"].reshape(-1)
    if not np.array_equal(z, np.rint(z)):
        raise InputError("atomic_numbers are not whole numbers")
    cell = found["cell"].reshape(-1, 3) if "cell" in found else None
    return Structure(
        z=z.astype(np.int64),
        positions=found["positions"],
        cell=cell,
        pbc=found["pbc"].reshape(-1) if "pbc" in found else None,
        energy=float(found["energy"].reshape(-1)[0]) if "energy" in found else None,
        forces=found.get("forces"),
        stress=stress_of(found, cell),
        info={name: stored[name] for name in EXTRA if stored.get(name) is not None},
    )


def read_lmdb(
    path: str | Path,
    units: Units | str | None = None,
    force_sign: int = 1,
    require: Require = LABELS,
    keys: dict[str, str] | None = None,
) -> Dataset:
    """Frames of an S2EF LMDB file, streamed: nothing but the frame asked for is in memory. eV and Å."""
    path = Path(path)
    return Dataset(LmdbFrames(path, require, keys or {}), units or "eV", str(path), path.stem, force_sign)
