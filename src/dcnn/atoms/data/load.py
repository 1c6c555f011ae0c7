"""``load``: any file of labelled frames, recognised by its name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from dcnn.atoms.data.consistency import SAMPLE, check_labels
from dcnn.atoms.data.frame_checks import ANY, LABELS, Require, is_isolated_atom
from dcnn.atoms.data.lmdb import read_lmdb
from dcnn.atoms.data.npz import read_npz
from dcnn.atoms.data.packed import LAYOUT, SUFFIX, read_packed
from dcnn.atoms.data.stress_check import check_stress
from dcnn.atoms.dataset import Dataset, join
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import Units
from dcnn.errors import InputError
from dcnn.plugins import installed

IN_MEMORY = 64 * 1024**2  # bytes of files that are read at once
DEMO = Path(__file__).with_name("ethanol_xtb.npz")


def load(
    path: str | Path | Sequence[str | Path],
    labels: str | None = None,
    units: Units | str | None = None,
    force_sign: int = 1,
    require: Require = LABELS,
    energy_key: str | None = None,
    forces_key: str | None = None,
    stress_key: str | None = None,
    virial_key: str | None = None,
    check: bool = True,
) -> Dataset:
    """The frames of a file, of several (a list, a pattern such as ``"run*.xyz"``) or of a folder as a :class:`Dataset`.

    ``.npz`` MD17 and rMD17 (kcal/mol, Å; ``labels="md17"`` takes the original labels of an rMD17 file);
    ``.lmdb`` OC20/OC22; everything else through ASE (eV, Å). ``energy_key``, ``forces_key``, ``stress_key`` and
    ``virial_key`` name labels with unusual names. ``units`` are those of a file that does not state its own,
    ``force_sign=-1`` is for files that hold gradients. ``require="any"`` admits frames with one label at least,
    ``require=()`` such without. With ``check`` energies are compared with forces where frames are close enough: wrong
    signs and units are refused, per-atom energies warned about.
    """
    given = {"energy": energy_key, "forces": forces_key, "stress": stress_key, "virial": virial_key}
    keys = {field: key for field, key in given.items() if key}
    if len(keys.keys() & {"stress", "virial"}) == 2:
        raise InputError("give stress_key or virial_key, not both")
    files = data_files(path)
    hold = sum(file.stat().st_size for file in files) <= IN_MEMORY
    parts = [_read(file, hold, labels, units, force_sign, require, keys) for file in files]
    dataset = join(parts, name=Path(path).name if isinstance(path, (str, Path)) and len(files) > 1 else "")
    if all(isinstance(part._frames, list) for part in parts):  # training does so for others in its one pass
        dataset = _without_free_atoms(dataset)
    _refuse_unused(dataset, keys)
    if check and (require == ANY or {"energy", "forces"} <= set(require)):
        agreement = check_labels(dataset)
        agreement.refuse(dataset)
        for message in agreement.warnings(dataset):
            warnings.warn(message, stacklevel=2)
        check_stress(dataset)
    return dataset


def _refuse_unused(dataset: Dataset, keys: dict[str, str]) -> None:
    """A name that is in none of the first frames is a misspelt one."""
    for field, key in keys.items():
        label = "stress" if field == "virial" else field
        if all(getattr(dataset[number], label) is None for number in range(min(SAMPLE, len(dataset)))):
            held = ", ".join(sorted(dataset[0].info)) or "nothing else"
            raise InputError(f"{dataset.where(0)}: no entry {key!r} for the {field}; the frame holds {held}")


def data_files(path: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files that a path, a pattern, a folder or a list of them stands for, in order."""
    if not isinstance(path, (str, Path)):
        files = [file for entry in path for file in data_files(entry)]
        if not files:
            raise InputError("an empty list of data files")
        return files
    path = Path(os.path.expanduser(path))  # of os.path: a name that no file can have is not an error there
    if os.path.isdir(path) and not (path / "data.mdb").exists() and not (path / LAYOUT).exists():
        files = sorted(p for p in path.iterdir() if (p.is_file() or p.suffix == SUFFIX) and p.suffix in _IN_FOLDERS)
        if not files:
            raise InputError(f"{path}: no data files in this folder; looked for {', '.join(_IN_FOLDERS)}")
        return files
    if (there := os.path.exists(path)) or path.name == "demo":
        return [path if there else DEMO]
    files = sorted(Path(found) for found in glob(str(path))) if has_magic(str(path)) else []
    if not files:
        raise InputError(f"{str(path)[:500]}: no such file")
    return [file for entry in files for file in data_files(entry)]


def _read(path: Path, hold: bool, labels: str | None, *options: Any) -> Dataset:
    if path.suffix == ".npz":
        return read_npz(path, labels, *options)
    if labels is not None:
        raise InputError(f"{path}: labels={labels!r} is for rMD17 npz files only; leave it out")
    if path.suffix == SUFFIX:
        return read_packed(path, *options)
    if path.suffix == ".lmdb" or path.is_dir():
        return read_lmdb(path, *options)
    readers = installed("dcnn.readers")  # of other packages, by the file's ending without its dot
    if path.suffix[1:] in readers:
        read = readers[path.suffix[1:]].load()(path)  # a Dataset in its own units, or ASE Atoms
        frames = () if isinstance(read, Dataset) else [Structure.from_ase(atoms) for atoms in read]
        return read if isinstance(read, Dataset) else Dataset(frames, source=str(path), name=path.name)
    from dcnn.atoms.data.ase_files import read_ase  # ase.io takes half a second to import

    return read_ase(path, *options, hold=hold)


def _without_free_atoms(dataset: Dataset) -> Dataset:
    """Frames marked as free atoms are references, not frames to train or test on."""
    found = [number for number, frame in enumerate(dataset) if is_isolated_atom(frame)]
    return dataset.set_aside(found) if 0 < len(found) < len(dataset) else dataset


_IN_FOLDERS = (SUFFIX, ".lmdb", ".npz", ".xsf", ".xyz", ".extxyz", ".traj", ".db", ".cif", ".vasp")
