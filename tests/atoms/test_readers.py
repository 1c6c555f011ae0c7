"""Every reader: round trips, real files where they are at hand, bad files refused with file, frame and fix."""

from __future__ import annotations

import io
import os
import pickle
import sys
import tarfile
import warnings
import zipfile
import zlib
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
from ase.io import write as ase_write

with warnings.catch_warnings():  # PyG uses parts of torch that are on their way out
    warnings.simplefilter("ignore")
    import torch_geometric.data.data as pyg_data

from dcnn.atoms import Dataset, Structure, join, load
from dcnn.atoms.data import ase_files, write
from dcnn.errors import InputError
from dcnn.unpickle import safe_loads

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
RNG = np.random.default_rng(0)
CELL = np.diag([4.0, 5.0, 6.0])


def frames(n: int = 5, periodic: bool = True) -> list[Structure]:
    cell = CELL if periodic else None
    return [
        Structure(
            [22, 8, 8],
            np.array([[0.0, 0, 0], [1.9, 0, 0], [0, 1.9, 0]]) + RNG.normal(size=(3, 3)) * 0.1,
            cell=cell,
            energy=-2500.0 - k,
            forces=RNG.normal(size=(3, 3)),
            stress=np.diag([1.0, 2.0, 3.0]) * 1e-3 if periodic else None,
        )
        for k in range(n)
    ]


def md17(**changes) -> dict:
    arrays = {
        "z": np.array([6, 1], np.uint8),
        "R": np.array([[[0, 0, 0], [0, 0, 1.1 + 0.01 * k]] for k in range(4)]),
        "E": -100.0 - np.arange(4.0)[:, None],
        "F": RNG.normal(size=(4, 2, 3)),
    }
    return {k: v for k, v in {**arrays, **changes}.items() if v is not None}


def rmd17() -> dict:
    a = md17()
    arrays = {"nuclear_charges": a["z"], "coords": a["R"], "energies": a["E"][:, 0], "forces": a["F"]}
    return arrays | {"old_energies": a["E"][:, 0] - 5, "old_forces": -a["F"], "old_indices": np.array([7, 3, 9, 1])}


def same(a: Structure, b: Structure, tolerance: float = 0.0) -> None:
    for name in ("z", "positions", "cell", "pbc", "energy", "forces", "stress"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        if left is not None:
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance, err_msg=name)


# npz


def test_md17(tmp_path):
    arrays = md17()
    np.savez(tmp_path / "a.npz", **arrays)
    data = load(tmp_path / "a.npz", check=False)
    assert (len(data), data.units.energy, data.units.length) == (4, "kcal/mol", "Ang")
    assert data[2].energy == -102.0
    np.testing.assert_array_equal(data[3].forces, arrays["F"][3])
    assert data[2].z.tolist() == [6, 1]


def test_rmd17_and_its_original_labels(tmp_path):
    np.savez(tmp_path / "r.npz", **rmd17())
    new, old = load(tmp_path / "r.npz", check=False), load(tmp_path / "r.npz", labels="md17", check=False)
    assert new[1].energy == -101.0
    assert old[1].energy == -106.0
    np.testing.assert_array_equal(old[1].forces, -new[1].forces)
    assert new.trajectory_index().tolist() == [7, 3, 9, 1]
    assert new[[3, 1]].trajectory_index().tolist() == [1, 3]
    assert new[2].info == {"index": 9}


BAD_NPZ = {
    "missing key F; the file holds E, R, z": md17(F=None),
    "frame 2: energy is NaN or infinite": md17(E=np.array([1, 2, np.nan, 4])),
    r"frame 1: forces is NaN or infinite at \[0, 2\]": md17(
        F=np.where(np.arange(24).reshape(4, 2, 3) == 8, np.inf, 1.0)
    ),
    r"F has shape \(4, 2\), expected \(4, 2, 3\)": md17(F=np.zeros((4, 2))),
    r"R has shape \(4, 6\)": md17(R=np.zeros((4, 6))),
    r"E has shape \(3,\), expected \(4,\) or \(4, 1\)": md17(E=np.zeros(3)),
    "frame 0: atom 1 has the unknown element 119": md17(z=np.array([6, 119])),
    "neither an MD17 file": {"x": np.zeros(3)},
    "no frames": md17(R=np.zeros((0, 2, 3)), E=np.zeros(0), F=np.zeros((0, 2, 3))),
    "F holds <U1, not numbers": md17(F=np.full((4, 2, 3), "a")),
    "not a readable npz file": None,
}


