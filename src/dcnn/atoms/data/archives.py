"""Tar and zip archives of frames, unfolded in memory up to what a file of their size may hold."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dcnn.guard import ALLOWANCE, check_unfolded


class _Bounded(io.RawIOBase):
    """What a stream unfolds to, up to what the archive may."""

    def __init__(self, path: Path, stream: Any) -> None:
        self._path, self._stream, self._read = path, stream, 0

    def read(self, size: int = -1) -> bytes:
        found: bytes = self._stream.read(min(size, ALLOWANCE) if size >= 0 else ALLOWANCE)
        self._read += len(found)
        check_unfolded(self._path, self._read)
        return found


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files in an archive; nothing is unpacked to disk."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            check_unfolded(path, sum(member.file_size for member in archive.infolist()))
            for name in sorted(n for n in archive.namelist() if not n.endswith("/")):
                yield name, archive.read(name)
        return
    with path.open("rb") as file:
        magic = file.read(6)
    unfold = next((opened for start, opened in _UNFOLD.items() if magic.startswith(start)), open)
    with unfold(path, "rb") as stream, tarfile.open(fileobj=_Bounded(path, stream), mode="r|") as archive:
        for member in archive:
            found = archive.extractfile(member) if member.isfile() else None
            if found is not None:
                yield member.name, found.read()


_UNFOLD: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
