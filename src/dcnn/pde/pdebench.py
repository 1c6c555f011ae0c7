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

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dcnn.errors import InputError
from dcnn.pde.solution import Array, Solution

FLOW = {"rho": "density", "v": "Vx", "p": "pressure"}  # our fields and PDEBench's data sets


class Samples(Sequence[Solution]):
    """The solutions in a file; a sample is read when it is asked for.

    ``fields`` names the components of a 2-D file (default u, v); 1-D files have u, or rho, v and p.
    """

    def __init__(self, path: str | Path, fields: Sequence[str] = ()):
        self.path = Path(path)
        try:
            self._file = h5py.File(self.path, "r")
        except FileNotFoundError:
            raise InputError(f"{self.path}: no such file") from None
        except OSError as error:
            raise InputError(f"{self.path}: not a readable HDF5 file, perhaps truncated ({error})") from None
        self.attributes: dict[str, Any] = dict(self._file.attrs)
        try:
            self._groups = sorted(k for k, v in self._file.items() if isinstance(v, h5py.Group) and "data" in v)
            self.fields, self._names, self._length = self._recognise(tuple(fields))
        except OSError as error:
            raise InputError(f"{self.path}: damaged or truncated ({error})") from None

    def _recognise(self, fields: tuple[str, ...]) -> tuple[tuple[str, ...], list[str], int]:
        if isinstance(self.attributes.get("axes"), str) and "fields" in self._file:
            names = tuple(self._file["fields"])
            ordered = tuple(sorted(names, key=[*fields, *names].index))
            return ordered, [f"fields/{name}" for name in ordered], len(self._file[f"fields/{names[0]}"])
        if self._groups:
            count = self._file[self._groups[0]]["data"].shape[-1]
            default = ("u", "v", "w")[:count] if count <= 3 else tuple(f"u{i}" for i in range(count))
            names = fields or default
            if len(names) != count:
                raise InputError(f"{self.path}: {count} fields in the file, {len(names)} expected: {', '.join(names)}")
            return names, [], len(self._groups)
        keys = set(self._file)
        flow = set(FLOW.values()) <= keys
        names_in_file = list(FLOW.values()) if flow else ["tensor"]
        missing = {*names_in_file, "x-coordinate", "t-coordinate"} - keys
        if missing or any(self._file[name].ndim != 3 for name in names_in_file):
            found = ", ".join(
                f"{k} {v.shape}" if isinstance(v, h5py.Dataset) else f"{k}/" for k, v in list(self._file.items())[:8]
            )
            raise InputError(
                f"{self.path}: not one of PDEBench's layouts read here ('tensor' [sample, t, x]; "
                f"'density', 'Vx', 'pressure'; groups with 'data' and 'grid'). Found: {found or 'nothing'}"
            )
        return (
            (tuple(FLOW) if flow else fields if len(fields) == 1 else ("u",)),
            names_in_file,
            len(self._file[names_in_file[0]]),
        )

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.path}: sample {index} of {len(self)}")
        number = range(len(self))[index]
        try:
            found = self._grouped(number) if self._groups else self._flat(number)
        except (OSError, KeyError) as error:
            raise InputError(f"{self.path}: sample {number} cannot be read, perhaps truncated ({error})") from None
        for name, values in found.fields.items():
            bad = int((~np.isfinite(values)).sum())
            if bad:
                raise InputError(f"{self.path}: sample {number}, field {name!r}: {bad} values are NaN or infinite")
        return found

    def __iter__(self) -> Iterator[Solution]:
        return (self[i] for i in range(len(self)))

    def _flat(self, index: int) -> Solution:
        if self._names[0].startswith("fields/"):
            axes = {axis: self._file[f"grid/{axis}"][:] for axis in self.attributes["axes"].split(",")}
            values = {field: self._file[name][index] for field, name in zip(self.fields, self._names, strict=True)}
            return Solution(axes, values, f"{self.path} sample {index}")
        x, t = self._file["x-coordinate"][:], self._file["t-coordinate"][:]
        arrays = [np.asarray(self._file[name][index]).T for name in self._names]  # (x, t)
        grid = {"x": x, "t": t[: arrays[0].shape[1]]}
        return Solution(grid, dict(zip(self.fields, arrays, strict=True)), f"{self.path} sample {index}")

    def _grouped(self, index: int) -> Solution:
        group = self._file[self._groups[index]]
        grid = {axis: group["grid"][axis][:] for axis in ("x", "y", "t")}
        data = np.transpose(group["data"][:], (3, 2, 1, 0))  # (field, x, y, t)
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
        file.attrs.update(attributes)
        names = FLOW if set(first.fields) == set(FLOW) else dict.fromkeys(first.fields, "tensor")
        flat = list(first.grid) == ["x", "t"] and len(set(names.values())) == len(names)
        if not flat and list(first.grid) != ["x", "y", "t"]:
            file.attrs["axes"] = ",".join(first.grid)
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