@pytest.mark.parametrize("message", BAD_NPZ)
def test_bad_npz(message, tmp_path):
    path = tmp_path / "bad.npz"
    if BAD_NPZ[message] is None:
        path.write_bytes(b"PK\x03\x04 cut off")
    else:
        np.savez(path, **BAD_NPZ[message])
    with pytest.raises(InputError, match=message) as error:
        load(path)
    assert str(path) in str(error.value)


def test_an_npz_with_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", **md17(E=np.array([{}], object)))
    with pytest.raises(InputError, match="not a readable npz"):
        load(tmp_path / "a.npz")


def test_units_stated_twice_must_agree(tmp_path):
    np.savez(tmp_path / "a.npz", **md17(e_unit="eV", r_unit="Ang"))
    assert load(tmp_path / "a.npz", check=False).units.energy == "eV"
    with pytest.raises(InputError, match="says its units are eV and Ang, units='kcal/mol'"):
        load(tmp_path / "a.npz", units="kcal/mol")
    with pytest.raises(InputError, match="no revised labels"):
        load(tmp_path / "a.npz", labels="rmd17")
    with pytest.raises(InputError, match="did you mean 'rmd17'"):
        load(tmp_path / "a.npz", labels="rmd-17")


# round trips through every format that is written


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("name", ["a.npz", "a.xyz", "a.extxyz", "a.db", "a.traj", "a.lmdb"])
def test_written_frames_come_back(name, periodic, tmp_path):
    data = Dataset(frames(periodic=periodic), "eV")
    write(data, tmp_path / name)
    back = load(tmp_path / name, check=False)
    assert len(back) == 5
    assert back.units.energy == "eV"
    for k in (0, 4):
        same(back[k], data[k], tolerance=1e-7)
    assert os.listdir(tmp_path) == [name]


def test_kcal_become_ev_in_formats_of_ase(tmp_path):
    write(Dataset(frames(2), "kcal/mol, Bohr"), tmp_path / "a.xyz")
    converted = load(tmp_path / "a.xyz", check=False).to_units("kcal/mol", "Bohr")
    assert converted[1].energy == pytest.approx(-2501.0, rel=1e-9)


def test_a_failing_write_leaves_nothing(tmp_path):
    mixed = Dataset([frames(1)[0], Structure([1], [[0, 0, 0]], energy=0.0, forces=[[0, 0, 0]])])
    with pytest.raises(InputError, match="frames of one size"):
        write(mixed, tmp_path / "a.npz")
    with pytest.raises(InputError, match=r"cannot write \.cif"):
        write(mixed, tmp_path / "a.cif")
    with pytest.raises(InputError, match="no frames to write"):
        write(mixed[:0], tmp_path / "a.xyz")
    assert os.listdir(tmp_path) == []


# ASE


def test_large_files_are_read_frame_by_frame(tmp_path, monkeypatch):
    data = Dataset(frames(6))
    monkeypatch.setattr(sys.modules["dcnn.atoms.data.load"], "IN_MEMORY", 0)
    for name in ("a.xyz", "a.db", "a.traj"):
        write(data, tmp_path / name)
        lazy = load(tmp_path / name, check=False)
        assert isinstance(lazy._frames, ase_files.AseFrames)
        same(pickle.loads(pickle.dumps(lazy))[5], data[5], 1e-7)
        assert lazy[2:4].where(1) == f"{tmp_path / name}, frame 3"


