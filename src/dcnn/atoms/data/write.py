"""Writing datasets: MD17 npz, LMDB, and what ASE writes; a file appears whole or not at all."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from dcnn.atoms.data.packed import SUFFIX as PACKED
from dcnn.atoms.data.packed import pack
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.frame_arrays import GROUP, WEIGHT
from dcnn.atoms.structures import Structure
from dcnn.errors import InputError
from dcnn.safe_files import written_beside

SUFFIXES = (PACKED, ".npz", ".lmdb", ".xyz", ".extxyz", ".traj", ".db")


def check_output(path: str | Path) -> Path:
    """The path, if its ending names a format that can be written."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: cannot write {path.suffix or 'a file without an ending'}; use {', '.join(SUFFIXES)}")
    return path


def write(dataset: Dataset, path: str | Path, show: Callable[[int, int], None] | None = None) -> None:
    """Writes frames by the name of the file: .dcnn, .npz, .lmdb, .xyz, .extxyz, .traj or .db.

    npz and dcnn keep the dataset's units and say so in the file; the others are in eV and Å. All but npz and traj are
    written frame by frame. show(done, total) is called on the way (dcnn).
    """
    path = check_output(path)
    if len(dataset) == 0:
        raise InputError(f"{path}: there are no frames to write")
    if path.suffix == PACKED:
        pack(dataset, path, show=show)
        return
    with written_beside(path, shared=True) as temporary:
        if path.suffix == ".npz":
            _write_npz(dataset, temporary, path)
        elif path.suffix == ".lmdb":
            _write_lmdb(dataset.to_units("eV", "Ang"), temporary)
        else:
            _write_ase(dataset.to_units("eV", "Ang"), temporary)


def _write_npz(dataset: Dataset, temporary: Path, path: Path) -> None:
    frames = list(dataset)
    first = frames[0]
    if any(len(frame) != len(first) for frame in frames):
        raise InputError(f"{path}: npz files hold frames of one size; write .xyz, .db or .lmdb instead")
    arrays: dict[str, Any] = {"e_unit": dataset.units.energy, "r_unit": dataset.units.length, "name": dataset.name}
    same = all(np.array_equal(frame.z, first.z) for frame in frames)
    arrays["z"] = first.z if same else np.stack([frame.z for frame in frames])
    for key, field in {"R": "positions", "E": "energy", "F": "forces", "cell": "cell", "stress": "stress"}.items():
        values = [getattr(frame, field) for frame in frames]
        lacks = np.array([value is None for value in values])
        if lacks.all():
            continue
        blank = np.zeros_like(next(value for value in values if value is not None))
        arrays[key] = np.stack([blank if value is None else value for value in values])
        if lacks.any():
            arrays[f"lacks_{key}"] = lacks
    pbc = np.stack([np.asarray(frame.pbc) for frame in frames])
    if (pbc != np.array([[frame.cell is not None] for frame in frames])).any():
        arrays["pbc"] = pbc  # the reader takes frames with a cell for periodic in all directions
    index = dataset.trajectory_index()
    if index is not None:
        arrays["index"] = index
    np.savez_compressed(temporary, **arrays)


def _record(frame: Structure) -> dict[str, Any]:
    """The frame under OC20's names, as plain arrays."""
    fields = {
        "pos": frame.positions,
        "atomic_numbers": frame.z,
        "cell": frame.cell,
        "pbc": frame.pbc,
        "energy": frame.energy,
        "forces": frame.forces,
        "stress": frame.stress,
    }
    fields |= {name: frame.info.get(name) for name in (GROUP, WEIGHT)}
    return {name: value for name, value in fields.items() if value is not None}


def _write_lmdb(dataset: Dataset, temporary: Path) -> None:
    largest = 2**40  # address space, not disk
    lock = Path(f"{temporary}-lock")
    with (
        lmdb.open(str(temporary), subdir=False, map_size=largest, meminit=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number, frame in enumerate(dataset):
            transaction.put(str(number).encode("ascii"), pickle.dumps(_record(frame), protocol=4))
        transaction.put(b"length", pickle.dumps(len(dataset)))
    lock.unlink(missing_ok=True)


def _write_ase(dataset: Dataset, temporary: Path) -> None:
    from ase.db import connect
    from ase.io import write as ase_write

    def plain(frame: Structure) -> Any:
        """``ase.Atoms`` with what the formats can keep beside it: numbers and text."""
        atoms = frame.to_ase()
        atoms.info = {k: v for k, v in atoms.info.items() if isinstance(v, (int, float, str, np.number))}
        return atoms

    if temporary.suffix == ".db":
        with connect(temporary) as database:
            for frame in dataset:
                kept = {name: frame.info[name] for name in (GROUP, WEIGHT) if name in frame.info}
                database.write(plain(frame), **kept)  # a database keeps no other entries
    elif temporary.suffix == ".traj":
        ase_write(temporary, [plain(frame) for frame in dataset])
    else:
        with temporary.open("w") as file:
            for frame in dataset:
                ase_write(file, plain(frame), format="extxyz")
