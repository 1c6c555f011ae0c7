"""Who sees whom: half pair lists of one frame, computed once and kept.

A half list holds every unordered pair of atoms, and every periodic image of it, once. Directed edges 0…P−1
are the pairs (centre i, neighbour j); edges P…2P−1 are the same pairs reversed, so that the reverse of
edge e is (e + P) mod 2P.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from vesin import NeighborList

from dcnn.errors import InputError

CLOSEST = 0.1  # Å; nearer than this two atoms are the same atom written twice


@dataclass(frozen=True, eq=False)
class Pairs:
    """Half pair list of one frame: atoms ``i``, ``j`` (P,) and integer images ``shift`` (P, 3) or None."""

    n_atoms: int
    cutoff: float
    i: np.ndarray
    j: np.ndarray
    shift: np.ndarray | None

    def __len__(self) -> int:
        return len(self.i)

    @property
    def nbytes(self) -> int:
        """Memory of the list."""
        return self.i.nbytes + self.j.nbytes + (0 if self.shift is None else self.shift.nbytes)


def half_pairs(
    positions: np.ndarray, cutoff: float, cell: np.ndarray | None = None, pbc: np.ndarray | None = None
) -> Pairs:
    """Every pair with |r_j + shift·cell − r_i| < cutoff once, i ≤ j, sorted by (i, j, shift)."""
    periodic = cell is not None and pbc is not None and bool(np.any(pbc))
    if periodic:
        assert cell is not None
        assert pbc is not None
        vectors = np.linalg.norm(cell[np.asarray(pbc, bool)], axis=1)
        if np.any(vectors < 1e-6) or (np.all(pbc) and abs(np.linalg.det(cell)) < 1e-9):
            raise InputError("the cell has no volume along a periodic direction; set pbc to False or give a full cell")
    _check_spread(positions, cutoff)
    search = NeighborList(cutoff=cutoff, full_list=False, sorted=False, n_threads=1)
    box = cell if periodic else np.zeros((3, 3))
    i, j, shift, distance = search.compute(positions, box, pbc if periodic else False, "ijSd")
    near = distance < cutoff
    i, j, shift, distance = (
        i[near].astype(np.int64),
        j[near].astype(np.int64),
        shift[near].astype(np.int64),
        distance[near],
    )
    if len(distance) and distance.min() < CLOSEST:
        closest = int(distance.argmin())
        raise InputError(
            f"atoms {i[closest]} and {j[closest]} are {distance[closest]:.3g} Å apart, on top of each other; "
            "remove one of them or check the unit of length"
        )
    swap = i > j
    i, j = np.where(swap, j, i), np.where(swap, i, j)
    shift = np.where(swap[:, None], -shift, shift)
    order = np.lexsort((shift[:, 2], shift[:, 1], shift[:, 0], j, i))
    return Pairs(len(positions), cutoff, i[order], j[order], shift[order] if periodic else None)


def _check_spread(positions: np.ndarray, cutoff: float) -> None:
    """Refuses atoms strewn over a line or a plane of more than 10⁵ search cells, where vesin divides by zero."""
    extent = np.ptp(positions, axis=0)  # (3,)
    cells = np.maximum(extent / cutoff, 1.0)
    if cells.prod() > 5e4 and cells.min() < 2 * np.cbrt(cells.prod() / 1e5):
        size = " × ".join(f"{side:.4g}" for side in extent)
        raise InputError(f"the atoms lie strewn over {size} Å; check the unit of length, or what drove them apart")


class PairCache:
    """Half pair lists of numbered frames, computed when first asked for; equal lists are stored once.

    ``memory`` bounds the bytes kept; the lists used longest ago go first.
    """

    def __init__(self, cutoff: float, memory: int = 2 * 1024**3) -> None:
        self.cutoff = cutoff
        self.memory = memory
        self._kept: OrderedDict[int, Pairs] = OrderedDict()
        self._same: dict[tuple[int, bytes], Pairs] = {}
        self._users: dict[int, int] = {}
        self._bytes = 0

    def get(self, frame: int, compute: Callable[[], Pairs]) -> Pairs:
        """The list of a frame, from memory or from ``compute``."""
        if frame in self._kept:
            self._kept.move_to_end(frame)
            return self._kept[frame]
        pairs = compute()
        key = self._key(pairs)
        pairs = self._same.setdefault(key, pairs)
        if self._users.setdefault(id(pairs), 0) == 0:
            self._bytes += pairs.nbytes
        self._users[id(pairs)] += 1
        self._kept[frame] = pairs
        while self._bytes > self.memory and len(self._kept) > 1:
            self._forget(self._kept.popitem(last=False)[1])
        return pairs

    def _forget(self, pairs: Pairs) -> None:
        self._users[id(pairs)] -= 1
        if self._users[id(pairs)] == 0:
            del self._users[id(pairs)], self._same[self._key(pairs)]
            self._bytes -= pairs.nbytes

    @staticmethod
    def _key(pairs: Pairs) -> tuple[int, bytes]:
        shift = b"" if pairs.shift is None else b"s" + pairs.shift.tobytes()
        return pairs.n_atoms, pairs.i.tobytes() + pairs.j.tobytes() + shift
