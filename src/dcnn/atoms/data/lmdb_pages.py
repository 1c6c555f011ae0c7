"""An LMDB file read page by page in Python, with every offset checked.

LMDB's own library trusts the file: a truncated or altered one ends the process (SIGBUS, SIGSEGV). A lookup walks
the B+ tree of the main database from its root to a leaf, as the library does, and costs some 20 µs.
Layout (64-bit, little-endian): pages 0 and 1 describe the database, the one with the later transaction counts.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from dcnn.guard import decoding

_PAGE = struct.Struct("<QHHHH")  # number, padding, flags, end and start of the free space
_META = struct.Struct("<16xIIQQ IHHQQQQQ IHHQQQQQ QQ")  # magic, version, address, size, two databases, last page, txn
_NODE = struct.Struct("<HHHH")  # low and high half of a size or a page, flags, size of the key
HELD = 64 * 1024**2  # bytes read before their pages are given back
_MAGIC, _VERSION, _NO_PAGE = 0xBEEFC0DE, 1, 2**64 - 1
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
_BIG, _DEEPEST = 1, 32


class LmdbPages:
    """Keys and values of the main database of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path / "data.mdb" if path.is_dir() else path
        with decoding(path, "LMDB file"), self.path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._read = 0
            first = _META.unpack_from(self._map, 0)
            self._page_size = first[4]
            if not 256 <= self._page_size <= 65536:
                raise ValueError(f"pages of {self._page_size} bytes")
            metas = [meta for meta in (first, _META.unpack_from(self._map, self._page_size)) if meta[0] == _MAGIC]
            if not metas or metas[0][1] != _VERSION:
                raise ValueError("no LMDB header")
            newest = max(metas, key=lambda meta: meta[-1])
            self.entries, self._root, last = newest[18], newest[19], newest[20]
            if (last + 1) * self._page_size > len(self._map):
                raise ValueError(f"{len(self._map):,} bytes are there, {(last + 1) * self._page_size:,} expected")

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None where there is none."""
        number = self._root
        for _ in range(_DEEPEST):
            if number == _NO_PAGE:
                return None
            flags, nodes = self._page(number)
            low, high = (1 if flags & _BRANCH else 0), len(nodes)  # the first key of a branch is empty: below all
            while low < high:
                middle = (low + high) // 2
                if self._key(nodes[middle]) <= key:
                    low = middle + 1
                else:
                    high = middle
            if flags & _LEAF:
                found = low and self._key(nodes[low - 1]) == key
                return self._value(nodes[low - 1]) if found else None
            number = self._child(nodes[low - 1])
        raise ValueError("the pages of the file form a circle")

    def __iter__(self) -> Iterator[bytes]:
        """All keys; no more than the file says it has."""
        left = self.entries
        stack = [] if self._root == _NO_PAGE else [self._root]
        seen = 0
        while stack:
            flags, nodes = self._page(stack.pop())
            seen += 1
            if seen * self._page_size > len(self._map):
                raise ValueError("the pages of the file form a circle")
            if flags & _BRANCH:
                stack.extend(self._child(node) for node in reversed(nodes))
                continue
            for node in nodes:
                left -= 1
                if left < 0:
                    raise ValueError(f"more keys than the {self.entries} it says it has")
                yield self._key(node)

    def _page(self, number: int) -> tuple[int, list[int]]:
        """Flags of a page and where in the file its nodes begin."""
        start = number * self._page_size
        _, _, flags, lower, _ = _PAGE.unpack_from(self._map, start)
        count = (lower - _PAGE.size) // 2
        if not flags & (_BRANCH | _LEAF) or not 0 <= count <= self._page_size // 2 or (flags & _BRANCH and count == 0):
            raise ValueError(f"page {number} is damaged")
        return flags, [start + at for at in struct.unpack_from(f"<{count}H", self._map, start + _PAGE.size)]

    def _key(self, node: int) -> bytes:
        size = _NODE.unpack_from(self._map, node)[3]
        return self._map[node + _NODE.size : node + _NODE.size + size]

    def _child(self, node: int) -> int:
        low, high, top, _ = _NODE.unpack_from(self._map, node)
        return low | high << 16 | top << 32

    def _value(self, node: int) -> bytes:
        low, high, flags, key_size = _NODE.unpack_from(self._map, node)
        size, start = low | high << 16, node + _NODE.size + key_size
        if flags & _BIG:
            page = struct.unpack_from("<Q", self._map, start)[0] * self._page_size
            if not _PAGE.unpack_from(self._map, page)[2] & _OVERFLOW:
                raise ValueError("a value is not where its key says")
            start = page + _PAGE.size
        if start + size > len(self._map):
            raise ValueError("a value ends beyond the file")
        self._read += size + self._page_size
        if self._read > HELD and hasattr(mmap, "MADV_DONTNEED"):  # else all pages read so far count as memory
            self._read = 0
            self._map.madvise(mmap.MADV_DONTNEED)
        return self._map[start : start + size]
