"""Every reader with small sound files of its kind, and how files are damaged."""

from __future__ import annotations

import io
import json
import pickle
import random
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ase.db  # noqa: F401  (imported before the children are forked)
import h5py
import numpy as np
import torch

from dcnn import atoms
from dcnn.atoms.data import demo_dataset, write
from dcnn.atoms.data.fingerprint import load_split, save_split
from dcnn.atoms.data.packed import pack
from dcnn.atoms.splits import read_split
from dcnn.errors import InputError
from dcnn.pde import pdebench
from dcnn.results.domains import config_of
from dcnn.train import checkpoint
from dcnn.train.run import Run

NUMBERS = (b"0", b"-1", b"1e308", b"-1e-308", b"nan", b"inf", b"99999999999999", b"2147483648", b"0.5", b"", b"a", b"[")
WORDS = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**62, 2**63, 2**64 - 1)
TOKENS = (b"{", b"}", b"[", b"]", b'"', b"'", b":", b",", b"&a", b"*a", b"\n", b"\x00", b"\xff", b"- ", b"!!", b"<<")


@dataclass(frozen=True)
class Reader:
    """``kind`` of damage: binary, text, or zip (members are damaged and packed again with a right checksum)."""

    name: str
    file: str
    seeds: Callable[[Path], list[bytes]]
    read: Callable[[Path], Any]
    kind: str = "binary"


def mutate(seeds: list[bytes], reader: Reader, chance: random.Random) -> bytes:
    """One of the seeds with one to four pieces of damage."""
    content = chance.choice(seeds)
    if reader.kind == "zip" and chance.random() < 0.7:
        return repacked(content, chance)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 4))):
        content = damaged(content, chance, text=reader.kind == "text")
    return content


def repacked(content: bytes, chance: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        victim = chance.choice(old.namelist())
        for member in old.infolist():
            raw = old.read(member)
            if member.filename == victim:
                if chance.random() < 0.1:
                    continue
                raw = damaged(raw, chance, text=False, near=chance.choice((128, 10**9)))
            new.writestr(member.filename, raw, compress_type=chance.choice((member.compress_type, zipfile.ZIP_STORED)))
    return out.getvalue()


def damaged(content: bytes, chance: random.Random, text: bool, near: int = 10**9) -> bytes:
    """One piece of damage, within the first ``near`` bytes."""
    if not content:
        return b"\x00"
    place = chance.randrange(min(len(content), near))
    size = min(chance.choice((1, 2, 4, 8, 64, 1024)), len(content) - place)
    end = place + size
    kinds: list[Callable[[], bytes]] = [
        lambda: content[:place],
        lambda: content[:place] + content[end:],
        lambda: content[:end] + content[place:],
        lambda: content[:place] + bytes([content[place] ^ (1 << chance.randrange(8))]) + content[place + 1 :],
        lambda: content[:place] + chance.randbytes(size) + content[end:],
        lambda: content[:place] + content[chance.randrange(len(content)) :][:size] + content[end:],
    ]
    if text:
        numbers = list(re.finditer(rb"-?\d+\.?\d*", content))
        found = chance.choice(numbers) if numbers else None
        first, last = found.span() if found else (place, place)
        lines = content.splitlines(keepends=True)
        row = chance.randrange(len(lines))
        kinds += 3 * [lambda: content[:first] + chance.choice(NUMBERS) + content[last:]]
        kinds += 2 * [lambda: content[:place] + chance.choice(TOKENS) * chance.choice((1, 1, 3, 3000)) + content[end:]]
        kinds += [lambda: b"".join(lines[:row] + lines[row + 1 :]), lambda: b"".join([*lines, *lines[row:]])]
    else:
        width = chance.choice((1, 2, 4, 8))
        word = (chance.choice(WORDS) % 256**width).to_bytes(width, "little")
        start = place - place % width
        kinds += 3 * [lambda: content[:start] + word + content[start + width :]]
        kinds += [lambda: content[:place] + bytes(size) + content[end:]]
    return chance.choice(kinds)()


# sound files


def frames(folder: Path, name: str) -> list[bytes]:
    """The first frames of ethanol and two frames of a crystal, where the format can hold both."""
    path = folder / name
    write(demo_dataset()[:4], path)
    found = [path.read_bytes()]
    path.unlink()
    crystal = [
        atoms.Structure([22, 8, 8], np.eye(3) * 1.9 + 0.1 * k, np.diag([4.0, 5, 6]), (True, True, False), -1.0 - k,
                        np.full((3, 3), 0.1), np.eye(3)) for k in range(2)
    ]  # fmt: skip
    write(atoms.Dataset(crystal, "eV"), path)
    found.append(path.read_bytes())
    path.unlink()
    return found


def rmd17(folder: Path) -> list[bytes]:
    part = demo_dataset()[:4]
    arrays = {"nuclear_charges": part[0].z, "coords": np.stack([f.positions for f in part])}
    arrays |= {"energies": part.energies(), "forces": np.stack([f.forces for f in part]), "old_indices": np.arange(4)}
    out = io.BytesIO()
    np.savez(out, **arrays)
    return [out.getvalue()]


XSF = """# total energy = -10.5 eV

CRYSTAL
PRIMVEC
 4.0 0.0 0.0
 0.0 4.0 0.0
 0.0 0.0 4.0
PRIMCOORD
2 1
Ti 0.0 0.0 0.0 0.1 0.2 0.3
O  0.0 0.0 1.9 0.0 0.0 -0.5
"""


def tars(folder: Path) -> list[bytes]:
    found = []
    for mode in ("w", "w:gz"):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=mode) as archive:
            for k in range(3):
                member = tarfile.TarInfo(f"folder/{k}.xsf")
                member.size = len(XSF)
                archive.addfile(member, io.BytesIO(XSF.encode()))
        found.append(out.getvalue())
    return found


