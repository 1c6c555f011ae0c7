"""Everything ASE reads: extxyz, ASE db, trajectories, archives of xsf files and the rest; eV and Å.

Small files are read at once; large extxyz, db and traj files are read frame by frame.
"""

from __future__ import annotations

import io
import re
import sqlite3
from array import array
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import ase.io
import numpy as np

from dcnn.atoms.data.archives import members
from dcnn.atoms.data.frame_checks import LABELS, Require, check_frame
from dcnn.atoms.data.label_names import stress_of
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError
from dcnn.guard import decoding, error_context

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_XSF_ENERGY = re.compile(r"total energy\s*=\s*(\S+)\s*(\S*)", re.IGNORECASE)


class AseFrames(Sequence[Structure]):
    """Frames that ``read(number)`` returns as ``ase.Atoms``, turned into checked structures one by one."""

    def __init__(
        self, path: Path, reader: Reader, require: Require = LABELS, keys: dict[str, str] | None = None
    ) -> None:
        self.path, self.require, self.keys = path, require, keys or {}
        self._read = reader
        if len(reader) == 0:
            raise InputError(f"{path}: no frames in this file")
        self.declared: str | None = None
        self.declared = self._frame(0).info.get("energy_unit")

    def __len__(self) -> int:
        return len(self._read)

    def where(self, number: int) -> str:
        return f"{self.path}, frame {number}"

    def __getitem__(self, number: Any) -> Any:
        frame = self._frame(number)
        unit = frame.info.pop("energy_unit", None)  # the dataset knows it; labels that are converted must not claim it
        if unit != self.declared:
            raise InputError(
                f"{self.where(number)}: says energy_unit={unit}, but frame 0 {self.declared}; write them in one unit"
            )
        return frame

    def _frame(self, number: int) -> Structure:
        where = self.where(number)
        with decoding(where, "frame"), error_context(where):
            frame = structure_of(self._read(number), self.keys)
        return check_frame(frame, where, self.require, self.keys)


class HeldFrames(list[Structure]):
    """Frames read from a file into memory, which still know where they come from."""

    def __init__(self, frames: AseFrames) -> None:
        super().__init__(frames[number] for number in range(len(frames)))
        self.path = frames.path
        places = [frame.info.get("index") for frame in self]  # as we write it
        known = all(isinstance(place, (int, np.integer)) for place in places) and len(set(places)) == len(places)
        self.places = np.array(places, np.int64) if known else None

    def where(self, number: int) -> str:
        return f"{self.path}, frame {number}"


def structure_of(atoms: Any, keys: dict[str, str]) -> Structure:
    """The structure of ``ase.Atoms``; ``keys`` names entries of ``info``, ``arrays`` or the results as labels."""
    frame = Structure.from_ase(atoms)
    held = {**atoms.info, **{k: v for k, v in atoms.arrays.items() if k not in ("numbers", "positions")}}
    frame.info.update(held)
    known = {**(getattr(atoms.calc, "results", None) or {}), **held}
    labels: dict[str, Any] = {field: known.get(key) for field, key in keys.items()}
    for key in keys.values():
        frame.info.pop(key, None)
    if "stress" in labels or "virial" in labels:
        labels["stress"] = stress_of(labels, frame.cell)
    labels.pop("virial", None)
    if labels.get("energy") is not None:
        labels["energy"] = float(np.asarray(labels["energy"], np.float64).reshape(()))
    return replace(frame, **labels) if labels else frame


class ExtxyzReader:
    """Frames of an xyz file by number: one pass notes where each begins, then they are read singly."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets = array("q", [0])
        size = path.stat().st_size
        with path.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                if not line.strip():
                    break
                where = f"{path}, frame {len(self.offsets) - 1}"
                if not line.strip().isdigit() or len(line) > 20:
                    raise InputError(f"{where}: expected a number of atoms, found {line[:40]!r}")
                if int(line) * 2 > size:  # a line has at least an element and an end
                    raise InputError(f"{where}: says it has {int(line):,} atoms, more than fit into the file")
                for _ in range(int(line) + 1):
                    if len(file.readline(_LONGEST_LINE)) == _LONGEST_LINE:
                        raise InputError(f"{where}: a line of more than {_LONGEST_LINE:,} bytes; not an xyz file")
                self.offsets.append(file.tell())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __call__(self, number: int) -> Any:
        with self.path.open("rb") as file:
            file.seek(self.offsets[number])
            text = file.read(self.offsets[number + 1] - self.offsets[number]).decode()
        if any(int(columns) > _MOST_COLUMNS for columns in _COLUMNS.findall(text[:_LONGEST_LINE])):
            raise InputError(f"Properties ask for more than {_MOST_COLUMNS} columns of one kind")
        return ase.io.read(io.StringIO(text), format="extxyz")


_LONGEST_LINE = 1 << 20  # bytes
_MOST_COLUMNS = 1000
_COLUMNS = re.compile(r":[RSIL]:(\d{4,18})")


class DatabaseReader:
    """Rows of an ASE db (sqlite) by number."""

    def __init__(self, path: Path) -> None:
        with (
            decoding(path, "ASE database"),
            closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection,
        ):
            kind = connection.execute("SELECT type FROM sqlite_master WHERE name = 'systems'").fetchone()
            if kind != ("table",):  # a view may never end
                raise ValueError("no table of systems")
            self.ids = [row[0] for row in connection.execute("SELECT id FROM systems ORDER BY id")]
        self.path = path

    def __len__(self) -> int:
        return len(self.ids)

    def __call__(self, number: int) -> Any:
        from ase.db import connect  # half a second to import

        row = connect(self.path).get(self.ids[number])
        atoms = row.toatoms()
        atoms.info.update(row.key_value_pairs)
        return atoms


class TrajectoryReader:
    """Frames of an ASE trajectory by number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with ase.io.Trajectory(path) as trajectory:
            self._length = len(trajectory)

    def __len__(self) -> int:
        return self._length

    def __call__(self, number: int) -> Any:
        with ase.io.Trajectory(self.path) as trajectory:
            return trajectory[number]


