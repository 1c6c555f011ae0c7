"""The report on a file: what is found in data of known physics, broken in known ways."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dcnn.atoms import Dataset, Structure, load
from dcnn.atoms.data import demo_dataset, inspect, write
from dcnn.atoms.data.consistency import check_labels
from dcnn.cli.data import app
from dcnn.errors import InputError

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def springs(n: int, seed: int = 0, cell: np.ndarray | None = None, atoms: int = 4) -> list[Structure]:
    """Frames of atoms on springs of 8 eV/Å² about bonds of 1.1 Å; a walk of small steps, tumbling if free."""
    rng = np.random.default_rng(seed)
    rest = np.arange(3 * atoms).reshape(atoms, 3) % 5 * 0.55 + np.eye(atoms, 3) * 0.3
    bonds = np.linalg.norm(rest[:, None] - rest[None], axis=-1)
    frames, shape = [], rest.copy()
    for _ in range(n):
        shape = rest + 0.9 * (shape - rest) + rng.normal(size=(atoms, 3)) * 0.03
        turned = shape if cell is not None else shape @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
        apart = turned[:, None] - turned[None]
        length = np.linalg.norm(apart, axis=-1) + np.eye(atoms)
        stretch = (length - bonds) * (1 - np.eye(atoms))
        forces = -8 * (stretch / length)[..., None] * apart
        energy = -40.0 * atoms + 2 * (stretch**2).sum()
        frames.append(Structure([6] * atoms, turned, cell, energy=energy, forces=forces.sum(1)))
    return frames


def changed(frames, **factors) -> Dataset:
    return Dataset(
        [
            Structure(
                f.z,
                f.positions * factors.get("positions", 1),
                f.cell,
                energy=f.energy * factors.get("energy", 1),
                forces=f.forces * factors.get("forces", 1),
            )
            for f in frames
        ],
        "eV",
        "file.xyz",
    )


CELL = np.eye(3) * 12.0
VERDICTS = [
    ({}, None, "agree"),
    ({}, CELL, "agree"),
    ({"forces": -1}, None, "wrong sign"),
    ({"forces": -1}, CELL, "wrong sign"),
    ({"energy": 1 / 4}, None, "per atom"),
    ({"forces": 23.0605}, None, "units"),
    ({"energy": 27.2114}, CELL, "units"),
    ({"forces": 1e-3}, CELL, "units"),
]


@pytest.mark.parametrize(("factors", "cell", "verdict"), VERDICTS)
def test_verdicts(factors, cell, verdict):
    data = changed(springs(60, cell=cell), **factors)
    assert check_labels(data).verdict == verdict


def test_atoms_that_crossed_the_boundary_are_compared_as_neighbours():
    frames = springs(40, cell=CELL)
    wrapped = [
        Structure(f.z, f.positions + CELL[k % 3] * (k % 5), CELL, energy=f.energy, forces=f.forces)
        for k, f in enumerate(frames)
    ]
    assert check_labels(Dataset(wrapped)).slope == pytest.approx(check_labels(Dataset(frames)).slope, rel=1e-9)


def test_frames_far_apart_are_not_judged():
    rng = np.random.default_rng(0)
    far = [Structure([6, 6], rng.normal(size=(2, 3)) * 9, energy=0.0, forces=np.zeros((2, 3))) for _ in range(20)]
    assert check_labels(Dataset(far)).verdict == "cannot be judged"
    same = [Structure([6, 6], [[0, 0, 0], [0, 0, 1.4]], energy=0.0, forces=np.zeros((2, 3)))] * 20
    assert check_labels(Dataset(same)).verdict == "cannot be judged"


def test_unrelated_labels_are_weak():
    rng = np.random.default_rng(1)
    frames = [Structure(f.z, f.positions, energy=rng.normal(), forces=f.forces) for f in springs(60)]
    agreement = check_labels(Dataset(frames))
    assert agreement.verdict == "weak"
    assert "hardly agree" in agreement.warnings(Dataset(frames))[0]


def test_load_refuses_wrong_signs_and_units_and_warns_of_energies_per_atom(tmp_path):
    write(changed(springs(60), forces=-1), tmp_path / "sign.xyz")
    with pytest.raises(InputError, match=r"sign.xyz: the forces have the wrong sign.* --force-sign -1"):
        load(tmp_path / "sign.xyz")
    load(tmp_path / "sign.xyz", force_sign=-1)
    write(changed(springs(60)), tmp_path / "right.xyz")
    with pytest.raises(InputError, match=r"--force-sign 1 "):
        load(tmp_path / "right.xyz", force_sign=-1)
    write(changed(springs(60), forces=23.0605), tmp_path / "units.xyz")
    with pytest.raises(InputError, match=r"units.xyz: energies and forces are in different units.* as with .*kcal/mol"):
        load(tmp_path / "units.xyz")
    write(changed(springs(60), energy=1 / 4), tmp_path / "per_atom.xyz")
    with pytest.warns(UserWarning, match=r"per_atom.xyz: energies look like energies per atom"):
        load(tmp_path / "per_atom.xyz")


def test_summary_of_known_data():
    frames = springs(30)
    data = Dataset([*frames, frames[3], frames[7]], "eV", "file.xyz")
    summary = inspect(data)
    energies = np.array([frame.energy for frame in data])
    assert (summary.frames, summary.atoms, summary.elements) == (32, (4, 4), {"C": 128})
    assert summary.duplicates == [(3, 30), (7, 31)]
    assert summary.energy.mean == pytest.approx(energies.mean())
    assert summary.energy.std == pytest.approx(energies.std())
    assert summary.float32_resolution == np.spacing(np.float32(np.abs(energies).mean()))
    nearest = min(np.linalg.norm(f.positions[a] - f.positions[b]) for f in data for a in range(4) for b in range(a))
    assert summary.shortest_distance == pytest.approx(nearest)
    assert any("2 frames repeat an earlier one" in text for text in summary.warnings)


def test_a_long_file_is_sampled():
    assert inspect(Dataset(springs(50)), limit=10).frames_read == 10


MAGNITUDES = {
    "they do not grow with the number of atoms": lambda n: -7.1 + 0.01 * (n % 3),
    "eV per atom is little for a total energy": lambda n: -0.2 * n,
}


@pytest.mark.parametrize("reason", MAGNITUDES)
def test_energies_that_are_not_totals(reason):
    frames = []
    for n in range(3, 30):
        positions = np.stack([np.arange(n) * 1.4, np.zeros(n), np.zeros(n)], 1)
        frames.append(Structure([6] * n, positions, energy=MAGNITUDES[reason](n), forces=np.zeros((n, 3))))
    assert any(reason in text for text in inspect(Dataset(frames)).warnings)
    totals = [Structure(f.z, f.positions, energy=-150.0 * len(f), forces=f.forces) for f in frames]
    assert inspect(Dataset(totals)).warnings == []


@pytest.mark.parametrize(("factor", "hint"), [(1.8897, "Bohr"), (0.5292, "Bohr")])
def test_lengths_in_the_wrong_unit(factor, hint):
    bonds = [Structure([6, 1], np.array([[0, 0, 0], [0, 0, 1.09 + k / 99]]) * factor) for k in range(9)]
    assert any(f"check the unit of length (units='eV, {hint}')" in text for text in inspect(Dataset(bonds)).warnings)
    in_bohr = Dataset([Structure([6, 1], [[0, 0, 0], [0, 0, 2.06]])], "Hartree, Bohr")
    assert inspect(in_bohr).warnings == []


def test_atoms_on_top_of_each_other_are_named():
    data = Dataset([Structure([1, 1], [[0, 0, 0], [0, 0, z]]) for z in (0.7, 0.01)], source="file.xyz")
    with pytest.raises(InputError, match=r"file.xyz, frame 1: atoms 0 and 1 are 0.01 Å apart"):
        inspect(data)


# the command


def run(*arguments: str):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_info_prints_a_table_and_json(tmp_path):
    write(changed(springs(40)), tmp_path / "a.xyz")
    table = run("info", tmp_path / "a.xyz")
    assert table.exit_code == 0
    assert "energy [eV]" in table.output
    assert "pairs of close frames" in " ".join(table.output.split())
    content = json.loads(run("info", tmp_path / "a.xyz", "--json").output)
    assert content["frames"] == 40
    assert content["agreement"]["verdict"] == "agree"
    assert content["energy_unit"] == "eV"


def test_info_refuses_the_wrong_sign(tmp_path):
    write(changed(springs(40), forces=-1), tmp_path / "a.xyz")
    result = run("info", tmp_path / "a.xyz")
    assert isinstance(result.exception, InputError)
    assert "--force-sign -1" in str(result.exception)
    assert run("info", tmp_path / "a.xyz", "--force-sign", "-1").exit_code == 0


def test_info_without_labels(tmp_path):
    (tmp_path / "a.xyz").write_text("2\n\nH 0 0 0\nH 0 0 0.74\n")
    result = run("info", tmp_path / "a.xyz", "--json")
    assert json.loads(result.output)["energy"] is None
    assert "cannot be judged" in run("info", tmp_path / "a.xyz").output


def test_convert(tmp_path):
    write(changed(springs(5)), tmp_path / "a.xyz")
    assert (
        run("convert", tmp_path / "a.xyz", tmp_path / "b.npz", "--to-units", "kcal/mol", "--first", "3").exit_code == 0
    )
    back = load(tmp_path / "b.npz", check=False)
    assert (len(back), back.units.energy) == (3, "kcal/mol")
    assert back.to_units("eV")[2].energy == pytest.approx(springs(5)[2].energy, rel=1e-7)


REAL = [
    ("md17/md17_ethanol_first2000.npz", 0.9995),
    ("rmd17/rmd17_benzene_train_01.npz", 0.99),
    ("rmd17/rmd17_ethanol_train_01.npz", 0.98),
    ("rmd17/rmd17_aspirin_test_01.npz", 0.96),
    ("oxides/oc20_relaxation.traj", 0.99),
    ("molecules/3bpa_300K.xyz", 0.95),
]


@pytest.mark.parametrize(("name", "correlation"), REAL)
def test_real_energies_and_forces_agree_and_their_negatives_are_refused(name, correlation):
    if not (SHARED / name).exists():
        pytest.skip(f"needs {SHARED / name}")
    agreement = check_labels(load(SHARED / name, check=False))
    assert agreement.verdict == "agree"
    assert agreement.correlation > correlation
    with pytest.raises(InputError, match="wrong sign"):
        load(SHARED / name, force_sign=-1)


def test_the_demo_frames():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = inspect(demo_dataset())
    assert (summary.frames, summary.elements) == (2000, {"H": 12000, "C": 4000, "O": 2000})
    assert summary.warnings == []
    assert summary.agreement.verdict == "agree"
    path = Path(demo_dataset().source)
    assert path.stat().st_size < 1_000_000
    assert 480 < float(np.load(path)["temperature_K"]) < 520