def zips(folder: Path) -> list[bytes]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("0.xsf", XSF)
        archive.writestr("1.xyz", "1\nenergy=-1.0 Properties=species:S:1:pos:R:3:forces:R:3\nH 0 0 0 0 0 0\n")
    return [out.getvalue()]


def packed(folder: Path) -> list[bytes]:
    """The folder x.dcnn as a zip file, whose members are damaged."""
    write(demo_dataset()[:4], folder / "x.dcnn")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member in sorted((folder / "x.dcnn").iterdir()):
            archive.write(member, member.name)
            member.unlink()
    (folder / "x.dcnn").rmdir()
    return [out.getvalue()]


SPLIT = {"train": [0, 1, 2, 5], "valid": [3], "test": [4, 6, 7]}


def split_npz(folder: Path) -> list[bytes]:
    out = io.BytesIO()
    np.savez(out, **{f"idx_{k}": np.array(v) for k, v in SPLIT.items()})
    return [out.getvalue()]


def stored_split(folder: Path) -> list[bytes]:
    save_split(folder / "s.json", {"train": demo_dataset()[:5], "test": demo_dataset()[5:7]})
    found = (folder / "s.json").read_bytes()
    (folder / "s.json").unlink()
    return [found]


def hdf5(folder: Path) -> list[bytes]:
    found = []
    for compression in (None, "gzip"):
        path = folder / "seed.hdf5"
        with h5py.File(path, "w") as file:
            file.attrs["nu"] = 0.1
            file.create_dataset(
                "tensor", data=np.random.default_rng(0).random((3, 5, 8), "f4"), compression=compression
            )
            file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, 8), np.linspace(0, 1, 6)
        found.append(path.read_bytes())
    with h5py.File(path, "w") as file:
        for k in range(2):
            group = file.create_group(f"000{k}")
            group["data"] = np.random.default_rng(0).random((3, 4, 4, 2), "f4")
            for axis, size in (("x", 4), ("y", 4), ("t", 3)):
                group[f"grid/{axis}"] = np.linspace(0, 1, size)
    found.append(path.read_bytes())
    with h5py.File(path, "w") as file:
        file.attrs["axes"], file.attrs["problem"] = np.bytes_(b"x,t"), "text of any length"
        file["fields/u"], file["grid/x"], file["grid/t"] = np.ones((2, 4, 3)), np.arange(4.0), np.arange(3.0)
    found.append(path.read_bytes())
    path.unlink()
    return found


MODEL = {"name": "schnet", "preset": "small", "fidelity": "text", "activation": None, "normalization": True}