class ListReader:
    """Frames that had to be read together."""

    def __init__(self, frames: Sequence[Any]) -> None:
        self.frames = frames

    def __len__(self) -> int:
        return len(self.frames)

    def __call__(self, number: int) -> Any:
        return self.frames[number]


def read_xsf(text: str) -> Any:
    """One xsf file; where a comment gives the total energy (aenet's files), its unit is that of the forces too.

    ASE does not look at the comment and takes forces for Hartree/Å, as XCrySDen writes them.
    """
    atoms: Any = ase.io.read(io.StringIO(text), format="xsf")
    found = _XSF_ENERGY.search(text)
    if found is not None and atoms.calc is not None:
        unit = Units(found[2] or "eV")
        atoms.calc.results["energy"] = float(found[1]) * unit.energy_factor(Units("eV"))
        atoms.calc.results["forces"] *= unit.energy_factor(Units("Hartree"))
    return atoms


def _read_archive(path: Path) -> ListReader:
    frames: list[Any] = []
    for name, raw in members(path):
        suffix = Path(name).suffix.lstrip(".")
        with decoding(f"{path}, member {name}", f"{suffix} file"):
            text = raw.decode(errors="replace")
            if suffix == "xsf":
                frames.append(read_xsf(text))
            else:
                frames.extend(ase.io.read(io.StringIO(text), index=":", format=_FORMATS.get(suffix, suffix)))
    return ListReader(frames)


_FORMATS = {"xyz": "extxyz", "POSCAR": "vasp", "CONTCAR": "vasp"}
Reader = ExtxyzReader | DatabaseReader | TrajectoryReader | ListReader


def _reader(path: Path) -> Reader:
    name = path.name.lower()
    if name.endswith(ARCHIVES):
        return _read_archive(path)
    if name.endswith((".xyz", ".extxyz")):
        return ExtxyzReader(path)
    if name.endswith(".db"):
        return DatabaseReader(path)
    if name.endswith(".traj"):
        return TrajectoryReader(path)
    if name.endswith(".xsf") and "ANIMSTEPS" not in path.read_text()[:2000]:
        return ListReader([read_xsf(path.read_text())])
    return ListReader(list(ase.io.read(path, index=":", do_not_split_by_at_sign=True)))


def read_ase(
    path: str | Path,
    units: Units | str | None = None,
    force_sign: int = 1,
    require: Require = LABELS,
    keys: dict[str, str] | None = None,
    *,
    hold: bool = True,
) -> Dataset:
    """Frames of any file ASE reads, or of an archive of such files.

    ``keys`` names entries such as ``REF_energy`` (for ``energy``, ``forces``, ``stress`` or ``virial``) where the
    labels do not stand under ASE's own names; ``hold`` reads all frames at once. Units are eV and Å unless the file
    (``energy_unit=``) or ``units`` says otherwise.
    """
    path = Path(path)
    with decoding(path, "file of frames"):
        reader = _reader(path)
    lazy = AseFrames(path, reader, require, keys)
    frames: Sequence[Structure] = HeldFrames(lazy) if hold or isinstance(reader, ListReader) else lazy
    return Dataset(frames, _units(path, lazy.declared, units), str(path), path.name.split(".")[0], force_sign)


def _units(path: Path, declared: str | None, given: Units | str | None) -> Units:
    if given is None:
        return Units(declared or "eV")
    wanted = Units.parse(given)
    if declared is not None and Units(declared).energy != wanted.energy:
        raise InputError(
            f"{path}: the file says energy_unit={declared}, units={given!r} says otherwise; leave units out, "
            "and convert with to_units"
        )
    return wanted
