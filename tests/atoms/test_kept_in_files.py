"""What a frame says survives reading, converting and writing: units, labels, cells, momenta, constraints, order."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.lj import LennardJones
from ase.constraints import FixAtoms
from ase.io import read as ase_read
from ase.io import write as ase_write

from dcnn.atoms import Dataset, Structure, join, load
from dcnn.atoms.config import DataConfig
from dcnn.atoms.data import demo_dataset, inspect, write
from dcnn.atoms.data.fingerprint import load_split, save_split
from dcnn.atoms.data.packed import pack
from dcnn.atoms.domain import target
from dcnn.atoms.frames import split_frames
from dcnn.atoms.units import Units
from dcnn.errors import InputError

KCAL = Units("kcal/mol").energy_factor(Units("eV"))


def tagged(path, unit="kcal/mol"):
    frames = [Atoms("H2", [[0, 0, 0], [0, 0, 0.7 + 0.1 * k]]) for k in range(3)]
    for k, atoms in enumerate(frames):
        atoms.info |= {"energy": -100.0 - k, "energy_unit": unit}
        atoms.arrays["forces"] = np.zeros((2, 3))
    ase_write(path, frames, format="extxyz")
    return path


@pytest.mark.parametrize("name", ["b.xyz", "b.db", "b.traj", "b.lmdb", "b.npz"])
def test_converted_labels_do_not_carry_the_old_unit(name, tmp_path):
    data = load(tagged(tmp_path / "a.xyz"), check=False)
    assert data.units.energy == "kcal/mol"
    write(data, tmp_path / name)
    back = load(tmp_path / name, check=False).to_units("eV")
    assert back[1].energy == pytest.approx(-101 * KCAL, rel=1e-9)


def test_frames_of_two_units_are_refused(tmp_path):
    text = tagged(tmp_path / "a.xyz").read_text() + tagged(tmp_path / "b.xyz", "eV").read_text()
    (tmp_path / "c.xyz").write_text(text)
    with pytest.raises(InputError, match=r"c\.xyz, frame 3: says energy_unit=eV, but frame 0 kcal/mol"):
        load(tmp_path / "c.xyz", check=False)


def test_ase_atoms_are_always_in_ev():
    frame = demo_dataset()[0]
    assert frame.units.energy == "kcal/mol"
    assert frame.to_ase().get_potential_energy() == pytest.approx(frame.energy * KCAL)
    np.testing.assert_allclose(frame.to_ase().get_forces(), frame.forces * KCAL)
    bohr = demo_dataset().to_units("Hartree", "Bohr")[0].to_ase()
    np.testing.assert_allclose(bohr.positions, frame.positions)
    np.testing.assert_allclose(bohr.get_forces(), frame.forces * KCAL)
    again = Dataset(list(demo_dataset()[:2]))  # frames know their own unit
    assert again.to_units("eV")[1].energy == pytest.approx(demo_dataset()[1].energy * KCAL)


def test_a_structure_is_a_copy_with_labels_of_its_own_geometry():
    atoms = Atoms("Ar2", [[0, 0, 0], [0, 0, 3.7]])
    atoms.calc = LennardJones()
    atoms.get_forces()
    first = Structure.from_ase(atoms)
    assert first.energy == pytest.approx(atoms.get_potential_energy())
    atoms.positions[1, 2] = 4.5
    assert first.positions[1, 2] == 3.7
    moved = Structure.from_ase(atoms)
    assert moved.energy is None
    assert moved.forces is None


def slab(pbc=(True, True, False), **labels) -> Structure:
    return Structure([22, 8], [[0, 0, 0], [1.4, 1.4, 0.5]], np.diag([3.0, 3.0, 9.0]), pbc, **labels)


@pytest.mark.parametrize("name", ["a.npz", "a.lmdb", "a.xyz", "a.db", "a.traj"])
def test_mixed_periodicity_comes_back(name, tmp_path):
    frames = [slab(energy=-1.0), slab((True, False, False), energy=-2.0), slab((True,) * 3, energy=-3.0)]
    write(Dataset(frames), tmp_path / name)
    back = load(tmp_path / name, require=("energy",))
    assert [frame.pbc.tolist() for frame in back] == [frame.pbc.tolist() for frame in frames]


@pytest.mark.parametrize("name", ["a.npz", "a.lmdb", "a.xyz", "a.db", "a.traj"])
def test_entries_that_only_some_frames_have_come_back(name, tmp_path):
    bare = Structure([22, 8], [[0, 0, 0], [1.9, 0, 0]], energy=-2.0)
    frames = [slab(energy=-1.0, forces=np.ones((2, 3)), stress=np.eye(3)), bare, slab(forces=np.zeros((2, 3)))]
    write(Dataset(frames), tmp_path / name)
    back = list(load(tmp_path / name, require=()))
    for field in ("cell", "energy", "forces", "stress"):
        assert [getattr(f, field) is None for f in back] == [getattr(f, field) is None for f in frames], field
    assert back[1].energy == -2.0
    with pytest.raises(InputError, match=r"frame 1: no forces"):
        load(tmp_path / name)


@pytest.mark.parametrize("name", ["a.xyz", "a.traj"])
def test_momenta_and_constraints_come_back(name, tmp_path):
    atoms = Atoms("Ar3", np.diag([0.0, 4, 8]), momenta=np.arange(9.0).reshape(3, 3))
    atoms.set_constraint(FixAtoms([1]))
    ase_write(tmp_path / name, atoms)
    found = load(tmp_path / name, require=())[0].to_ase()
    np.testing.assert_allclose(found.get_momenta(), ase_read(tmp_path / name).get_momenta())
    assert found.get_momenta()[2].any()
    assert found.constraints[0].get_indices().tolist() == [1]


# the trajectory that a shuffled file was drawn from


def shuffled(path, n=400):
    place = np.random.default_rng(0).permutation(n)
    arrays = {"nuclear_charges": [6, 1], "coords": np.zeros((n, 2, 3)), "energies": np.zeros(n)}
    arrays["coords"][:, 1, 2] = 1.0 + 1e-3 * place
    np.savez(path, **arrays, forces=np.zeros((n, 2, 3)), old_indices=place)
    return path


@pytest.mark.parametrize("name", ["a.npz", "b.npz", "b.xyz"])
def test_blocks_follow_the_trajectory_not_the_file(name, tmp_path):
    data = load(shuffled(tmp_path / "a.npz"), check=False)
    if name != "a.npz":
        write(data, tmp_path / name)
    frames = split_frames(DataConfig(path=str(tmp_path / name), split="blocks", train=200, validation=50, test=100))
    train, test = (frames[part].trajectory_index() for part in ("train", "test"))
    apart = np.abs(test[:, None] - train[None]).min(1)
    assert np.median(apart) > 5  # 1 for a random split
    both = join([data, data[:10]])
    assert both.trajectory_index().tolist() == [*data.trajectory_index(), *data.trajectory_index()[:10]]


# before the first step


def test_a_broken_frame_is_found_before_training_by_its_own_number(tmp_path):
    atoms = [Atoms("ArAr", [[0, 0, 0], [0, 0, 3.0 + 0.01 * k]]) for k in range(60)]
    atoms[47].positions[1] = [0, 0, 0.01]
    for frame in atoms:
        frame.info["energy"], frame.arrays["forces"] = -1.0, np.zeros((2, 3))
    ase_write(tmp_path / "a.xyz", atoms, format="extxyz")
    config = DataConfig(path=str(tmp_path / "a.xyz"), train=10, validation=5)
    with pytest.raises(InputError, match=r"a\.xyz, frame 47: atoms 0 and 1 are 0\.01 Å apart"):
        split_frames(config)


FLAT = {
    "collinear": np.array([[3.0, 0, 0], [6, 0, 0], [0, 0, 3]]),
    "almost no volume": np.array([[3.0, 0, 0], [0, 3, 0], [3, 3, 1e-7]]),
    "tiny": np.eye(3) * 1e-3,
    "infinite": np.full((3, 3), np.inf),
}


@pytest.mark.parametrize("cell", FLAT)
@pytest.mark.parametrize("pbc", [(True, True, True), (True, True, False)])
def test_flat_cells_are_refused_at_once(cell, pbc):
    if cell == "almost no volume" and not pbc[2]:
        pytest.skip("two of its vectors span a plane")
    data = Dataset([Structure([18], [[0, 0, 0]], FLAT[cell], pbc)], source="a.xyz")
    with pytest.raises(InputError, match=r"a\.xyz, frame 0: the cell has no volume along a periodic direction"):
        pack(data)


# labels under other names


def named(path, **entries):
    atoms = Atoms("Ar2", [[0, 0, 0], [0, 0, 3.0]], cell=np.eye(3) * 5, pbc=True)
    for name, value in entries.items():
        (atoms.arrays if np.shape(value) == (2, 3) else atoms.info)[name] = value
    ase_write(path, atoms, format="extxyz")
    return path


def test_keys_of_all_labels(tmp_path):
    virial = np.array([[1.0, 0.2, 0.3], [0.2, 2, 0.4], [0.3, 0.4, 3]])
    forces = np.arange(6.0).reshape(2, 3)
    path = named(tmp_path / "a.xyz", TotEnergy=-3.0, dft_forces=forces, virial=virial, my_stress=[1, 2, 3, 4, 5, 6])
    keys = {"energy_key": "TotEnergy", "forces_key": "dft_forces"}
    frame = load(path, **keys, virial_key="virial")[0]
    assert (frame.energy, frame.forces.tolist()) == (-3.0, forces.tolist())
    np.testing.assert_allclose(frame.stress, -virial / 125)
    frame = load(path, **keys, stress_key="my_stress")[0]
    np.testing.assert_allclose(frame.stress, [[1, 6, 5], [6, 2, 4], [5, 4, 3]])
    with pytest.raises(InputError, match="not both"):
        load(path, stress_key="my_stress", virial_key="virial")


def test_the_own_names_of_ase_may_be_given(tmp_path):
    path = named(tmp_path / "a.xyz", energy=-3.0, forces=np.zeros((2, 3)))
    assert load(path, energy_key="energy", forces_key="forces")[0].energy == -3.0


def test_several_files_are_one_dataset(tmp_path):
    for k in range(3):
        named(tmp_path / f"run{k}.xyz", energy=-float(k), forces=np.zeros((2, 3)))
    for path in (tmp_path / "run*.xyz", str(tmp_path), [tmp_path / f"run{k}.xyz" for k in range(3)]):
        assert load(path, check=False).energies().tolist() == [0, -1, -2]
    assert target(str(tmp_path / "run*.xyz")) == {"kind": "atoms", "data": {"path": str(tmp_path / "run*.xyz")}}
    assert target(str(tmp_path / "none*.xyz")) is None
    with pytest.raises(InputError, match=r"none\*.xyz: no such file"):
        load(tmp_path / "none*.xyz")


@pytest.mark.parametrize("name", ["energy_free", "magmom"])
def test_other_entries_do_not_look_like_labels(name, tmp_path):
    assert not inspect(load(named(tmp_path / "a.xyz", energy=-1.0, **{name: 2.0}), require=())).unused


def test_entries_like_labels_are_listed_with_the_option_that_takes_them(tmp_path):
    entries = {"TotEnergy": -3.0, "dft_forces": np.zeros((2, 3)), "virial": np.eye(3)}
    summary = inspect(load(named(tmp_path / "a.xyz", **entries), require=()))
    assert summary.unused == {"TotEnergy": "energy", "dft_forces": "forces", "virial": "virial"}
    text = dict(summary.rows())["not read, but like labels"]
    assert "energy_key=TotEnergy, forces_key=dft_forces, virial_key=virial" in text


def test_free_atoms_become_references_and_are_no_frames(tmp_path):
    free = Atoms("Ar", [[0, 0, 0]], info={"energy": -20.0, "config_type": "IsolatedAtom"})
    text = named(tmp_path / "a.xyz", energy=-41.0, forces=np.zeros((2, 3))).read_text()
    ase_write(tmp_path / "free.xyz", free, format="extxyz")
    (tmp_path / "b.xyz").write_text((tmp_path / "free.xyz").read_text() + 3 * text)
    data = load(tmp_path / "b.xyz", check=False)
    assert (len(data), data.numbers.tolist()) == (3, [1, 2, 3])
    assert data.isolated == {18: -20.0}
    assert data[1:].to_units("kcal/mol").isolated[18] == pytest.approx(-20 / KCAL)
    assert load([tmp_path / "b.xyz", tmp_path / "a.xyz"], check=False).isolated == {18: -20.0}
    save_split(tmp_path / "split.json", {"train": data[1:]})
    back = load_split(tmp_path / "split.json", lambda names: load(names, check=False))["train"]
    assert back.numbers.tolist() == [2, 3]
    assert load(tmp_path / "free.xyz", require=("energy", "forces"))[0].energy == -20.0  # nothing else to be


def test_validation_and_test_frames_from_files_of_their_own(tmp_path):
    for name, n in (("train", 9), ("valid", 3), ("test", 4)):
        write(demo_dataset()[:n], tmp_path / f"{name}.npz")
    files = {part: str(tmp_path / f"{part}.npz") for part in ("train", "valid", "test")}
    frames = split_frames(DataConfig(path=files["train"], validation=files["valid"], test=files["test"]))
    assert {part: len(data) for part, data in frames.items()} == {"train": 9, "validation": 3, "test": 4}


def test_keys_in_the_configuration(tmp_path):
    text = named(tmp_path / "a.xyz", REF_energy=-3.0, REF_forces=np.zeros((2, 3))).read_text()
    (tmp_path / "a.xyz").write_text(10 * text)
    keys = {"energy_key": "REF_energy", "forces_key": "REF_forces"}
    frames = split_frames(DataConfig(path=str(tmp_path / "a.xyz"), **keys, train=5, validation=2))
    assert frames["test"][0].energy == -3.0
