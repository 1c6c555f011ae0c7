"""Large files of frames, made up, to measure what reading and training cost: see results/scale.md.

    python benchmarks/large_data.py xyz  /tmp/big.xyz  --frames 1000000 --atoms 9
    python benchmarks/large_data.py lmdb /tmp/big.lmdb --frames 1000000 --atoms 9
    python benchmarks/large_data.py dcnn /tmp/big.dcnn --frames 1000000 --atoms 9
    python benchmarks/large_data.py oc22 /tmp/oc22     --frames 100000 --atoms 80 --files 5

A few hundred frames are written over and over with energies of their own. Displacements are harmonic, so that energies
belong to the forces. `oc22` writes pickled PyG `Data` objects, as OC22's S2EF files hold them.
"""

from __future__ import annotations

import argparse
import json
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from dcnn.atoms import Dataset, Structure
from dcnn.atoms.data.packed import pack

KINDS, SPRING = 500, 4.0  # different frames; eV/Å²


def frames(atoms: int, periodic: bool) -> list[dict[str, Any]]:
    """Displaced lattices of oxygen and titanium, 2.1 Å apart: a molecule's worth of atoms, or a slab with a cell."""
    rng = np.random.default_rng(0)
    side = int(np.ceil(atoms ** (1 / 3)))
    lattice = 2.1 * np.argwhere(np.ones((side, side, side)))[:atoms]
    cell = np.diag([2.1 * side, 2.1 * side, 2.1 * side + 10.0]) if periodic else None
    found = []
    for _ in range(KINDS):
        moved = 0.08 * rng.standard_normal((atoms, 3))
        fields = {
            "pos": lattice + moved,
            "atomic_numbers": np.where(np.arange(atoms) % 3, 8, 22),
            "energy": 0.5 * SPRING * float(np.square(moved).sum()) - 10.0 * atoms,
            "forces": -SPRING * moved,
        }
        found.append(fields | ({"cell": cell, "pbc": np.array([True, True, True])} if periodic else {}))
    return found


def write_xyz(path: Path, count: int, atoms: int) -> None:
    texts = []
    for f in frames(atoms, periodic=False):
        names = np.where(f["atomic_numbers"] == 8, "O", "Ti")
        rows = [
            f"{name} " + " ".join(f"{v:.8f}" for v in (*r, *force))
            for name, r, force in zip(names, f["pos"], f["forces"], strict=True)
        ]
        head = f'{atoms}\nProperties=species:S:1:pos:R:3:forces:R:3 energy={f["energy"]:.10f} pbc="F F F"\n'
        texts.append(head + "\n".join(rows) + "\n")
    with path.open("w") as file:
        for number in range(count):
            file.write(texts[number % KINDS])


def write_lmdb(path: Path, records: Iterator[bytes], count: int) -> None:
    with lmdb.open(str(path), subdir=False, map_size=2**40, meminit=False, sync=False) as environment:
        for begin in range(0, count, 20_000):
            with environment.begin(write=True) as transaction:
                for number in range(begin, min(begin + 20_000, count)):
                    transaction.put(str(number).encode(), next(records))
        with environment.begin(write=True) as transaction:
            transaction.put(b"length", pickle.dumps(count))
    Path(f"{path}-lock").unlink()


def plain_records(atoms: int) -> Iterator[bytes]:
    made = [pickle.dumps(f, protocol=4) for f in frames(atoms, periodic=False)]
    while True:
        yield from made


def oc22_records(atoms: int) -> Iterator[bytes]:
    import torch

    with warnings.catch_warnings():  # PyG uses parts of torch that are on their way out
        warnings.simplefilter("ignore")
        from torch_geometric.data import Data
    made = []
    for number, f in enumerate(frames(atoms, periodic=True)):
        data = Data(
            pos=torch.tensor(f["pos"], dtype=torch.float32),
            cell=torch.tensor(f["cell"], dtype=torch.float32).view(1, 3, 3),
            atomic_numbers=torch.tensor(f["atomic_numbers"], dtype=torch.float32),
            natoms=atoms,
            tags=torch.zeros(atoms, dtype=torch.long),
            fixed=torch.zeros(atoms, dtype=torch.long),
            y=f["energy"],
            force=torch.tensor(f["forces"], dtype=torch.float32),
            sid=number,
            fid=0,
        )
        made.append(pickle.dumps(data, protocol=4))
    while True:
        yield from made


def write_dcnn(path: Path, count: int, atoms: int) -> None:
    """Flat arrays as `dcnn data convert` writes them: those of the few frames, over and over."""
    made = [
        Structure(f["atomic_numbers"], f["pos"], f.get("cell"), energy=f["energy"], forces=f["forces"])
        for f in frames(atoms, periodic=atoms > 20)
    ]
    pack(Dataset(made, "eV"), path)
    repeats = -(-count // KINDS)
    for column in path.iterdir():
        if column.name == "layout.json":
            layout = json.loads(column.read_text()) | {"frames": repeats * KINDS, "atoms": repeats * KINDS * atoms}
            column.write_text(json.dumps(layout))
        elif column.name == "end":
            np.arange(atoms, repeats * KINDS * atoms + 1, atoms).astype("<i8").tofile(column)
        else:
            raw = column.read_bytes()
            with column.open("wb") as file:
                for _ in range(repeats):
                    file.write(raw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("xyz", "lmdb", "dcnn", "oc22"))
    parser.add_argument("output", type=Path, help="file, or folder of the LMDB files of oc22")
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--atoms", type=int, default=9)
    parser.add_argument("--files", type=int, default=5, help="LMDB files of oc22")
    asked = parser.parse_args()
    if asked.kind == "xyz":
        write_xyz(asked.output, asked.frames, asked.atoms)
    elif asked.kind == "dcnn":
        write_dcnn(asked.output, asked.frames, asked.atoms)
    elif asked.kind == "lmdb":
        write_lmdb(asked.output, plain_records(asked.atoms), asked.frames)
    else:
        asked.output.mkdir(parents=True)
        for number in range(asked.files):
            part = asked.frames // asked.files + (number < asked.frames % asked.files)
            write_lmdb(asked.output / f"data.{number:04d}.lmdb", oc22_records(asked.atoms), part)


if __name__ == "__main__":
    main()
