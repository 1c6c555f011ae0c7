"""Files made to take the time, the memory or the process of whoever opens them: all must be refused at once."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import lmdb
import numpy as np
from seeds import CONFIG, checkpoints, frames

LARGE = 320 << 20  # bytes a bomb unfolds to, more than the limit of memory


def npz_bomb(folder: Path) -> bytes:
    """A gigabyte of zeros in a megabyte."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("R.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (LARGE // 8,)})
        for _ in range(LARGE >> 20):
            member.write(bytes(1 << 20))
    return out.getvalue()


def npz_of_any_size(folder: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("R.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**9, 3)}
        np.lib.format.write_array_header_1_0(member, header)
    return out.getvalue()


def records(folder: Path, **entries: bytes) -> bytes:
    path = folder / "hostile.lmdb"
    whole = lmdb.open(str(path), subdir=False, map_size=2**26, lock=False)
    with whole as environment, environment.begin(write=True) as t:
        for key, value in entries.items():
            t.put(key.strip("_").encode(), value)
    found = path.read_bytes()
    path.unlink()
    return found


def truncated(folder: Path) -> bytes:
    whole = frames(folder, "a.lmdb")[0]
    return whole[: len(whole) // 2]


def lmdb_bomb(folder: Path) -> bytes:
    zeros = zlib.compressobj(9)
    packed = b"".join(zeros.compress(bytes(1 << 20)) for _ in range(LARGE >> 20)) + zeros.flush()
    return records(folder, _0=packed, length=pickle.dumps(1))


def nested() -> bytes:
    """A tuple of twice a tuple of twice …: a hundred bytes that unfold to 2^60 entries."""
    return b"\x80\x04)" + 60 * b"2\x86" + b"."


def hashed(folder: Path) -> bytes:
    """The same as the key of a dictionary, which is hashed without end."""
    return b"\x80\x04})" + 40 * b"2\x86" + b"K\x01s."


def memo(folder: Path) -> bytes:
    """A place in the memo that the unpickler in C makes room for."""
    return b"\x80\x04]r" + struct.pack("<I", 2**30) + b"."


def expanded(folder: Path) -> bytes:
    """A tensor of one number, repeated 10^12 times by its strides."""
    import torch

    tensor = torch.zeros(1).expand(10**12)
    return records(folder, _0=pickle.dumps({"pos": tensor, "atomic_numbers": [1]}), length=pickle.dumps(1))


def tar_bomb(folder: Path) -> bytes:
    out = io.BytesIO()
    with gzip.open(out, "wb") as packed:
        member = tarfile.TarInfo("0.xsf")
        member.size = LARGE
        packed.write(member.tobuf())
        for _ in range(LARGE >> 20):
            packed.write(bytes(1 << 20))
    return out.getvalue()


def long_name(folder: Path) -> bytes:
    """The bomb in the name of a member."""
    out = io.BytesIO()
    with gzip.open(out, "wb") as packed:
        member = tarfile.TarInfo("././@LongLink")
        member.type, member.size = tarfile.GNUTYPE_LONGNAME, LARGE
        packed.write(member.tobuf())
        for _ in range(LARGE >> 20):
            packed.write(bytes(1 << 20))
    return out.getvalue()


def zip_bomb(folder: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("0.xsf", "w") as member:
        for _ in range(LARGE >> 20):
            member.write(bytes(1 << 20))
    return out.getvalue()


def packed_checkpoint(folder: Path) -> bytes:
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(checkpoints(folder)[0])) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, bytes(LARGE // 4) if name.endswith("data/0") else old.read(name))
    return out.getvalue()


def h5(fill: Callable[[h5py.File], None]) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        path = folder / "hostile.hdf5"
        with h5py.File(path, "w") as file:
            file["x-coordinate"], file["t-coordinate"] = np.linspace(0, 1, 8), np.linspace(0, 1, 6)
            fill(file)
        found = path.read_bytes()
        path.unlink()
        return found

    return make


def unallocated(file: h5py.File) -> None:
    file.create_dataset("tensor", (10, 10**5, 10**5), "f4", chunks=(1, 1000, 1000))


def elsewhere(file: h5py.File) -> None:
    file["tensor"] = h5py.ExternalLink("/etc/passwd", "tensor")


def raw_elsewhere(file: h5py.File) -> None:
    file.create_dataset("tensor", (1, 5, 8), "f4", external=[("/etc/passwd", 0, 160)])


def looping_heap(folder: Path) -> bytes:
    """Free space of no size in the heap of an attribute: HDF5 steps over it for ever."""
    found = bytearray(h5(lambda file: file.attrs.update(problem="abc"))(folder))
    place = found.index(b"GCOL") + 40
    found[place : place + 16] = bytes(16)
    return bytes(found)


def database(statement: str) -> Callable[[Path], bytes]:
    def make(folder: Path) -> bytes:
        import sqlite3

        path = folder / "hostile.db"
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.commit()
        connection.close()
        found = path.read_bytes()
        path.unlink()
        return found

    return make


ENDLESS = "CREATE VIEW systems AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id FROM n"
CELL = '1\nLattice="{}" energy=1.0 Properties=species:S:1:pos:R:3:forces:R:3 pbc="T T T"\nH 0 0 0 0 0 0\n'
LAUGHS = b"".join(b"a%d: &a%d [%s]\n" % (k, k, b",".join([b"*a%d" % (k - 1)] * 9)) for k in range(1, 30))


def text(content: str) -> Callable[[Path], bytes]:
    return lambda folder: content.encode()


#: what it is -> (the reader that must refuse it, how it is made)
HOSTILE: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "npz bomb": ("npz", npz_bomb),
    "npz of any size": ("npz", npz_of_any_size),
    "truncated LMDB": ("lmdb", truncated),
    "LMDB bomb": ("lmdb", lmdb_bomb),
    "LMDB with a length of 10^12": ("lmdb", lambda f: records(f, _0=b"x", length=pickle.dumps(10**12))),
    "LMDB of nested tuples": ("lmdb", lambda f: records(f, _0=nested(), length=pickle.dumps(1))),
    "LMDB with an expanded tensor": ("lmdb", expanded),
    "nested pickle": ("split-pickle", lambda f: nested()),
    "hashed pickle": ("split-pickle", hashed),
    "pickle with a large memo": ("split-pickle", memo),
    "deep pickle": ("split-pickle", lambda f: b"\x80\x04" + 200_000 * b"]" + 199_999 * b"a" + b"."),
    "tar bomb": ("tar", tar_bomb),
    "tar with a long name": ("tar", long_name),
    "zip bomb": ("zip", zip_bomb),
    "compressed checkpoint": ("checkpoint", packed_checkpoint),
    "xyz of many atoms": ("xyz", text("99999999999999\n\nH 0 0 0\n")),
    "xyz of one long number": ("xyz", text("9" * 10**6 + "\n\nH 0 0 0\n")),
    "xyz of many columns": ("xyz", text("1\nProperties=species:S:1:pos:R:999999999\nH 0 0 0\n")),
    "xyz with collinear vectors": ("xyz", text(CELL.format("3 0 0 6 0 0 0 0 3"))),
    "xyz with a flat cell": ("xyz", text(CELL.format("3 0 0 0 3 0 3 3 1e-9"))),
    "xyz with a tiny cell": ("xyz", text(CELL.format("1e-5 0 0 0 1e-5 0 0 0 1e-5"))),
    "xyz with infinite positions": ("xyz", text("2\n\nH 0 0 0\nH 1e300 0 0\n")),
    "endless view": ("db", database(ENDLESS)),
    "HDF5 of any size": ("hdf5", h5(unallocated)),
    "HDF5 of another file": ("hdf5", h5(elsewhere)),
    "HDF5 with data of another file": ("hdf5", h5(raw_elsewhere)),
    "HDF5 with a looping heap": ("hdf5", looping_heap),
    "xyz with a giant cell": ("xyz", text(CELL.format("2147483648 0 0 0 3 0 0 0 3"))),
    "pickle of a large bytearray": ("split-pickle", lambda f: b"\x80\x05\x96" + struct.pack("<Q", 1 << 29) + b"."),
    "YAML aliases": ("yaml", lambda f: b"a0: &a0 x\n" + LAUGHS + CONFIG),
    "deep YAML": ("yaml", lambda f: b"a: " + 10_000 * b"[" + 10_000 * b"]"),
    "large YAML": ("yaml", lambda f: b"a: 1\n" * 10**6),
    "deep JSON": ("split-json", lambda f: b'{"train": ' + 10**5 * b"[" + 10**5 * b"]" + b"}"),
    "long number in JSON": ("split-json", lambda f: b'{"train": [' + b"9" * 10**5 + b"]}"),
    "deep result": ("result", lambda f: b"[" * 10**5),
    "split of a run with a long number": ("split-of-a-run", lambda f: b'{"format": ' + b"9" * 10**5 + b"}"),
}
