"""Frames in flat arrays, in memory or mapped from the files of a folder (``x.dcnn``): any frame is read by its number.

A folder holds one raw file a column and ``layout.json`` with their types, the units, the files the frames came from
and a digest of all that was written. Only the pages that are read are in memory, and they are given back.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dcnn.atoms.data.frame_checks import ANY, LABELS, Require, check_frame, is_isolated_atom
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.frame_arrays import GROUP, WEIGHT, FrameArrays
from dcnn.atoms.neighbours import check_geometry
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError
from dcnn.guard import decoding, error_context, read_json
from dcnn.safe_files import naming

SUFFIX, LAYOUT, FORMAT = ".dcnn", "layout.json", 1
CHUNK = 1000  # frames written at once
HELD = 64 * 1024**2  # bytes read from a mapping before its pages are given back
# column → type, numbers per row, whether a row is an atom; an optional column is left out if no frame has it
COLUMNS: dict[str, tuple[str, tuple[int, ...], bool]] = {
    "end": ("<i8", (), False),
    "z": ("u1", (), True),
    "positions": ("<f8", (3,), True),
    "forces": ("<f8", (3,), True),
    "cell": ("<f8", (3, 3), False),
    "pbc": ("?", (3,), False),
    "energy": ("<f8", (), False),
    "stress": ("<f8", (3, 3), False),
    "weight": ("<f8", (), False),
    "group": ("<i4", (), False),
    "place": ("<i8", (), False),
}
BLANK = {"forces": np.nan, "cell": 0.0, "pbc": False, "energy": np.nan, "stress": np.nan, "weight": 1.0, "group": 0}


class PackedFrames(Sequence[Structure]):
    """Frames by number out of flat columns; ``layout`` says what else is known of them."""

    def __init__(self, columns: Mapping[str, np.ndarray], layout: dict[str, Any], folder: Path | None = None) -> None:
        self.columns, self.layout, self.folder = columns, layout, folder
        self.groups = [str(group) for group in layout["groups"]]
        self.isolated = [int(number) for number in layout["isolated"]]
        self.name, self.units = str(layout["name"]), Units(*map(str, layout["units"]))
        own = [(str(folder), layout["frames"])]  # not a cache: the folder is the file
        self.sources: list[tuple[str, int]] = [(str(file), int(count)) for file, count in layout["parts"]] or own
        self._starts = np.concatenate([[0], np.cumsum([count for _, count in self.sources])])
        self._maps: list[mmap.mmap] = []
        self._read = 0

    @classmethod
    def open(cls, folder: Path) -> PackedFrames:
        """The frames of a folder; a file that is not as long as its layout says is refused."""
        layout = read_json(folder / LAYOUT, "layout of packed frames")
        with decoding(folder / LAYOUT, "layout of packed frames"):
            if layout["format"] != FORMAT:
                raise InputError(f"{folder}: format {layout['format']}, this dcnn reads {FORMAT}; convert it anew")
            maps, columns = [], {}
            for name in layout["columns"]:
                kind, shape, _ = COLUMNS[name]
                rows = int(layout["atoms" if COLUMNS[name][2] else "frames"])
                size = rows * int(np.prod(shape)) * np.dtype(kind).itemsize
                found = (folder / name).stat().st_size
                if found != size or size <= 0:
                    raise InputError(f"{folder / name}: {found:,} bytes, its layout says {size:,}; convert it anew")
                with (folder / name).open("rb") as file:
                    maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                columns[name] = np.frombuffer(maps[-1], kind).reshape(rows, *shape)
            frames = cls(columns, layout, folder)
            frames._maps = maps
            if not frames._fits():
                raise InputError(f"{folder}: its columns do not fit together; convert it anew")
        return frames

    def _fits(self) -> bool:
        """Whether every number that leads from one column or list into another leads to something."""
        sizes, codes = self.sizes, self.columns.get("group", np.zeros(1, int))
        counts = [count for _, count in self.sources]
        return bool(
            sizes.min() > 0
            and sizes.max() <= sizes.sum() == len(self.columns["z"])
            and min(counts) >= 0
            and sum(counts) == len(self)
            and 0 <= codes.min() <= codes.max() < len(self.groups)
            and all(0 <= number < len(self) for number in self.isolated)
        )

    def __reduce__(self) -> Any:  # a worker opens the files itself
        return (PackedFrames.open, (self.folder,)) if self.folder else (PackedFrames, (self.columns, self.layout))

    def __len__(self) -> int:
        return len(self.columns["end"])

    def __getitem__(self, number: Any) -> Any:
        found = self.gather(np.array([number]))
        known = {name: found.known(name)[0] for name in ("energy", "forces", "stress")}
        _, cell, pbc = found.frame(0)
        return Structure(
            found.z,
            found.positions,
            cell,
            pbc,
            energy=float(found.energy[0]) if known["energy"] else None,
            forces=found.forces if known["forces"] else None,
            stress=found.stress[0] if known["stress"] else None,
            info=self._info(number),
        )

    def _info(self, number: int) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if group := self.group([number])[0]:
            info[GROUP] = group
        if "weight" in self.columns:
            info[WEIGHT] = float(self.columns["weight"][number])
        if "place" in self.columns:
            info["index"] = int(self.columns["place"][number])
        return info

    def gather(self, numbers: np.ndarray) -> FrameArrays:
        """The frames with these numbers, in this order, as copies."""
        last = self.columns["end"][numbers]
        first = np.where(numbers > 0, self.columns["end"][numbers - 1], 0)
        counts = last - first
        rows = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())  # of the atoms
        found = {}
        for name in ("z", "positions", "forces", "cell", "pbc", "energy", "stress", "weight"):
            index = rows if COLUMNS[name][2] else numbers
            if name in self.columns:
                found[name] = self.columns[name][index]
            else:
                found[name] = np.full((len(index), *COLUMNS[name][1]), BLANK[name])
        self._give_back(72 * len(rows) + 256 * len(numbers))
        return FrameArrays(counts=counts, **found | {"z": found["z"].astype(np.int64)})

    def _give_back(self, touched: int) -> None:
        """Pages of a mapping count as memory of this process until it says that it does not need them."""
        self._read += touched
        if self._read > HELD and hasattr(mmap, "MADV_DONTNEED"):
            self._read = 0
            for each in self._maps:
                each.madvise(mmap.MADV_DONTNEED)

    def group(self, numbers: Sequence[int] | np.ndarray) -> list[str]:
        """The ``config_type`` of these frames, "" where there is none."""
        if "group" not in self.columns:
            return [""] * len(numbers)
        return [self.groups[code] for code in self.columns["group"][np.asarray(numbers)].tolist()]

    @property
    def sizes(self) -> np.ndarray:
        """(M,) atoms of every frame."""
        return np.diff(self.columns["end"], prepend=0)

    @property
    def places(self) -> np.ndarray | None:
        return np.array(self.columns["place"]) if "place" in self.columns else None

    def where(self, number: int) -> str:
        part = int(np.searchsorted(self._starts, number, side="right")) - 1
        file = self.sources[part][0] or "dataset"
        return f"{file}, frame {number - int(self._starts[part])}"

    def dataset(self, force_sign: int = 1) -> Dataset:
        """The frames as a dataset, without those that the file marks as free atoms."""
        found = Dataset(self, self.units, self.sources[0][0], self.name, force_sign)
        return found.set_aside(self.isolated) if 0 < len(self.isolated) < len(found) else found


def read_packed(
    path: Path,
    units: Units | str | None = None,
    force_sign: int = 1,
    require: Require = LABELS,
    keys: dict[str, str] | None = None,
) -> Dataset:
    """The frames of a folder that ``dcnn data convert … x.dcnn`` wrote; it states its units and has no other names."""
    if keys:
        raise InputError(f"{path}: holds labels under our own names; give {', '.join(keys)} when it is converted")
    dataset = PackedFrames.open(path).dataset(force_sign)
    if units is not None and Units.parse(units) != dataset.units:
        raise InputError(f"{path}: is in {dataset.units}; leave units out, and convert with to_units")
    for number, arrays in enumerate(dataset.chunks()):
        has = {name: arrays.known(name) for name in ("energy", "forces", "stress")}
        wrong = ~np.logical_or.reduce(list(has.values()))
        if require != ANY:
            wrong = ~np.logical_and.reduce([np.ones(len(arrays), bool), *(has[name] for name in require)])
        if wrong.any():
            entry = 4096 * number + int(wrong.argmax())
            check_frame(dataset[entry], dataset.where(entry), require)
    return dataset


class _Columns:
    """Columns being written, to files of a folder or to lists."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._files: dict[str, BinaryIO] = {}
        self._held: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}
        self._used = {"end", "z", "positions"}
        self._digest = hashlib.blake2b(digest_size=16)

    def add(self, name: str, values: np.ndarray) -> None:
        kind, _, _ = COLUMNS[name]
        array = np.ascontiguousarray(values, np.dtype(kind))
        blank = BLANK.get(name)
        if blank is None or not (np.isnan(array).all() if blank != blank else (array == blank).all()):
            self._used.add(name)
        if self.folder is None:
            self._held[name].append(array)
            return
        if name not in self._files:
            self._files[name] = (self.folder / name).open("wb")
        self._files[name].write(array.tobytes())
        self._digest.update(array.tobytes())

    def close(self) -> tuple[dict[str, np.ndarray], str]:
        """The columns that at least one frame has (of a folder: their names alone), and a digest of them."""
        for name, file in self._files.items():
            file.close()
            if name not in self._used and self.folder is not None:
                (self.folder / name).unlink()
        found = {name: np.concatenate(self._held[name]) for name in COLUMNS if name in self._used and self._held[name]}
        used = found if self.folder is None else {name: np.empty(0) for name in self._files if name in self._used}
        return used, self._digest.hexdigest()


