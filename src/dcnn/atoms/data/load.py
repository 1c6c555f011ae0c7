"""``load``: any file of labelled frames, recognised by its name."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dcnn.atoms.data.check import LABELS
from dcnn.atoms.data.consistency import judge
from dcnn.atoms.data.lmdb import read_lmdb
from dcnn.atoms.data.npz import read_npz
from dcnn.atoms.dataset import Dataset, join
from dcnn.atoms.units import Units
from dcnn.errors import InputError


def load(
    path: str | Path,
    labels: str | None = None,
    units: Units | str | None = None,
    force_sign: int = 1,
    require: Sequence[str] = LABELS,
    energy_key: str | None = None,
    forces_key: str | None = None,
    check: bool = True,
) -> Dataset:
    """The frames of a file (or of all files in a folder) as a :class:`Dataset`.

    ``.npz`` MD17 and rMD17 (kcal/mol, Å; ``labels="md17"`` takes the original labels of an rMD17 file);
    ``.lmdb`` OC20/OC22; everything else through ASE (eV, Å), with ``energy_key`` / ``forces_key`` for unusual
    names. ``units`` are those of a file that does not state its own, ``force_sign=-1`` is for files that hold
    gradients, ``require=()`` admits frames without labels. With ``check`` energies are compared with forces
    where frames are close enough: wrong signs and units are refused, per-atom energies warned about.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise InputError(f"{path}: no such file")
    options: dict[str, Any] = {"units": units, "force_sign": force_sign, "require": require}
    keys: dict[str, Any] = {"energy_key": energy_key, "forces_key": forces_key}
    dataset = _read(path, labels, options, keys)
    if check and {"energy", "forces"} <= set(require):
        agreement = judge(dataset)
        agreement.refuse(dataset)
        for message in agreement.warnings(dataset):
            warnings.warn(message, stacklevel=2)
    return dataset


def _read(path: Path, labels: str | None, options: dict[str, Any], keys: dict[str, Any]) -> Dataset:
    if path.is_dir() and not (path / "data.mdb").exists():
        files = sorted(p for p in path.iterdir() if p.is_file() and p.suffix in _IN_FOLDERS)
        if not files:
            raise InputError(f"{path}: no data files in this folder; looked for {', '.join(_IN_FOLDERS)}")
        return join([_read(file, labels, options, keys) for file in files], name=path.name)
    if path.suffix == ".npz":
        return read_npz(path, labels, **options)
    if labels is not None:
        raise InputError(f"{path}: labels={labels!r} is for rMD17 npz files only; leave it out")
    if path.suffix == ".lmdb" or path.is_dir():
        return read_lmdb(path, **options)
    from dcnn.atoms.data.ase_files import read_ase  # ase.io takes half a second to import

    return read_ase(path, **options, **keys)


_IN_FOLDERS = (".lmdb", ".xsf", ".xyz", ".extxyz", ".traj", ".db", ".cif", ".vasp")
