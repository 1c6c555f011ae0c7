"""Is it still the same file? A digest of data files that is quick for large ones, and the split of a run beside it.

A fingerprint is the size of a file and the BLAKE2 digest of up to 64 blocks of 64 KiB spread evenly over it (files up
to 4 MiB: of all of it). The time of change is not looked at, so that copies agree. A change inside a large file that
keeps its size and misses every block goes unnoticed; new, removed and reordered frames do not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.atoms.data.load import DEMO, data_files
from dcnn.atoms.data.packed import LAYOUT
from dcnn.atoms.dataset import Dataset
from dcnn.errors import InputError
from dcnn.guard import decoding, error_context, read_json
from dcnn.safe_files import write_whole

BLOCK, BLOCKS = 64 * 1024, 64
FORMAT = 1


Files = str | Path | Sequence[str | Path]


def fingerprint(files: Files) -> dict[str, Any]:
    """``{"bytes", "digest"}`` of a file, or of all files of a list, pattern or folder in their order."""
    digest, total = hashlib.blake2b(digest_size=16), 0
    for file in data_files(files):
        if file.is_dir():  # LMDB, or flat arrays with a digest of their own
            file = file / ("data.mdb" if (file / "data.mdb").exists() else LAYOUT)
        size = file.stat().st_size
        digest.update(f"{size};".encode())
        total += size
        with file.open("rb") as stream:
            if size <= BLOCK * BLOCKS:
                digest.update(stream.read())
                continue
            for start in np.linspace(0, size - BLOCK, BLOCKS).astype(np.int64):
                stream.seek(int(start))
                digest.update(stream.read(BLOCK))
    return {"bytes": total, "digest": digest.hexdigest()}


def check(files: Files, stored: Mapping[str, Any]) -> None:
    """Refuses files that are not those the fingerprint was taken of."""
    found = fingerprint(files)
    if found != dict(stored):
        names = str(files) if isinstance(files, (str, Path)) else ", ".join(map(str, files))
        raise InputError(
            f"{names}: changed since the run began ({found['bytes']:,} bytes now, {stored['bytes']:,} then): the "
            "frames may not be those that were trained and tested on. Put the old file back, or train anew"
        )


def save_split(path: Path, parts: Mapping[str, Dataset]) -> None:
    """Writes for each part its files, their fingerprint and the numbers of its frames; whole or not at all."""
    prints = {files: fingerprint(files) if files else None for files in {part.files for part in parts.values()}}
    content = {
        name: {
            "files": [_portable(file) for file in part.files],
            "fingerprint": prints[part.files],
            "frames": part.numbers.tolist(),
        }
        for name, part in parts.items()
    }
    write_whole(path, json.dumps({"format": FORMAT, "parts": content}))


def _portable(file: str) -> str:
    """The frames of the package are found wherever it is installed."""
    return "demo" if file == str(DEMO) else file


def load_split(path: Path, read: Callable[[list[str]], Dataset]) -> dict[str, Dataset]:
    """The parts that :func:`save_split` wrote. All files are checked, then each set is read once by ``read(files)``."""
    content = read_json(path, "split of a run")
    with decoding(path, "split of a run"):
        if content["format"] != FORMAT:
            raise InputError(f"{path}: written by a newer dcnn (format {content['format']}, this one reads {FORMAT})")
        parts = {str(name): _part(entry) for name, entry in content["parts"].items()}
    for files, stored, _ in parts.values():
        if not files:
            raise InputError(f"{path}: the frames were given as Python objects; pass them again")
        check(files, stored)
    datasets = {files: read(list(files)) for files in {files for files, _, _ in parts.values()}}
    with error_context(str(path)):
        return {name: datasets[files].select(numbers) for name, (files, _, numbers) in parts.items()}


def _part(entry: Any) -> tuple[tuple[str, ...], dict[str, Any], np.ndarray]:
    """(files, fingerprint, frame numbers) of one entry; raises where it is not of this kind."""
    files, stored = tuple(map(str, entry["files"])), entry["fingerprint"]
    if files and not (isinstance(stored["bytes"], int) and isinstance(stored["digest"], str)):
        raise ValueError("no fingerprint")
    numbers = np.array(entry["frames"]).reshape(-1)
    if len(numbers) and numbers.dtype.kind != "i":
        raise ValueError("frame numbers are whole")
    return files, stored, numbers.astype(np.int64)