def test_labels_under_other_names(tmp_path):
    atoms = frames(1)[0].to_ase()
    atoms.calc = None
    atoms.info["REF_energy"] = -7.0
    atoms.arrays["REF_forces"] = np.ones((3, 3))
    ase_write(tmp_path / "a.xyz", atoms, format="extxyz")
    data = load(tmp_path / "a.xyz", energy_key="REF_energy", forces_key="REF_forces")
    assert data[0].energy == -7.0
    with pytest.raises(
        InputError, match=r"frame 0: no energy and no forces.* energy_key=REF_energy, forces_key=REF_forces takes"
    ):
        load(tmp_path / "a.xyz")
    with pytest.raises(
        InputError, match=r"no entry 'dft' for the energy and no forces. The frame also holds: REF_energy"
    ):
        load(tmp_path / "a.xyz", energy_key="dft")
    assert load(tmp_path / "a.xyz", require=())[0].energy is None


def test_energy_unit_of_an_xyz(tmp_path):
    frame = Structure([1], [[0, 0, 0]], energy=-0.5, forces=[[0, 0, 0]], info={"energy_unit": "Hartree"})
    ase_write(tmp_path / "a.xyz", frame.to_ase(), format="extxyz")
    assert load(tmp_path / "a.xyz").to_units("eV")[0].energy == pytest.approx(-13.6057, abs=1e-4)
    with pytest.raises(InputError, match="says energy_unit=Hartree, units='eV'"):
        load(tmp_path / "a.xyz", units="eV")


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


def test_xsf_alone_in_archives_and_folders(tmp_path):
    raw = XSF.encode()
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for k in range(3):
            member = tarfile.TarInfo(f"dir/{k}.xsf")
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("0.xsf", XSF)
        archive.writestr("1.xyz", "1\nenergy=-1.0 Properties=species:S:1:pos:R:3:forces:R:3\nH 0 0 0 0 0 0\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.xsf").write_text(XSF)
    (tmp_path / "folder" / "b.xsf").write_text(XSF)
    for name, n in (("a.tar.gz", 3), ("a.zip", 2), ("folder", 2), ("folder/a.xsf", 1)):
        data = load(tmp_path / name, check=False)
        assert len(data) == n
        assert data[0].energy == -10.5
        assert data[0].forces[1].tolist() == [0, 0, -0.5]
        assert data[0].cell[0, 0] == 4.0
    assert load(tmp_path / "folder", check=False).where(1).endswith("b.xsf, frame 0")


BAD_TEXT = {
    "frame 1: expected a number of atoms, found b'oops": ("a.xyz", "1\n\nH 0 0 0\noops\n"),
    "frame 0: not a readable frame": ("a.xyz", "2\n\nH 0 0 0\n"),
    "frame 0: no energy": ("a.xyz", "1\n\nH 0 0 0\n"),
    "frame 0: energy is NaN": ("a.xyz", "1\nenergy=nan Properties=species:S:1:pos:R:3:forces:R:3\nH 0 0 0 0 0 0\n"),
    "frame 0: atom 0 has the unknown element 0": (
        "a.xyz",
        "1\nenergy=1.0 Properties=species:S:1:pos:R:3:forces:R:3\nX 0 0 0 0 0 0\n",
    ),
    "no frames": ("a.xyz", ""),
    "not a readable ASE database": ("a.db", "text"),
    "not a readable file of frames": ("a.cif", "nonsense"),
    "not a readable LMDB": ("a.lmdb", "text" * 5000),
}


@pytest.mark.parametrize("message", BAD_TEXT)
def test_bad_text_files(message, tmp_path):
    name, text = BAD_TEXT[message]
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load(tmp_path / name)
    assert name in str(error.value)


