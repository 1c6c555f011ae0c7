"""Making labels: the physics of the ensemble, exact continuation, files that are whole or absent."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms, units
from ase.calculators.calculator import Calculator, all_changes
from typer.testing import CliRunner

from dcnn.atoms import load
from dcnn.atoms.data import Recipe, make
from dcnn.cli.data import app
from dcnn.errors import InputError

module = importlib.import_module("dcnn.atoms.data.make")  # the package gives its name to the function
KCAL = units.kcal / units.mol


class Spring(Calculator):
    """E = ½ k Σ (r − r₀)² over all pairs, k = 5 eV/Å²; with a stress, so that it serves crystals too."""

    implemented_properties = ("energy", "forces", "stress")
    calls = 0
    stop_after = 10**9

    def calculate(self, atoms=None, properties=("energy",), system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        Spring.calls += 1
        if Spring.calls > Spring.stop_after:
            raise KeyboardInterrupt
        apart = self.atoms.positions[:, None] - self.atoms.positions[None]
        n = len(self.atoms)
        length = np.linalg.norm(apart, axis=-1) + np.eye(n)
        stretch = (length - 1.2) * (1 - np.eye(n))
        self.results = {
            "energy": 1.25 * (stretch**2).sum(),
            "forces": -5.0 * ((stretch / length)[..., None] * apart).sum(1),
            "stress": np.arange(6.0),
        }


@pytest.fixture
def spring(monkeypatch):
    monkeypatch.setattr(module, "calculator", lambda engine: Spring())
    monkeypatch.setattr(module, "_SAVE_EVERY", 5)
    monkeypatch.setattr(Spring, "calls", 0)
    monkeypatch.setattr(Spring, "stop_after", 10**9)


RECIPE = Recipe(temperature=300.0, every=3, equilibrate=20, seed=4)


def test_layout_units_and_progress(spring, tmp_path):
    steps = []
    path = make("water", 12, tmp_path / "w.npz", RECIPE, lambda done, total: steps.append((done, total)))
    data = load(path, check=False)
    assert (len(data), data.units.energy, data[0].z.tolist()) == (12, "kcal/mol", [8, 1, 1])
    assert steps == [(k, 12) for k in range(1, 13)]
    assert os.listdir(tmp_path) == ["w.npz"]
    frame = data[7]
    again = Atoms(frame.z, frame.positions, calculator=Spring())
    assert frame.energy == pytest.approx(again.get_potential_energy() / KCAL, abs=1e-4)
    np.testing.assert_allclose(frame.forces, again.get_forces() / KCAL, atol=1e-3)
    np.testing.assert_allclose(again.get_center_of_mass(), 0, atol=1e-6)
    stored = np.load(path)
    assert (stored["R"].dtype, stored["F"].dtype, stored["E"].dtype) == (np.float32, np.float32, np.float64)
    assert json.loads(str(stored["recipe"]))["seed"] == 4


@pytest.mark.parametrize("calls", [30, 70, 95, 120])
def test_a_stopped_run_goes_on_to_the_same_frames(spring, tmp_path, calls):
    whole = np.load(make("water", 40, tmp_path / "whole.npz", RECIPE))
    Spring.calls, Spring.stop_after = 0, calls
    with pytest.raises(KeyboardInterrupt):
        make("water", 40, tmp_path / "parts.npz", RECIPE)
    assert not (tmp_path / "parts.npz").exists()
    Spring.stop_after = 10**9
    parts = np.load(make("water", 40, tmp_path / "parts.npz", RECIPE))
    for key in ("R", "E", "F", "z"):
        np.testing.assert_array_equal(parts[key], whole[key])
    assert sorted(os.listdir(tmp_path)) == ["parts.npz", "whole.npz"]


def test_a_stopped_run_does_not_go_on_with_other_settings(spring, tmp_path):
    Spring.stop_after = 100
    with pytest.raises(KeyboardInterrupt):
        make("water", 90, tmp_path / "a.npz", RECIPE)
    Spring.stop_after = 10**9
    with pytest.raises(InputError, match=r"a.npz.part: was begun with other settings"):
        make("water", 90, tmp_path / "a.npz", Recipe(temperature=400.0, every=3, equilibrate=20, seed=4))
    with pytest.raises(InputError, match="or another molecule"):
        make("methane", 90, tmp_path / "a.npz", RECIPE)


def test_the_temperature_is_the_one_asked_for(spring, tmp_path, monkeypatch):
    """Equipartition; holding the centre of mass would make it 30 % too hot. 10 % is about 4 σ."""
    monkeypatch.setattr(module, "_SAVE_EVERY", 1000)
    recipe = Recipe(temperature=400.0, every=6, equilibrate=100, friction_per_fs=0.2, seed=1)
    stored = np.load(make("water", 600, tmp_path / "w.npz", recipe))
    assert float(stored["temperature_K"]) == pytest.approx(400, rel=0.1)


def test_crystals_get_cell_and_stress(spring, tmp_path):
    Atoms("TiO", [[0, 0, 0], [0, 0, 1.3]], cell=[5, 6, 7], pbc=True).write(tmp_path / "c.xyz")
    frame = load(make(str(tmp_path / "c.xyz"), 2, tmp_path / "c.npz", RECIPE), check=False)[1]
    np.testing.assert_allclose(frame.cell, np.diag([5, 6, 7]))
    np.testing.assert_allclose(frame.stress[0] * KCAL, [0, 5, 4], rtol=1e-6)
    with pytest.raises(InputError, match="PBE offset is for molecules"):
        make(str(tmp_path / "c.xyz"), 2, tmp_path / "d.npz", Recipe(offset="pbe"))


def test_a_pbe_offset_shifts_every_energy(spring, tmp_path, monkeypatch):
    plain = np.load(make("water", 3, tmp_path / "a.npz", RECIPE))
    monkeypatch.setattr(module, "pbe_energy", lambda atoms: -2000.0)
    shifted = np.load(make("water", 3, tmp_path / "b.npz", Recipe(**{**vars(RECIPE), "offset": "pbe"})))
    # the relaxed springs have no energy to speak of
    np.testing.assert_allclose(shifted["E"] - plain["E"], -2000.0 / KCAL, atol=0.1)
    np.testing.assert_array_equal(shifted["F"], plain["F"])


BAD = {
    "writes .npz files": {"output": "a.xyz"},
    r"frames \(0\)": {"frames": 0},
    "did you mean 'ethanol'": {"molecule": "etanol"},
    "missing.xyz: no such file": {"molecule": "missing.xyz"},
    "bad.xyz: ASE cannot read it": {"molecule": "bad.xyz"},
    "unknown engine 'dft'": {"recipe": Recipe(engine="dft")},
    "unknown offset 'pbe0'": {"recipe": Recipe(offset="pbe0")},
    "temperature .-1 K. must be positive": {"recipe": Recipe(temperature=-1)},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_requests(message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.xyz").write_text("none")
    with pytest.raises(InputError, match=message):
        make(**{"molecule": "water", "frames": 2, "output": "a.npz", "recipe": RECIPE, **BAD[message]})
    assert os.listdir() == ["bad.xyz"]


def test_an_engine_that_fails_is_not_written(spring, tmp_path, monkeypatch):
    monkeypatch.setattr(module._Work, "start", lambda self: setattr(self.atoms.calc, "calculate", None))
    monkeypatch.setattr(Atoms, "get_potential_energy", lambda self: np.nan)
    monkeypatch.setattr(Atoms, "get_forces", lambda self, **_: np.zeros((3, 3)))
    with pytest.raises(InputError, match="frame 0: the engine returned NaN"):
        make("water", 2, tmp_path / "a.npz", RECIPE)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("engine", "package"), [("xtb", "tblite"), ("chgnet", "chgnet")])
def test_missing_engines_are_named(engine, package, monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *rest):
        if name.startswith(package):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=rf"needs {package}: pip install 'dcnn\[{engine}\]'"):
        module.calculator(engine)


def test_missing_pyscf_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyscf", None)
    with pytest.raises(InputError, match=r"needs pyscf: pip install 'dcnn\[dft\]'"):
        module.pbe_energy(Atoms("H"))


def test_command(spring, tmp_path):
    output = tmp_path / "w.npz"
    arguments = ["make", "water", "--frames", "4", "--equilibrate", "10", "-o", str(output)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "4 of 4 frames" in result.output
    assert len(load(output, check=False)) == 4
    assert "exists already" in str(CliRunner().invoke(app, arguments).exception)


def test_real_xtb_frames_are_consistent(tmp_path):
    pytest.importorskip("tblite", reason="tblite (dcnn[xtb]) is not installed")
    recipe = Recipe(temperature=300.0, every=2, equilibrate=20)
    data = load(make("water", 20, tmp_path / "w.npz", recipe))  # load compares energies with forces
    assert data[0].energy * KCAL / units.Hartree == pytest.approx(-5.07, abs=0.02)


@pytest.mark.filterwarnings("ignore")  # CHGNet's own
def test_real_chgnet(tmp_path):
    pytest.importorskip("chgnet", reason="chgnet (dcnn[chgnet]) is not installed")
    from ase.build import bulk

    bulk("MgO", "rocksalt", a=4.2).write(tmp_path / "mgo.xyz")
    data = load(make(str(tmp_path / "mgo.xyz"), 3, tmp_path / "m.npz", Recipe(300.0, "chgnet", 2, 4)), check=False)
    assert data[2].stress.shape == (3, 3)
    assert -7 < data[0].energy * KCAL / 2 < -5


@pytest.mark.filterwarnings("ignore")  # pyscf's own
def test_real_pbe():
    pytest.importorskip("pyscf", reason="pyscf (dcnn[dft]) is not installed")
    hydrogen = Atoms("H2", [[0, 0, 0], [0, 0, 0.74]])
    assert module.pbe_energy(hydrogen) / units.Hartree == pytest.approx(-1.166, abs=0.003)
