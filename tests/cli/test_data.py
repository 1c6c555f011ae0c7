"""`dcnn data`: labels under other names, splitting, converting."""

import numpy as np
import pytest
from ase import Atoms
from ase.io import write as ase_write
from typer.testing import CliRunner

from dcnn.atoms import demo_dataset, load
from dcnn.atoms.data import write
from dcnn.cli.data import app
from dcnn.errors import InputError


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def named(tmp_path):
    atoms = Atoms("Ar2", [[0, 0, 0], [0, 0, 3.0]], info={"REF_energy": -3.0})
    atoms.arrays["REF_forces"] = np.ones((2, 3))
    ase_write(tmp_path / "a.xyz", [atoms] * 3, format="extxyz")
    return tmp_path / "a.xyz"


def test_converting_never_loses_labels_without_a_word(named, tmp_path):
    with pytest.raises(InputError, match="--energy-key REF_energy --forces-key REF_forces, or say --drop-labels"):
        run("convert", named, tmp_path / "b.xyz")
    assert not (tmp_path / "b.xyz").exists()
    run("convert", named, tmp_path / "b.xyz", "--energy-key", "REF_energy", "--forces-key", "REF_forces")
    assert load(tmp_path / "b.xyz", check=False)[2].energy == -3.0
    run("convert", named, tmp_path / "c.xyz", "--drop-labels")
    assert load(tmp_path / "c.xyz", require=())[0].energy is None


def test_info_lists_what_looks_like_labels(named):
    text = run("info", named)
    assert "energy_key=REF_energy, forces_key=REF_forces" in " ".join(text.split())
    assert "-3 to -3" in run("info", named, "--energy-key", "REF_energy")


@pytest.mark.parametrize("blocks", [True, False])
def test_split_writes_files_that_share_no_frame(blocks, tmp_path):
    write(demo_dataset()[:60], tmp_path / "a.npz")
    out, more = tmp_path / "out", (("--blocks",) if blocks else ())
    run("split", tmp_path / "a.npz", "--train", 40, "--validation", 0.1, "-o", out, "--format", "npz", *more)
    parts = [load(out / f"{part}.npz", check=False).energies() for part in ("train", "validation", "test")]
    sizes = [len(part) for part in parts]
    assert sizes == [40, 6, 14] or (
        blocks and np.abs(np.subtract(sizes, [40, 6, 14])).max() <= 3
    )  # a block is 3 frames
    assert len(np.unique(np.concatenate(parts))) == sum(sizes)
    with pytest.raises(InputError, match="exists already"):
        run("split", tmp_path / "a.npz", "-o", out, "--format", "npz")


def test_labels_that_only_later_frames_hide_stop_a_conversion(named, tmp_path):
    text = named.read_text()
    plain = Atoms("Ar2", [[0, 0, 0], [0, 0, 3.0]])
    ase_write(tmp_path / "b.xyz", plain, format="extxyz")
    (tmp_path / "c.xyz").write_text((tmp_path / "b.xyz").read_text() + text)
    with pytest.raises(InputError, match="REF_energy, REF_forces would be lost"):
        run("convert", tmp_path / "c.xyz", tmp_path / "d.xyz")


def test_free_atoms_stay_in_what_is_converted_and_go_to_the_training_part(tmp_path):
    free = Atoms("Ar", [[0, 0, 0]], info={"energy": -20.0, "config_type": "IsolatedAtom"})
    pair = Atoms("Ar2", [[0, 0, 0], [0, 0, 3.0]], info={"energy": -41.0})
    pair.arrays["forces"] = np.zeros((2, 3))
    ase_write(tmp_path / "a.xyz", [pair] * 4 + [free] + [pair] * 4, format="extxyz")
    for ending in ("xyz", "db", "dcnn"):
        run("convert", tmp_path / "a.xyz", tmp_path / f"b.{ending}")
        back = load(tmp_path / f"b.{ending}", check=False)
        assert (len(back), back.isolated) == (8, {18: -20.0})
    run("split", tmp_path / "a.xyz", "-o", tmp_path / "parts", "--train", 4, "--validation", 2)
    found = {name: load(tmp_path / "parts" / f"{name}.xyz", check=False) for name in ("train", "validation", "test")}
    assert {name: len(part) for name, part in found.items()} == {"train": 4, "validation": 2, "test": 2}
    assert (found["train"].isolated, found["test"].isolated) == ({18: -20.0}, {})


def test_one_composition_and_partial_labels_are_reported(tmp_path):
    text = run("info", demo_dataset().source)
    assert "only the sum over a frame means something" in " ".join(text.split())
    frames = [Atoms("Ar2", [[0, 0, 0], [0, 0, 3.0]], info={"energy": -3.0, "config_type": "far"}) for _ in range(3)]
    frames[0].arrays["forces"] = np.zeros((2, 3))
    ase_write(tmp_path / "a.xyz", frames, format="extxyz")
    text = run("info", tmp_path / "a.xyz")
    assert "energy 3, forces 1, stress 0" in text
    assert "far 3" in text
