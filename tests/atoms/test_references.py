"""Reference energies: of free atoms, of a dictionary, of a file, by least squares over any number of chunks."""

import json
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.io import write as ase_write

from dcnn import LabelScale
from dcnn.atoms import Dataset, Structure, load
from dcnn.atoms.config import AtomsConfig
from dcnn.atoms.data import write
from dcnn.atoms.data.packed import pack
from dcnn.atoms.frames import load_frames, read_references
from dcnn.atoms.references import undetermined
from dcnn.atoms.task import build_atoms
from dcnn.atoms.units import Units
from dcnn.errors import InputError

MOLECULES = Path(__file__).resolve().parents[3] / "shared" / "data" / "molecules"
FREE = {1: -13.0, 8: -430.0}
SIZES = {"features": 8, "filters": 8, "blocks": 1, "gaussians": 6}


def frames_of(count=40, seed=0):
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        z = np.array([8] * rng.integers(1, 4) + [1] * rng.integers(1, 6))
        positions = 1.5 * np.argwhere(np.ones((3, 3, 3)))[: len(z)] + 0.35 * rng.standard_normal((len(z), 3))
        energy = sum(FREE[int(n)] for n in z) - 3.0 * len(z) + 0.01 * rng.standard_normal()
        found.append(Structure(z, positions, energy=energy, forces=rng.standard_normal((len(z), 3))))
    return found


def test_least_squares_in_chunks_is_that_of_all_frames():
    frames = frames_of(5000)
    counts = np.array([[(f.z == z).sum() for z in (1, 8)] for f in frames])
    expected = np.linalg.lstsq(counts, [f.energy for f in frames], rcond=None)[0]
    packed = pack(Dataset(frames)).dataset()  # two chunks of 4,096 frames
    for data in (frames, packed, iter(frames)):
        assert LabelScale.fit(data).references == pytest.approx(dict(zip((1, 8), expected, strict=True)), rel=1e-11)
    assert not undetermined(packed)
    water = [f for f in frames if len(f) == 3 and (f.z == 1).sum() == 2]
    assert undetermined(water)
    assert not undetermined(packed[:0:-1])


def test_what_is_given_is_kept_and_the_rest_is_fitted():
    frames = frames_of()
    scale = LabelScale.fit(frames, {"O": -430.0})
    assert scale.references[8] == -430.0
    counts = np.array([[(f.z == z).sum() for z in (1, 8)] for f in frames])
    rest = np.array([f.energy for f in frames]) + 430.0 * counts[:, 1]
    assert scale.references[1] == pytest.approx(np.linalg.lstsq(counts[:, :1], rest, rcond=None)[0][0], rel=1e-11)
    assert LabelScale.fit(frames, {"H": -13.0, 8: -430.0}, 1.0) == LabelScale(1.0, FREE)


def with_free_atoms(path):
    free = [Structure([z], np.zeros((1, 3)), energy=e, info={"config_type": "IsolatedAtom"}) for z, e in FREE.items()]
    write(Dataset([*frames_of(), *free], "eV"), path)
    return str(path)


@pytest.mark.parametrize("large", [False, True])
def test_free_atoms_of_the_file_are_the_references(large, tmp_path, monkeypatch):
    if large:  # a file that does not fit in memory goes through the cache
        monkeypatch.setattr("dcnn.atoms.frames.LARGE", 0)
    path = with_free_atoms(tmp_path / "a.lmdb")
    values = {
        "data": {"path": path, "train": 20, "validation": 10, "cache": str(tmp_path / "cache")},
        "model": {"name": "schnet", "overrides": SIZES},
        "scale": {"references": "elements", "unit": "force_rms"},
        "training": {"epochs": 1},
    }
    config = AtomsConfig(**values)
    task = build_atoms(config)
    assert task.scale.references == FREE
    assert sum(len(part) for part in task.frames.values()) == 40, "free atoms are in no part"
    assert load_frames(path, config.data).isolated == FREE
    given = AtomsConfig(**values | {"scale": {"references": {"H": -1.0, "O": -2.0}}})
    assert build_atoms(given).scale.references == {1: -1.0, 8: -2.0}


def test_references_of_a_file(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps({"H": -13.0, "8": -430.0}))
    (tmp_path / "r.yaml").write_text("{H: -13.0, O: -430.0}")
    ase_write(tmp_path / "r.xyz", [Atoms([z], info={"energy": e}) for z, e in FREE.items()], format="extxyz")
    for name in ("r.json", "r.yaml", "r.xyz"):
        assert read_references(str(tmp_path / name), Units()) == FREE
    in_kcal = read_references(str(tmp_path / "r.xyz"), Units("kcal/mol"))
    assert in_kcal[1] == pytest.approx(-13.0 * 23.0605, rel=1e-5)
    (tmp_path / "bad.yaml").write_text("{Hh: -13.0}")
    with pytest.raises(InputError, match="'Hh' is no element"):
        read_references(str(tmp_path / "bad.yaml"), Units())
    with pytest.raises(InputError, match=r"no such file 'element'; give elements, mean, \{H: -13.6"):
        read_references("element", Units())
    ase_write(tmp_path / "two.xyz", Atoms("H2", [[0, 0, 0], [0, 0, 1.0]], info={"energy": -1.0}), format="extxyz")
    with pytest.raises(InputError, match="frames of several atoms"):
        read_references(str(tmp_path / "two.xyz"), Units())


@pytest.mark.skipif(not MOLECULES.exists(), reason="needs ../shared/data")
def test_free_atoms_of_published_files():
    solvents = load(MOLECULES / "solvents_xtb_train.xyz")
    assert solvents.isolated.keys() == {1, 6, 8}
    assert LabelScale.fit(solvents).references == pytest.approx(solvents.isolated)
    energies = read_references(str(MOLECULES / "3bpa_isolated_atoms.xyz"), Units())
    assert energies[8] == pytest.approx(-2041.98160)