def checkpoints(folder: Path) -> list[bytes]:
    small = {"hidden": 8, "filters": 8, "interactions": 1, "gaussians": 4}
    network = atoms.build(**MODEL, **small)
    state = {
        "config": {"kind": "atoms", "model": {**MODEL, "overrides": small}},
        "network": network.state_dict(),
        "task": {"scale": atoms_scale(), "energy_unit_eV": 1.0, "elements": [1, 6, 8]},
    }
    checkpoint.save(folder / "c.ckpt", state)
    found = (folder / "c.ckpt").read_bytes()
    (folder / "c.ckpt").unlink()
    return [found]


def atoms_scale() -> dict[str, Any]:
    from dcnn.scaling import LabelScale

    return LabelScale.fit(demo_dataset()[:50], references="elements", unit="force_rms").to_dict()


CONFIG = b"""kind: atoms
recipe: best
seed: 0
data: {path: demo, train: 100, validation: 50, test: 100}
model:
  name: schnet
  overrides: {hidden: 8}
training:
  epochs: 3
  stages:
  - {optimizer: adam, learning_rate: 0.001, share: 0.5}
  - optimizer: lbfgs
    share: 0.5
"""
METRICS = b"epoch,loss,energy_mae_kcal_mol\n1,0.5,1.25\n2,0.25,\n3,0.125,0.5\n"
RESULT = json.dumps({"status": "finished", "seed": 0, "test": {"energy_mae_kcal_mol": 0.1}, "model": "schnet"}).encode()


# what reads them


def load_all(path: Path) -> None:
    data = atoms.load(path, require=())
    for frame in data[:50]:
        frame.to_ase()
    pack(data[:50])


def load_unzipped(path: Path) -> None:
    with tempfile.TemporaryDirectory(suffix=".dcnn") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder)
        except Exception:
            raise InputError("the zip file itself, which only carries the folder") from None
        load_all(Path(folder))


def read_h5(path: Path) -> None:
    with pdebench.open(path) as samples:
        for sample in samples:
            sample.fields  # noqa: B018


def read_run(path: Path) -> None:
    run = Run(path.parent)
    if path == run.metrics_file:
        run.metrics()
    elif path == run.result_file:
        result = run.result()
        _ = result.status, result.test
    else:
        config_of(run)


def open_potential(path: Path) -> None:
    torch.manual_seed(0)
    atoms.Potential.load(path)


def of_frames(name: str, kind: str = "binary") -> Reader:
    suffix = name.split(".")[-1]
    return Reader(suffix, name, lambda folder: frames(folder, name), load_all, kind)


def of_split(name: str, file: str, content: bytes, kind: str) -> Reader:
    return Reader(name, file, lambda folder: [content], lambda path: read_split(path, 8), kind)


READERS = {
    reader.name: reader
    for reader in (
        of_frames("a.npz", "zip"),
        Reader("rmd17", "a.npz", rmd17, load_all, "zip"),
        of_frames("a.xyz", "text"),
        of_frames("a.db"),
        of_frames("a.traj"),
        of_frames("a.lmdb"),
        Reader("packed", "x.zip", packed, load_unzipped, "zip"),
        Reader("xsf", "a.xsf", lambda folder: [XSF.encode()], load_all, "text"),
        Reader("tar", "a.tar.gz", tars, load_all),
        Reader("zip", "a.zip", zips, load_all, "zip"),
        of_split("split-json", "s.json", json.dumps(SPLIT).encode(), "text"),
        of_split("split-pickle", "s.pkl", pickle.dumps({k: np.array(v) for k, v in SPLIT.items()}), "binary"),
        of_split("split-csv", "s.csv", b"0\n1\n2\n5\n", "text"),
        Reader("split-npz", "s.npz", split_npz, lambda path: read_split(path, 8), "zip"),
        Reader("split-of-a-run", "split.json", stored_split, lambda path: load_split(path, atoms.load), "text"),
        Reader("hdf5", "a.hdf5", hdf5, read_h5),
        Reader("checkpoint", "a.ckpt", checkpoints, open_potential, "zip"),
        Reader("yaml", "config.yaml", lambda folder: [CONFIG], read_run, "text"),
        Reader("metrics", "metrics.csv", lambda folder: [METRICS], read_run, "text"),
        Reader("result", "result.json", lambda folder: [RESULT], read_run, "text"),
    )
}