def pack(
    dataset: Dataset,
    folder: Path | None = None,
    key: str = "",
    show: Callable[[int, int], None] | None = None,
) -> PackedFrames:
    """All frames of a dataset in one pass, in memory or in a folder, which appears whole or not at all.

    Geometries are checked on the way. key: what identifies the source of a cache. show(done, total) is called on the
    way.
    """
    partial = None if folder is None else folder.with_name(f"{folder.name}.partial")
    if partial is not None:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    try:
        with naming(folder or Path("memory")):
            packed = _packed(dataset, partial, key, show)
        if partial is None or folder is None:
            return packed
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)
    except BaseException:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
        raise
    return PackedFrames.open(folder)


def _packed(dataset: Dataset, folder: Path | None, key: str, show: Callable[[int, int], None] | None) -> PackedFrames:
    columns, groups, isolated, end = _Columns(folder), {"": 0}, list[int](), 0
    places, length = dataset.trajectory_index(), dataset.units.length_factor(Units())
    for begin in range(0, len(dataset), CHUNK):
        numbers = range(begin, min(begin + CHUNK, len(dataset)))
        frames = [dataset[number] for number in numbers]
        for number, frame in zip(numbers, frames, strict=True):
            cell = None if frame.cell is None else frame.cell * length
            with error_context(dataset.where(number)):
                check_geometry(frame.positions * length, 6.0, cell, frame.pbc)
            if is_isolated_atom(frame):
                isolated.append(number)
        arrays = FrameArrays.of(frames)
        ends = end + np.cumsum(arrays.counts)
        end = int(ends[-1])
        codes = [groups.setdefault(str(frame.info.get(GROUP, "")), len(groups)) for frame in frames]
        columns.add("end", ends)
        for name in ("z", "positions", "forces", "cell", "pbc", "energy", "stress", "weight"):
            columns.add(name, getattr(arrays, name))
        columns.add("group", np.array(codes))
        if places is not None:
            columns.add("place", places[numbers.start : numbers.stop])
        if show is not None:
            show(numbers.stop, len(dataset))
    used, digest = columns.close()
    layout = {
        "format": FORMAT,
        "frames": len(dataset),
        "atoms": end,
        "units": [dataset.units.energy, dataset.units.length],
        "name": dataset.name,
        "parts": dataset.parts() if key or folder is None else [],
        "groups": list(groups),
        "isolated": isolated,
        "columns": list(used),
        "digest": digest,
        "key": key,
    }
    if folder is not None:
        (folder / LAYOUT).write_text(json.dumps(layout))
    return PackedFrames(used, layout)
