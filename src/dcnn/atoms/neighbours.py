"""Who sees whom: half pair lists of one frame, computed once and kept.

A half list holds every unordered pair of atoms, and every periodic image of it, once. Directed edges 0…P−1
are the pairs (centre i, neighbour j); edges P…2P−1 are the same pairs reversed, so that the reverse of
edge e is (e + P) mod 2P.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from dcnn.errors import InputError

CLOSEST = 0.1  # Å; nearer than this two atoms are the same atom written twice
SMALL = 64  # atoms of a molecule whose pairs are all looked at: quicker than a search in cells
MOST_IMAGES = 1e5  # of a cell within the cutoff; a cell of one atom has some hundred


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
        _check_cell(positions, cutoff, cell, np.asarray(pbc, bool))
    _check_spread(np.ptp(positions, axis=0) if len(positions) else np.zeros(3), cutoff)
    if not periodic and len(positions) <= SMALL:
        i, j = np.triu_indices(len(positions), 1)
        distance = np.linalg.norm(positions[j] - positions[i], axis=1)
        near = distance < cutoff
        _check_closest(i[near], j[near], distance[near])
        return Pairs(len(positions), cutoff, i[near], j[near], None)
    from vesin import NeighborList  # imports torch, which looking at a file of molecules does not need

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
    _check_closest(i, j, distance)
    swap = i > j
    i, j = np.where(swap, j, i), np.where(swap, i, j)
    shift = np.where(swap[:, None], -shift, shift)
    order = np.lexsort((shift[:, 2], shift[:, 1], shift[:, 0], j, i))
    return Pairs(len(positions), cutoff, i[order], j[order], shift[order] if periodic else None)


def check_geometry(
    positions: np.ndarray, cutoff: float, cell: np.ndarray | None = None, pbc: np.ndarray | None = None
) -> None:
    """Refuses what :func:`half_pairs` would refuse, in a fraction of its time."""
    if cell is not None or len(positions) > 100:
        half_pairs(positions, min(cutoff, 3.0), cell, pbc)
        return
    _check_spread(np.ptp(positions, axis=0), cutoff)
    points = positions - positions.mean(0)
    square = np.square(points).sum(1)
    near = square[:, None] + square - 2 * points @ points.T < 1.0  # loosely: differences of large numbers
    near[np.tril_indices(len(positions))] = False
    for i, j in np.argwhere(near):
        _check_distance(i, j, float(np.linalg.norm(positions[i] - positions[j])))


def _check_closest(i: np.ndarray, j: np.ndarray, distance: np.ndarray) -> None:
    if len(distance):
        closest = int(distance.argmin())
        _check_distance(i[closest], j[closest], distance[closest])


def _check_distance(i: int, j: int, distance: float) -> None:
    if distance < CLOSEST:
        raise InputError(
            f"atoms {i} and {j} are {distance:.3g} Å apart, on top of each other; "
            "remove one of them or check the unit of length"
        )


def _check_cell(positions: np.ndarray, cutoff: float, cell: np.ndarray, pbc: np.ndarray) -> None:
    """Refuses cells that are flat along a periodic direction: vesin divides by zero there, or never ends."""
    vectors = cell[pbc]  # (1 to 3, 3)
    lengths = np.linalg.norm(vectors, axis=1)
    flat = not np.isfinite(lengths).all() or bool((lengths < CLOSEST).any())
    units = np.zeros((1, 3)) if flat else vectors / lengths[:, None]
    if np.linalg.svd(units, compute_uv=False)[-1] < 1e-3:
        raise InputError("the cell has no volume along a periodic direction; set pbc to False or give a full cell")
    # distance between neighbouring lattice planes of each periodic direction
    heights = lengths / np.sqrt(np.diag(np.linalg.inv(units @ units.T)))
    images = np.prod(2 * np.ceil(cutoff / heights) + 1)
    if images > MOST_IMAGES:
        raise InputError(f"{images:.3g} images of the cell lie within the cutoff of {cutoff:g} Å; check its unit")
    extent = np.ptp(positions, axis=0).max() if len(positions) else 0.0
    _check_spread(np.append(heights, [extent] * (3 - len(heights))), cutoff)


def _check_spread(size: np.ndarray, cutoff: float) -> None:
    """Refuses a line or a plane of more than 10⁵ search cells, where vesin divides by zero; size (3,): Å of the box."""
    cells = np.maximum(size / cutoff, 1.0)
    if not np.isfinite(cells.prod()) or (cells.prod() > 5e4 and cells.min() < 2 * np.cbrt(cells.prod() / 1e5)):
        text = " × ".join(f"{side:.4g}" for side in size)
        raise InputError(f"the atoms extend over {text} Å; check the unit of length, or what drove them apart")


class PairCache:
    """Half pair lists of numbered frames, computed when first asked for; equal lists are stored once, in small numbers.

    ``memory`` bounds the bytes kept; the lists used longest ago go first.
    """

    ENTRY = 200  # bytes of a frame whose list is shared

    def __init__(self, cutoff: float, memory: int) -> None:
        self.cutoff = cutoff
        self.memory = memory
        self._kept: OrderedDict[int, Pairs] = OrderedDict()
        self._same: dict[bytes, Pairs] = {}
        self._users: dict[int, int] = {}
        self._bytes = 0

    def get(self, frame: int, compute: Callable[[], Pairs]) -> Pairs:
        """The list of a frame, from memory or from ``compute``."""
        if frame in self._kept:
            self._kept.move_to_end(frame)
            return self._kept[frame]
        pairs = _small(compute())
        pairs = self._same.setdefault(self._key(pairs), pairs)
        if self._users.setdefault(id(pairs), 0) == 0:
            self._bytes += pairs.nbytes
        self._users[id(pairs)] += 1
        self._kept[frame] = pairs
        while self._bytes + self.ENTRY * len(self._kept) > self.memory and len(self._kept) > 1:
            self._forget(self._kept.popitem(last=False)[1])
        return pairs

    def _forget(self, pairs: Pairs) -> None:
        self._users[id(pairs)] -= 1
        if self._users[id(pairs)] == 0:
            del self._users[id(pairs)], self._same[self._key(pairs)]
            self._bytes -= pairs.nbytes

    @staticmethod
    def _key(pairs: Pairs) -> bytes:
        digest = blake2b(f"{pairs.n_atoms} {pairs.shift is None}".encode(), digest_size=16)
        for part in (pairs.i, pairs.j, pairs.shift):
            digest.update(b"" if part is None else part.tobytes())
        return digest.digest()


def _small(pairs: Pairs) -> Pairs:
    """The list in 32-bit numbers and 8-bit images: a quarter of the memory."""
    shift = pairs.shift
    if shift is not None and np.abs(shift).max(initial=0) < 128:
        shift = shift.astype(np.int8)
    return Pairs(pairs.n_atoms, pairs.cutoff, pairs.i.astype(np.int32), pairs.j.astype(np.int32), shift)
