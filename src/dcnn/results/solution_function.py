"""A trained network as a function of named coordinates, with derivatives by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dcnn.derivatives import partials
from dcnn.errors import InputError, unknown
from dcnn.safe_files import written_beside

CHUNK = 16384  # points evaluated at once


class SolutionFunction:
    """``solution(t=1.0, x=np.linspace(0, 1, 50))``: arrays of one shape, or points (N, coordinates) as one array.

    One field comes as an array of the shape of the coordinates, several as {field: array}.
    """

    def __init__(self, network: nn.Module, coordinates: Sequence[str], fields: Sequence[str]) -> None:
        self.network, self.coordinates, self.fields = network, tuple(coordinates), tuple(fields)

    def __call__(self, points: Any = None, **named: Any) -> Any:
        return self.partials("", points, **named)

    def partials(self, derivative: str, points: Any = None, **named: Any) -> Any:
        """A derivative such as "xx" or "xt" ("" is the value) of every field."""
        rows, shape = self._rows(points, named)
        dtype = next(self.network.parameters()).dtype
        found = []
        for part in torch.split(torch.as_tensor(rows, dtype=dtype), CHUNK):
            with torch.no_grad():
                values = partials(self.network, part, [derivative], self.coordinates)[derivative]
            found.append(values.double().reshape(len(part), -1).numpy())
        columns = np.concatenate(found)  # (N, fields)
        arrays = {name: columns[:, n].reshape(shape) for n, name in enumerate(self.fields)}
        return arrays if len(arrays) > 1 else arrays[self.fields[0]]

    def export(self, path: str | Path) -> None:
        """Writes points (N, coordinates) → fields (N, fields) as a file for `torch.export.load`, without dcnn."""
        example = torch.zeros(3, len(self.coordinates), dtype=next(self.network.parameters()).dtype)
        rows = torch.export.Dim("points", min=1)
        with written_beside(Path(path)) as partial:
            torch.export.save(torch.export.export(self.network, (example,), dynamic_shapes=({0: rows},)), partial)

    def _rows(self, points: Any, named: dict[str, Any]) -> tuple[np.ndarray, tuple[int, ...]]:
        if points is not None:
            rows = np.asarray(points, dtype=np.float64)
            rows = rows[:, None] if rows.ndim == 1 and len(self.coordinates) == 1 else rows
            if named or rows.ndim != 2 or rows.shape[1] != len(self.coordinates):
                raise InputError(
                    f"points have the shape {rows.shape}; give (N, {len(self.coordinates)}) for "
                    f"{', '.join(self.coordinates)}, or each of these by name"
                )
            return rows, (len(rows),)
        for name in named:
            if name not in self.coordinates:
                raise unknown("coordinate", name, self.coordinates)
        if missing := [name for name in self.coordinates if name not in named]:
            raise InputError(f"give {', '.join(missing)} too: the solution is a function of all its coordinates")
        arrays = np.broadcast_arrays(*(np.asarray(named[name], dtype=np.float64) for name in self.coordinates))
        return np.stack([array.ravel() for array in arrays], 1), arrays[0].shape