def test_bad_places(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "none.xyz")
    with pytest.raises(InputError, match="no data files in this folder"):
        load(tmp_path)
    (tmp_path / "a.xyz").write_text("1\n\nH 0 0 0\n")
    with pytest.raises(InputError, match="for rMD17 npz files only"):
        load(tmp_path / "a.xyz", labels="md17")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "a.xyz", "b.xsf")
    with pytest.raises(InputError, match=r"a.tar, member b.xsf: not a readable xsf file"):
        load(tmp_path / "a.tar")


# LMDB: real PyG objects of both layouts


def write_lmdb(path: Path, records: list[bytes], length: bool = True) -> Path:
    with lmdb.open(str(path), subdir=False, map_size=2**24) as environment, environment.begin(write=True) as t:
        for k, record in enumerate(records):
            t.put(str(k).encode("ascii"), record)
        if length:
            t.put(b"length", pickle.dumps(len(records)))
    return path


def pyg_fields(**changes) -> dict:
    fields = {
        "pos": torch.arange(9.0).reshape(3, 3) * 0.7,
        "atomic_numbers": torch.tensor([22.0, 8.0, 8.0]),
        "cell": torch.eye(3).unsqueeze(0) * 9,
        "y": -12.5,
        "force": torch.ones(6, 3)[::2] * 0.25,
        "tags": torch.tensor([0, 1, 2]),
        "fixed": torch.tensor([1.0, 0.0, 0.0]),
        "sid": 17,
        "fid": 4,
    }
    return {k: v for k, v in {**fields, **changes}.items() if v is not None}


def new_layout(**changes) -> bytes:
    return pickle.dumps(pyg_data.Data(**pyg_fields(**changes)), protocol=5)


class OldData:
    """A Data object as PyG 1 pickled it: attributes in its own ``__dict__``."""

    def __init__(self, fields: dict) -> None:
        self.__dict__.update(fields)


def old_layout(**changes) -> bytes:
    raw = pickle.dumps(OldData({"x": None, "edge_index": None, **pyg_fields(**changes)}), protocol=2)
    assert OldData.__module__.encode() in raw
    named = raw.replace(f"c{OldData.__module__}\nOldData\n".encode(), f"c{pyg_data.__name__}\nData\n".encode())
    assert named != raw
    return named


@pytest.mark.parametrize("layout", [new_layout, old_layout])
@pytest.mark.parametrize("squeeze", [zlib.compress, bytes])
@pytest.mark.parametrize("length", [True, False])
def test_s2ef_lmdb(layout, squeeze, length, tmp_path):
    path = write_lmdb(tmp_path / "a.lmdb", [squeeze(layout()), squeeze(layout(y=torch.tensor([-3.0])))], length)
    data = load(path, check=False)
    assert len(data) == 2
    frame = pickle.loads(pickle.dumps(data))[0]  # a copy in another process opens the file by itself
    assert (frame.z.tolist(), frame.energy, frame.cell.tolist()) == ([22, 8, 8], -12.5, (np.eye(3) * 9).tolist())
    np.testing.assert_allclose(frame.positions, np.arange(9).reshape(3, 3) * 0.7, rtol=1e-6)
    assert (frame.forces == 0.25).all()
    assert frame.info["sid"] == 17
    assert frame.info["tags"].tolist() == [0, 1, 2]
    assert data[1].energy == -3.0


BAD_LMDB = {
    "frame 0: missing pos; the record holds atomic_numbers": {"pos": None},
    "frame 0: no forces": {"force": None},
    "frame 0: energy is NaN": {"y": float("nan")},
    r"frame 0: forces of a structure with 3 atoms has shape \(2, 3\)": {"force": torch.zeros(2, 3)},
    "frame 0: atomic_numbers are not whole": {"atomic_numbers": torch.tensor([1.5, 1, 1])},
    r"frame 0: stress has shape \(5,\)": {"stress": torch.zeros(5)},
}


@pytest.mark.parametrize("message", BAD_LMDB)
def test_bad_lmdb_records(message, tmp_path):
    path = write_lmdb(tmp_path / "a.lmdb", [new_layout(**BAD_LMDB[message])])
    with pytest.raises(InputError, match=message):
        load(path)


