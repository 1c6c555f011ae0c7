"""A known solution: one array per field on a rectangular grid."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dcnn.errors import InputError

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Solution:
    """Fields on a grid. Axes of every array follow the order of `grid`, e.g. [x, t] or [x, y, t].

    >>> s = Solution({"x": np.arange(3.0), "t": np.arange(2.0)}, {"u": np.zeros((3, 2))})
    >>> s.points().shape, s.values().shape, s.at("t", slice(-1, None)).shape
    ((6, 2), (6, 1), (3, 1))
    """

    grid: dict[str, Array]
    fields: dict[str, Array]
    source: str = ""

    def __post_init__(self) -> None:
        for axis, positions in self.grid.items():
            if np.ndim(positions) != 1 or not len(positions) or not np.isfinite(positions).all():
                raise InputError(f"solution: axis {axis!r} must be a list of finite numbers")
        for name, values in self.fields.items():
            if np.shape(values) != self.shape:
                raise InputError(f"solution: field {name!r} has shape {np.shape(values)}, its grid {self.shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return tuple(len(axis) for axis in self.grid.values())

    def points(self) -> Array:
        """All grid points, (N, coordinates)."""
        return np.stack([a.ravel() for a in np.meshgrid(*self.grid.values(), indexing="ij")], axis=1)

    def values(self) -> Array:
        """The fields at :meth:`points`, (N, fields)."""
        return np.stack([f.ravel() for f in self.fields.values()], axis=1)

    def at(self, axis: str, index: slice | np.ndarray) -> Solution:
        """The part of the solution with `index` on `axis`, e.g. ``at("t", slice(-20, None))``."""
        cut = tuple(index if name == axis else slice(None) for name in self.grid)
        return replace(
            self,
            grid={n: a[index] if n == axis else a for n, a in self.grid.items()},
            fields={n: f[cut] for n, f in self.fields.items()},
        )
