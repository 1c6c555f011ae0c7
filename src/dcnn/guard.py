"""Files from anywhere: one guard at each boundary turns what a decoder raises into an :class:`InputError`.

Sizes that a file declares are compared with the file before anything is allocated, so that a small file cannot take
the memory: it may unfold to ``ALLOWANCE`` bytes, or to ``RATIO`` times its own size if that is more.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.errors import DcnnError, InputError

ALLOWANCE = 64 * 1024**2  # bytes
RATIO = 20


@contextmanager
def decoding(where: str | Path, what: str) -> Iterator[None]:
    """``with decoding(path, "npz file")``: every exception of a decoder says file, what was expected and why not."""
    try:
        yield
    except DcnnError:
        raise
    except FileNotFoundError:
        raise InputError(f"{where}: no such file") from None
    except Exception as error:  # decoders raise whatever they trip over
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{where}: not a readable {what}, perhaps damaged or cut off ({type(error).__name__}: {reason})"
        ) from None


@contextmanager
def error_context(where: str) -> Iterator[None]:
    """Puts file and frame in front of what an :class:`InputError` says."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def check_unfolded(path: Path, declared: int, what: str = "it") -> None:
    """Refuses what would take far more memory than the file that declares it."""
    if declared > max(ALLOWANCE, RATIO * path.stat().st_size):
        raise InputError(f"{path}: {what} unfolds to {declared:,} bytes, far more than the file; refused as unsafe")


def read_text(path: Path, what: str, largest: int = ALLOWANCE) -> str:
    """The text of a file that has no reason to be large."""
    with decoding(path, what):
        if path.stat().st_size > largest:
            raise InputError(f"{path}: {path.stat().st_size:,} bytes are too many for {what} (at most {largest:,})")
        return path.read_text(encoding="utf-8")


def read_json(path: Path, what: str) -> Any:
    """What a JSON file holds."""
    text = read_text(path, what)
    with decoding(path, what):
        return json.loads(text)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file by name, never objects; shapes must fit the bytes that are there."""
    arrays = {}
    with decoding(path, "npz file"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        check_unfolded(path, sum(member.file_size for member in members))
        for member in members:
            with archive.open(member) as file:
                arrays[member.filename.removesuffix(".npy")] = read_array(file, member.file_size)
    return arrays


def read_array(file: Any, size: int) -> np.ndarray:
    """One array in numpy's own format, of a file of ``size`` bytes."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(file)
    if dtype.hasobject:
        raise ValueError("arrays of Python objects are not read; write numbers")
    if math.prod(shape) * dtype.itemsize != size - file.tell():
        raise ValueError(f"an array of shape {shape} does not fit the {size} bytes that are there")
    return np.ndarray(shape, dtype, file.read(), order="F" if fortran else "C")
