"""Everything ASE reads: extxyz, ASE db, trajectories, archives of xsf files and the rest; eV and Å.

Files up to ``IN_MEMORY`` bytes are read at once; larger extxyz, db and traj files are read frame by frame.
"""

from __future__ import annotations

import io
import re
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import ase.io

from dcnn.atoms.data.check import LABELS, at, check_frame
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError

IN_MEMORY = 256 * 1024**2
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_XSF_ENERGY = re.compile(r"total energy\s*=\s*(\S+)\s*(\S*)", re.IGNORECASE)


class AseFrames(Sequence[Structure]):
    """Frames that ``read(number)`` returns as ``ase.Atoms``, turned into checked structures one by one."""

    def __init__(
        self,
        path: Path,
        length: int,
        read: Callable[[int], Any],
        require: Sequence[str] = LABELS,
        keys: dict[str, str] | None = None,
    ) -> None:
        self.path, self.require, self.keys = path, tuple(require), keys or {}
        self._length, self._read = length, read
        if length == 0:
            raise InputError(f"{path}: no frames in this file")

    def __len__(self) -> int:
        return self._length

    def where(self, number: int) -> str:
        return f"{self.path}, frame {number}"

    def __getitem__(self, number: Any) -> Any:
        where = self.where(number)
        try:
            atoms = self._read(number)
        except Exception as error:  # ASE's parsers raise whatever they trip over
            raise InputError(f"{where}: ASE cannot read it ({type(error).__name__}: {error})") from None
        with at(where):
            frame = structure_of(atoms, self.keys)
        return check_frame(frame, where, self.require)


class HeldFrames(list[Structure]):
    """Frames read from a file into memory, which still know where they come from."""

    def __init__(self, frames: AseFrames) -> None:
        super().__init__(frames[number] for number in range(len(frames)))
        self.path = frames.path

    def where(self, number: int) -> str:
        return f"{self.path}, frame {number}"


def structure_of(atoms: Any, keys: dict[str, str]) -> Structure:
    """The structure of ``ase.Atoms``; ``keys`` names entries of ``info`` or ``arrays`` that are labels."""
    frame = Structure.from_ase(atoms)
    held = {**atoms.info, **{k: v for k, v in atoms.arrays.items() if k not in ("numbers", "positions")}}
    frame.info.update(held)
    labels = {}
    for field, key in keys.items():
        if key not in held:
            known = sorted({*held, *getattr(atoms.calc, "results", ())})
            raise InputError(f"no entry {key!r} for the {field}; the frame holds {', '.join(known) or 'nothing'}")
        labels[field] = held[key]
    if not labels:
        return frame
    return Structure(**{**vars(frame), **labels})


class ExtxyzReader:
    """Frames of an xyz file by number: one pass notes where each begins, then they are read singly."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offsets = [0]
        with path.open("rb") as file:
            while line := file.readline():
                if not line.strip():
                    break
                if not line.strip().isdigit():
                    where = f"{path}, frame {len(self.offsets) - 1}"
                    raise InputError(f"{where}: expected a number of atoms, found {line[:40]!r}")
                for _ in range(int(line) + 1):
                    file.readline()
                self.offsets.append(file.tell())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __call__(self, number: int) -> Any:
        with self.path.open("rb") as file:
            file.seek(self.offsets[number])
            text = file.read(self.offsets[number + 1] - self.offsets[number]).decode()
        return ase.io.read(io.StringIO(text), format="extxyz")


class DatabaseReader:
    """Rows of an ASE db (sqlite) by number."""

    def __init__(self, path: Path) -> None:
        try:
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                self.ids = [row[0] for row in connection.execute("SELECT id FROM systems ORDER BY id")]
        except sqlite3.Error as error:
            raise InputError(f"{path}: not an ASE database ({error})") from None
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


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files in an archive; nothing is unpacked to disk."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in sorted(n for n in archive.namelist() if not n.endswith("/")):
                yield name, archive.read(name)
        return
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file.read()


def _read_archive(path: Path) -> ListReader:
    frames: list[Any] = []
    for name, raw in _members(path):
        text, suffix = raw.decode(errors="replace"), Path(name).suffix.lstrip(".")
        try:
            if suffix == "xsf":
                frames.append(read_xsf(text))
            else:
                frames.extend(ase.io.read(io.StringIO(text), index=":", format=_FORMATS.get(suffix, suffix)))
        except Exception as error:  # as above: any exception of a parser
            raise InputError(f"{path}, member {name}: ASE cannot read it ({type(error).__name__}: {error})") from None
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
    return ListReader(list(ase.io.read(path, index=":")))


def read_ase(
    path: str | Path,
    units: Units | str | None = None,
    force_sign: int = 1,
    require: Sequence[str] = LABELS,
    energy_key: str | None = None,
    forces_key: str | None = None,
) -> Dataset:
    """Frames of any file ASE reads, or of an archive of such files.

    ``energy_key`` and ``forces_key`` name entries such as ``REF_energy`` where the labels do not stand under
    ASE's own names. Units are eV and Å unless the file (``energy_unit=``) or ``units`` says otherwise.
    """
    path = Path(path)
    try:
        reader = _reader(path)
    except InputError:
        raise
    except Exception as error:  # as above: any exception of a parser
        raise InputError(f"{path}: ASE cannot read it ({type(error).__name__}: {error})") from None
    keys = {"energy": energy_key, "forces": forces_key}
    lazy = AseFrames(path, len(reader), reader, require, {field: key for field, key in keys.items() if key})
    small = isinstance(reader, ListReader) or path.stat().st_size <= IN_MEMORY
    frames: Sequence[Structure] = HeldFrames(lazy) if small else lazy
    declared = frames[0].info.get("energy_unit")
    return Dataset(frames, _units(path, declared, units), str(path), path.name.split(".")[0], force_sign)


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