def test_lmdb_holes(tmp_path):
    with pytest.raises(InputError, match="frame 1: missing key 1"):
        load(write_lmdb(tmp_path / "a.lmdb", [new_layout()]), check=False)._frames[1]
    with pytest.raises(InputError, match="no frames"):
        load(write_lmdb(tmp_path / "b.lmdb", [], length=False))
    with pytest.raises(InputError, match="not a PyG Data object"):
        load(write_lmdb(tmp_path / "c.lmdb", [pickle.dumps([1])]))


# the restricted unpickler


class Call:
    """Pickles as a call of ``function(*args)``."""

    def __init__(self, function, *args) -> None:
        self.call = function, args

    def __reduce__(self):
        return self.call


def written_by_eval(path):
    return Call(eval, f"open({str(path)!r}, 'w').close()")


ATTACKS = {
    "os.system": lambda path: pickle.dumps(Call(os.system, f"touch {path}")),
    "eval": lambda path: pickle.dumps(written_by_eval(path)),
    "inside a list": lambda path: pickle.dumps([1, {"a": written_by_eval(path)}]),
    "getattr": lambda path: pickle.dumps(Call(getattr, Call(__import__, "os"), "system")),
    "a file object": lambda path: pickle.dumps(Call(open, str(path), "w")),
    "numpy loading a pickle": lambda path: pickle.dumps(Call(np.load, str(path))),
    "torch loading a pickle": lambda path: pickle.dumps(Call(torch.load, io.BytesIO(b""))),
    "opcodes by hand": lambda path: b"cposix\nsystem\n(S'touch " + str(path).encode() + b"'\ntR.",
    "persistent id": lambda path: b"Pos.system\n.",
    "text codec": lambda path: b"c_codecs\nencode\n(Vabc\nVrot13\ntR.",
    "dotted name": lambda path: b"\x80\x04\x8c\x05numpy\x8c\x0bndarray.sum\x93.",
    "object array": lambda path: pickle.dumps(np.array([{}], object)),
    "changing the bag": lambda path: (
        b"\x80\x02ctorch_geometric.data.data\nData\n(NX\x06\x00\x00\x00fields}stb.".replace(b"}st", b"K\x01\x86t")
    ),
    "cut off": lambda path: pickle.dumps([1, 2, 3])[:-3],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_malicious_pickles_are_refused_and_do_not_run(attack, tmp_path):
    trace = tmp_path / "ran"
    raw = ATTACKS[attack](trace)
    with pytest.raises(InputError, match=r"x\.pkl: refused as unsafe"):
        safe_loads(raw, "x.pkl")
    assert not trace.exists()


def test_a_tensor_whose_storage_hides_a_call_is_refused(tmp_path):
    trace = tmp_path / "ran"
    storage = Call(torch.storage._load_from_bytes, pickle.dumps(written_by_eval(trace)))
    tensor = Call(torch._utils._rebuild_tensor_v2, storage, 0, (1,), (1,), False, {})
    with pytest.raises(InputError, match=r"a tensor asks for builtins\.eval"):
        safe_loads(pickle.dumps(tensor), "x.pkl")
    assert not trace.exists()


def test_a_tensor_cannot_reach_outside_its_storage():
    raw = torch.zeros(2).untyped_storage()
    storage = torch.storage.TypedStorage(wrap_storage=raw, dtype=torch.float32, _internal=True)
    tensor = Call(torch._utils._rebuild_tensor_v2, storage, 0, (1000,), (1,), False, {})
    with pytest.raises(InputError, match="out of bounds"):
        safe_loads(pickle.dumps(tensor), "x.pkl")


def test_a_malicious_lmdb_is_refused(tmp_path):
    trace = tmp_path / "ran"
    path = write_lmdb(tmp_path / "a.lmdb", [zlib.compress(pickle.dumps(written_by_eval(trace)))])
    with pytest.raises(InputError, match=r"a.lmdb, frame 0: refused as unsafe .* it asks for builtins.eval"):
        load(path)
    assert not trace.exists()


HARMLESS = {
    "matrix": np.arange(6).reshape(2, 3),
    "fortran": np.asfortranarray(RNG.normal(size=(3, 2))),
    "text": np.array(["a", "bc"]),
    "scalar": np.float64(3.5),
    "big endian": np.arange(4, dtype=">i4"),
    "empty": np.array([]),
    "bool": np.array([True, False]),
}


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", HARMLESS)
def test_arrays_of_every_protocol(name, protocol):
    value = HARMLESS[name]
    back = safe_loads(pickle.dumps({"a": [(value, 1)]}, protocol), "x.pkl")["a"][0][0]
    assert np.asarray(back).dtype == value.dtype
    np.testing.assert_array_equal(back, value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.float16])
