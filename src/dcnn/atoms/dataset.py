"""A sequence of frames that knows its units, its file and where each frame stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from typing import Any, overload

import numpy as np

from dcnn.atoms.frame_arrays import GROUP, FrameArrays
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError


class Dataset(Sequence[Structure]):
    """Frames of a file, read when asked for where the file does not fit in memory.

    ``dataset[3]`` is a :class:`Structure`; ``dataset[10:20]`` and ``dataset[array_of_numbers]`` are datasets.
    ``units`` are those of the numbers it returns (None: those of the frames); :meth:`to_units` changes them on the fly.
    """

    def __init__(
        self,
        frames: Sequence[Structure],
        units: Units | str | None = None,
        source: str = "",
        name: str = "",
        force_sign: int = 1,
    ) -> None:
        if force_sign not in (1, -1):
            raise InputError(f"force_sign is {force_sign!r}; it is 1 (forces) or -1 (the file stores gradients)")
        self._stored = None if units is None else Units.parse(units)  # None: each frame says it
        self.units = self._stored or (frames[0].units if len(frames) else Units())
        self.source = source
        self.name = name
        self._frames = frames
        self.force_sign = force_sign
        self._numbers: np.ndarray = np.arange(len(frames))
        self._isolated: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, item: int) -> Structure: ...
    @overload
    def __getitem__(self, item: slice | Sequence[int] | np.ndarray) -> Dataset: ...
    def __getitem__(self, item: Any) -> Structure | Dataset:
        if isinstance(item, (int, np.integer)):
            return self._converted(self._frames[int(self._numbers[item])])
        chosen = self._copy()
        chosen._numbers = self._numbers[item if isinstance(item, slice) else np.asarray(item)]
        return chosen

    def __iter__(self) -> Iterator[Structure]:
        for number in range(len(self)):
            yield self[number]

    def _repr_html_(self) -> str:
        """The dataset in a notebook: its frames, units and the first structures."""
        rows = "".join(
            f"<tr><td>{number}</td><td>{len(frame)}</td><td>{frame.energy}</td></tr>"
            for number, frame in enumerate(self[:3])
        )
        head = f"<tr><th>frame</th><th>atoms</th><th>energy ({self.units.energy})</th></tr>"
        return f"<b>{escape(repr(self))}</b><table>{head}{rows}</table>"

    def __repr__(self) -> str:
        units = f"{self.units.energy}, {self.units.length}"
        return f"Dataset({self.name or self.source!r}, {len(self)} frames, {units})"

    @property
    def numbers(self) -> np.ndarray:
        """(M,) the frame numbers in the file that the dataset was read from."""
        return self._numbers

    @property
    def isolated(self) -> dict[int, float]:
        """Energy of the free atom by atomic number, of the frames that the file marks as such; none of them is here."""
        factor = (self._stored or Units()).energy_factor(self.units)
        return {z: energy * factor for z, energy in sorted(self._isolated.items())}

    def set_aside(self, isolated: Sequence[int]) -> Dataset:
        """The dataset without these entries, frames of free atoms, whose energies it keeps."""
        rest = self[np.setdiff1d(np.arange(len(self)), isolated)]
        found = [self._frames[int(self._numbers[entry])] for entry in isolated]
        rest._isolated = {int(frame.z[0]): frame.energy for frame in reversed(found) if frame.energy is not None}
        return rest

    def everything(self) -> Dataset:
        """All frames of the files, free atoms too, in their order."""
        whole = self._copy()
        whole._numbers, whole._isolated = np.arange(len(self._frames)), {}
        return whole

    def held_by(self, frames: Sequence[Structure]) -> Dataset:
        """The same entries out of a copy of :meth:`everything`."""
        other = self._copy()
        other._frames, other._stored, other.force_sign, other._isolated = frames, self.units, 1, self.isolated
        return other

    def parts(self) -> list[tuple[str, int]]:
        """(file, frames) of all the files the frames come from."""
        if isinstance(self._frames, Joined):
            return [found for part in self._frames.parts for found in part.parts()]
        own: list[tuple[str, int]] | None = getattr(self._frames, "sources", None)
        return [(self.source, len(self._frames))] if own is None else own

    def arrays(self, entries: Sequence[int] | np.ndarray) -> FrameArrays:
        """These entries as flat arrays; of packed frames without a Python object for each."""
        gather = getattr(self._frames, "gather", None)
        if gather is None:
            return FrameArrays.of([self[int(entry)] for entry in entries])
        found: FrameArrays = gather(self._numbers[np.asarray(entries)])
        return found.to_units(self._stored or Units(), self.units, self.force_sign)

    @property
    def packed(self) -> bool:
        """Whether :meth:`arrays` needs no Python object for a frame."""
        return hasattr(self._frames, "gather")

    def chunks(self, size: int = 4096) -> Iterator[FrameArrays]:
        """All entries as flat arrays, some thousand frames at a time, in the order of the file."""
        order = np.argsort(self._numbers, kind="stable")
        for begin in range(0, len(self), size):
            yield self.arrays(order[begin : begin + size])

    def groups(self, entries: Sequence[int] | np.ndarray) -> list[str]:
        """The ``config_type`` of these entries, "" where there is none."""
        own = getattr(self._frames, "group", None)
        if own is not None:
            found: list[str] = own(self._numbers[np.asarray(entries)])
            return found
        return [str(self[int(entry)].info.get(GROUP, "")) for entry in entries]

    def sizes(self) -> np.ndarray:
        """(M,) atoms of every entry."""
        own = getattr(self._frames, "sizes", None)
        return np.array([len(frame) for frame in self]) if own is None else own[self._numbers]

    def select(self, numbers: np.ndarray) -> Dataset:
        """The frames with these numbers in the file, as :attr:`numbers` gives them."""
        absent = np.setdiff1d(numbers, self._numbers)
        if len(absent):
            raise InputError(f"{self.source or 'dataset'}: no frame {absent[0]} among its {len(self)}")
        chosen = self._copy()
        chosen._numbers = np.asarray(numbers, np.int64)
        return chosen

    @property
    def files(self) -> tuple[str, ...]:
        """The files the frames come from (all of them, also for a selection), in order; none for Python objects."""
        return tuple(file for file, _ in self.parts() if file)

    def where(self, number: int) -> str:
        """File and frame of one entry, for messages."""
        stored = int(self._numbers[number])
        own = getattr(self._frames, "where", None)
        return own(stored) if own is not None else f"{self.source or 'dataset'}, frame {stored}"

    def to_units(self, energy: str | Units | None = None, length: str | None = None) -> Dataset:
        """The same frames in other units; what is not named stays."""
        wanted = (
            energy if isinstance(energy, Units) else Units(energy or self.units.energy, length or self.units.length)
        )
        other = self._copy()
        other.units = wanted
        return other

    def trajectory_index(self) -> np.ndarray | None:
        """(M,) place of each frame in the trajectory it was drawn from, where the file says so (rMD17)."""
        places = getattr(self._frames, "places", None)
        return None if places is None else places[self._numbers]

    def energies(self) -> np.ndarray:
        """(M,) total energies; NaN where a frame has none."""
        return np.array([np.nan if frame.energy is None else frame.energy for frame in self])

    def _copy(self) -> Dataset:
        other = object.__new__(Dataset)
        other.__dict__.update(self.__dict__)
        return other

    def _converted(self, frame: Structure) -> Structure:
        stored = self._stored or frame.units
        if frame.units != stored:
            frame = replace(frame, units=stored)
        return frame if stored == self.units and self.force_sign == 1 else frame.to_units(self.units, self.force_sign)


class Joined(Sequence[Structure]):
    """Frames of several datasets one after the other, converted to the units of the first."""

    def __init__(self, parts: Sequence[Dataset]) -> None:
        self.parts = [part.to_units(parts[0].units) for part in parts]
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, number: Any) -> Any:
        part, local = self._find(number)
        return self.parts[part][local]

    @cached_property
    def places(self) -> np.ndarray | None:
        """Places in the trajectory, if every part knows its own."""
        parts = [part.trajectory_index() for part in self.parts]
        return None if any(p is None for p in parts) else np.concatenate([p for p in parts if p is not None])

    def where(self, number: int) -> str:
        part, local = self._find(number)
        return self.parts[part].where(local)

    def _find(self, number: int) -> tuple[int, int]:
        part = int(np.searchsorted(self._ends, number, side="right"))
        return part, int(number - (self._ends[part - 1] if part else 0))


def join(parts: Sequence[Dataset], name: str = "") -> Dataset:
    """One dataset of several, in the units of the first."""
    if not parts:
        raise InputError("cannot join no datasets")
    if len(parts) == 1:
        return parts[0]
    joined = Dataset(Joined(parts), parts[0].units, parts[0].source, name or parts[0].name)
    joined._isolated = {z: e for part in reversed(parts) for z, e in part.to_units(parts[0].units).isolated.items()}
    return joined
