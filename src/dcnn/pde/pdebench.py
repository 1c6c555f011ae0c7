"""PDEBench's HDF5 files, read lazily by sample; files that `dcnn solve` wrote have the same layouts.

| layout | data | axes |
| --- | --- | --- |
| one field, 1-D | `tensor` | sample, t, x |
| 1-D compressible flow | `density`, `Vx`, `pressure` | sample, t, x |
| 2-D | groups `0000`, `0001` … with `data` and `grid/{x,y,t}` | t, y, x, field |
| all others | `fields/NAME`, `grid/AXIS` | sample, then those of the attribute `axes` |

The 1-D files also hold `x-coordinate` and `t-coordinate`; the latter has one entry more than the data. The last layout
is dcnn's own: steady problems, ordinary equations, several fields in 1-D.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dcnn.errors import InputError
from dcnn.guard import check_unfolded, decoding
from dcnn.pde.solution import Array, Solution

FLOW = {"rho": "density", "v": "Vx", "p": "pressure"}  # our fields and PDEBench's data sets


class Samples(Sequence[Solution]):
    """The solutions in a file; a sample is read when it is asked for.

    ``fields`` names the components of a 2-D file (default u, v); 1-D files have u, or rho, v and p.
    """

    def __init__(self, path: str | Path, fields: Sequence[str] = ()):
        self.path = Path(path)
        with decoding(self.path, "HDF5 file"):
            self._file = h5py.File(self.path, "r")
        try:
            with decoding(self.path, "HDF5 file"):
                self.attributes = self._attributes()
                self._groups = sorted(k for k in self._file if self._own(k) and isinstance(self._file[k], h5py.Group))
                self._groups = [k for k in self._groups if "data" in self._file[k]]
                self.fields, self._names, self._length = self._recognise(tuple(fields))
        except InputError:
            self._file.close()
            raise

    def _attributes(self) -> dict[str, Any]:
        """Attributes of a fixed size; the library may never end reading others from a damaged file."""
        fixed = [name for name in self._file.attrs if self._file.attrs.get_id(name).dtype.kind != "O"]
        found = {name: self._file.attrs[name] for name in fixed}
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}

    def _own(self, name: str) -> bool:
        """Whether a path leads to something in this file, not through a link to another."""
        parts = name.split("/")
        paths = ("/".join(parts[: n + 1]) for n in range(len(parts)))
        return all(isinstance(self._file.get(path, getlink=True), h5py.HardLink) for path in paths)

    def _array(self, name: str, axes: int) -> Any:
        """A data set of numbers that are in the file itself, and no more of them than could be."""
        found = self._file[name] if self._own(name) else None
        if not isinstance(found, h5py.Dataset) or found.external or found.is_virtual:
            raise InputError(f"{self.path}: {name} is not a data set of this file")
        if found.ndim != axes or found.dtype.kind not in "iuf":
            kind = f"shape {found.shape} and type {found.dtype}"
            raise InputError(f"{self.path}: {name} has {kind}, expected {axes} axes of numbers")
        check_unfolded(self.path, found.nbytes, name)
        return found

    def _recognise(self, fields: tuple[str, ...]) -> tuple[tuple[str, ...], list[str], int]:
        if isinstance(self.attributes.get("axes"), str) and "fields" in self._file:
            names = tuple(self._file["fields"])
            ordered = tuple(sorted(names, key=[*fields, *names].index))
            axes = len(self.attributes["axes"].split(",")) + 1
            return ordered, [f"fields/{name}" for name in ordered], len(self._array(f"fields/{names[0]}", axes))
        if self._groups:
            count = self._array(f"{self._groups[0]}/data", 4).shape[-1]
            default = ("u", "v", "w")[:count] if count <= 3 else tuple(f"u{i}" for i in range(count))
            names = fields or default
            if len(names) != count:
                raise InputError(f"{self.path}: {count} fields in the file, {len(names)} expected: {', '.join(names)}")
            return names, [], len(self._groups)
        keys = set(self._file)
        flow = set(FLOW.values()) <= keys
        names_in_file = list(FLOW.values()) if flow else ["tensor"]
        missing = {*names_in_file, "x-coordinate", "t-coordinate"} - keys
        if missing or any(getattr(self._file[name], "ndim", 0) != 3 for name in names_in_file):
            held = [(k, self._file[k]) for k in sorted(keys)[:8] if self._own(k)]
            found = ", ".join(f"{k} {v.shape}" if isinstance(v, h5py.Dataset) else f"{k}/" for k, v in held)
            raise InputError(
                f"{self.path}: not one of PDEBench's layouts read here ('tensor' [sample, t, x]; "
                f"'density', 'Vx', 'pressure'; groups with 'data' and 'grid'). Found: {found or 'nothing'}"
            )
        return (
            (tuple(FLOW) if flow else fields if len(fields) == 1 else ("u",)),
            names_in_file,
            min(len(self._array(name, 3)) for name in names_in_file),
        )

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.path}: sample {index} of {len(self)}")
        number = range(len(self))[index]
        with decoding(f"{self.path}, sample {number}", "sample"):
            found = self._grouped(number) if self._groups else self._flat(number)
        for name, values in found.fields.items():
            bad = int((~np.isfinite(values)).sum())
            if bad:
                raise InputError(f"{self.path}: sample {number}, field {name!r}: {bad} values are NaN or infinite")
        return found

    def _flat(self, index: int) -> Solution:
        if self._names[0].startswith("fields/"):
            names = self.attributes["axes"].split(",")
            axes = {axis: self._array(f"grid/{axis}", 1)[:] for axis in names}
            pairs = zip(self.fields, self._names, strict=True)
            values = {field: self._array(name, len(axes) + 1)[index] for field, name in pairs}
            return Solution(axes, values, f"{self.path} sample {index}")
        x, t = self._array("x-coordinate", 1)[:], self._array("t-coordinate", 1)[:]
        arrays = [np.asarray(self._array(name, 3)[index]).T for name in self._names]  # (x, t)
        grid = {"x": x, "t": t[: arrays[0].shape[1]]}
        return Solution(grid, dict(zip(self.fields, arrays, strict=True)), f"{self.path} sample {index}")

    def _grouped(self, index: int) -> Solution:
        group = self._groups[index]
        grid = {axis: self._array(f"{group}/grid/{axis}", 1)[:] for axis in ("x", "y", "t")}
        data = np.transpose(self._array(f"{group}/data", 4)[:], (3, 2, 1, 0))  # (field, x, y, t)
        return Solution(grid, dict(zip(self.fields, data, strict=True)), f"{self.path} sample {index}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Samples:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open(path: str | Path, fields: Sequence[str] = ()) -> Samples:
    """The samples of a PDEBench file, ``open(path)[3]`` being a :class:`Solution`."""
    return Samples(path, fields)


def write(
    path: str | Path, samples: Sequence[Solution], attributes: Mapping[str, Any], configs: Sequence[str] = ()
) -> None:
    """Write solutions of one problem in the layout PDEBench uses for their kind.

    `attributes` become attributes of the file; `configs` (YAML text) of the groups of a 2-D file.
    """
    first = samples[0]
    with h5py.File(path, "w") as file:
        file.attrs.update({k: np.bytes_(v.encode()) if isinstance(v, str) and v else v for k, v in attributes.items()})
        names = FLOW if set(first.fields) == set(FLOW) else dict.fromkeys(first.fields, "tensor")
        flat = list(first.grid) == ["x", "t"] and len(set(names.values())) == len(names)
        if not flat and list(first.grid) != ["x", "y", "t"]:
            file.attrs["axes"] = np.bytes_(",".join(first.grid).encode())
            for name in first.fields:
                file[f"fields/{name}"] = np.stack([sample.fields[name] for sample in samples])
            for axis, values in first.grid.items():
                file[f"grid/{axis}"] = values
            return
        if not flat:
            for index, sample in enumerate(samples):
                group = file.create_group(f"{index:04d}")
                group.attrs["config"] = configs[index] if configs else ""
                fields = np.stack(list(sample.fields.values()))
                group["data"] = np.transpose(fields, (3, 2, 1, 0)).astype("float32")  # (t, y, x, field)
                for axis, values in sample.grid.items():
                    group[f"grid/{axis}"] = np.asarray(values, dtype="float32")
            return
        for field, name in names.items():
            file.create_dataset(name, (len(samples), *first.fields[field].T.shape), dtype="float32")
        for index, sample in enumerate(samples):
            for field, name in names.items():
                file[name][index] = sample.fields[field].T
        file["x-coordinate"] = first.grid["x"].astype("float32")
        file["t-coordinate"] = _one_more(first.grid["t"]).astype("float32")


def _one_more(times: Array) -> Array:
    return np.append(times, 2 * times[-1] - times[-2])