def test_tensors(dtype):
    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype).T
    np.testing.assert_array_equal(safe_loads(pickle.dumps(tensor), "x.pkl"), tensor.numpy())


# datasets


def test_slices_units_and_places():
    data = Dataset(frames(6), "eV", "file.xyz", force_sign=-1)
    part = data[[5, 1]][::-1].to_units("kcal/mol", "Bohr")
    assert len(part) == 2
    assert part.where(0) == "file.xyz, frame 1"
    assert part.numbers.tolist() == [1, 5]
    np.testing.assert_allclose(part[0].forces, -data._frames[1].forces * 23.0605478 * 0.529177211, rtol=1e-7)
    np.testing.assert_allclose(part[0].cell, CELL / 0.529177211, rtol=1e-7)
    np.testing.assert_allclose(part[0].stress[0, 0], 1e-3 * 23.0605478 * 0.529177211**3, rtol=1e-7)
    np.testing.assert_allclose(part.energies(), np.array([-2501.0, -2505.0]) * 23.0605478, rtol=1e-7)
    assert [frame.energy for frame in data[2:4]] == [-2502.0, -2503.0]
    assert repr(data) == "Dataset('file.xyz', 6 frames, eV, Ang)"
    with pytest.raises(InputError, match="force_sign is 2"):
        Dataset([], force_sign=2)


def test_joined_datasets_share_units():
    a, b = Dataset(frames(2), "eV", "a"), Dataset(frames(3), "kcal/mol", "b")
    both = join([a, b])
    assert len(both) == 5
    assert both[4].energy == pytest.approx(-2502.0 / 23.0605478, rel=1e-7)
    assert both[[4, 0]].where(0) == "b, frame 2"
    assert join([a]) is a
    with pytest.raises(InputError, match="join no datasets"):
        join([])


# real files


REAL = {
    "md17/md17_ethanol_first2000.npz": (2000, "kcal/mol", -97208.406),
    "rmd17/rmd17_ethanol_train_01.npz": (1000, "kcal/mol", -97079.922),
    "rmd17/rmd17_aspirin_test_05.npz": (1000, "kcal/mol", None),
    "oxides/tio2_xsf.tar.gz": (1000, "eV", -19959.484),
    "oxides/oxides.db": (295, "eV", None),
    "oxides/mptrj-random-1k.xyz": (1000, "eV", -28.757),
    "oxides/oc20_relaxation.traj": (47, "eV", None),
    "molecules/3bpa_300K.xyz": (500, "eV", -17660.462),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files(name):
    if not (SHARED / name).exists():
        pytest.skip(f"needs {SHARED / name}")
    data = load(SHARED / name)
    n, unit, first = REAL[name]
    assert (len(data), data.units.energy) == (n, unit)
    assert data[n - 1].forces.shape == (len(data[n - 1]), 3)
    if first is not None:
        assert data[0].energy == pytest.approx(first, abs=1e-3)


@pytest.mark.parametrize("name", ["x" * 3000, "~nobody-of-this-name/x.npz"])
def test_a_name_that_no_file_can_have_is_no_file(name):
    with pytest.raises(InputError, match="no such file"):
        load(name)
