"""What was trained on is known, and what is not like it is told."""

import sys
from dataclasses import replace

import ase.io
import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk

from dcnn import cli
from dcnn.atoms import Calculator, Dataset, Potential, build, demo_dataset, write
from dcnn.atoms.dynamics import simulate
from dcnn.atoms.trained_range import OutsideRangeError, TrainedRange
from dcnn.results import TrainedRun


@pytest.fixture(scope="module")
def frames():
    return demo_dataset().to_units("eV", "Ang")


def range_of(frames):
    return TrainedRange.of(frames, lambda z: 0.0, 1.0)


def test_bounds_are_those_of_the_frames(frames):
    found = range_of(frames[:50])
    distances = [frame.to_ase().get_all_distances()[np.triu_indices(9, 1)].min() for frame in frames[:50]]
    assert min(found.shortest_A.values()) == pytest.approx(min(distances))
    assert found.force_eV_A == pytest.approx(max(np.linalg.norm(f.forces, axis=1).max() for f in frames[:50]))
    assert found.energy_eV == (min(f.energy for f in frames[:50]) / 9, max(f.energy for f in frames[:50]) / 9)
    again = TrainedRange.from_dict(found.to_dict())
    assert again.to_dict() == found.to_dict()


def test_frames_of_the_same_dynamics_are_inside(frames):
    found = range_of(frames[:500])
    assert [n for n in range(500, 2000, 5) if found.outside(frames[n], frames[n].energy, frames[n].forces)] == []


def test_what_is_broken_is_outside_and_said(frames):
    found, frame = range_of(frames[:200]), frames[0]
    hydrogen = int(np.argwhere(frame.z == 1)[0, 0])
    away, near = frame.positions.copy(), frame.positions.copy()
    away[hydrogen] += [0, 0, 9.0]
    near[hydrogen] = near[0] + [0, 0, 0.6]
    assert "H with its nearest neighbour at" in found.outside(replace(frame, positions=away))[0]
    assert "Å apart, trained from" in found.outside(replace(frame, positions=near))[0]
    assert "an energy of" in found.outside(frame, frame.energy - 14.0)[0]
    assert "a force of" in found.outside(frame, frame.energy, 10 * frame.forces)[0]
    lattice = replace(frame, cell=8.0 * np.eye(3), pbc=True)
    assert found.outside(lattice)[0] == "periodic in 3 directions, trained on 0"


def test_the_run_keeps_its_range_and_the_calculator_stops(ethanol_run, tmp_path):
    potential = Potential.load(ethanol_run)
    assert potential.range.to_dict() == TrainedRun.open(ethanol_run).task.range.to_dict()
    atoms = demo_dataset()[0].to_ase()
    atoms.calc = Calculator(ethanol_run)
    atoms.get_forces()
    hydrogen = int(np.argwhere(atoms.numbers == 1)[0, 0])
    atoms.positions[hydrogen] += [0, 0, 5.0]
    with pytest.raises(OutsideRangeError, match="outside of what the potential was trained on") as stop:
        atoms.get_forces()
    assert stop.value.atoms.positions[hydrogen, 2] == atoms.positions[hydrogen, 2]
    atoms.calc = Calculator(ethanol_run, outside="warn")
    with pytest.warns(UserWarning, match="outside of what"):
        atoms.get_forces()
    atoms.positions += 0.01
    atoms.get_forces()  # said once
    atoms.calc = Calculator(ethanol_run, outside="ignore")
    atoms.get_forces()


def test_hot_dynamics_ends_with_its_frame_and_exit_code_1(ethanol_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["dcnn", "md", str(ethanol_run), "--steps", "3000", "--temperature", "6000", "--timestep", "1"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    assert "outside of what the potential was trained on" in capsys.readouterr().err
    assert len(ase.io.read(tmp_path / "md-outside.xyz")) == 9


def test_predict_and_evaluate_report_what_is_strange(ethanol_run, tmp_path, monkeypatch, capsys):
    ethane = Atoms("C2H6", np.random.default_rng(0).random((8, 3)) * 6)
    ase.io.write(tmp_path / "mixed.xyz", [demo_dataset()[3].to_ase(), ethane])
    monkeypatch.setattr(
        sys, "argv", ["dcnn", "predict", str(ethanol_run), str(tmp_path / "mixed.xyz"), "-o", str(tmp_path / "o.xyz")]
    )
    with pytest.raises(SystemExit):
        cli.main()
    assert "1 of 2 structures are outside of what the potential was trained on, for example number 1" in (
        capsys.readouterr().err
    )
    good = demo_dataset()[:5].to_units("eV", "Ang")
    strange = Dataset([*good, replace(good[0], positions=good[0].positions * 1.3)], "eV")
    write(strange, tmp_path / "labelled.xyz")
    assert TrainedRun.open(ethanol_run).evaluate(tmp_path / "labelled.xyz")["outside"] == 1


def test_a_free_molecule_whose_energy_depends_on_its_orientation_is_warned_of():
    atoms = demo_dataset()[0].to_ase()
    torch.manual_seed(0)
    network = build("forcenet", features=8, blocks=1, gaussians=6, head_features=8)
    atoms.calc = Calculator(Potential(network))
    with pytest.warns(UserWarning, match="when the molecule is turned"):
        simulate(atoms, 1, timestep=0.01)


def test_constant_pressure_lets_the_volume_change(argon):
    atoms = bulk("Ar", "fcc", a=5.0, cubic=True) * 2
    atoms.calc = Calculator(argon.potential())
    before = atoms.get_volume()
    found = simulate(atoms, 60, ensemble="npt", temperature=20.0, timestep=4.0, pressure=0.0)
    assert found.drift_meV_atom_ps is None
    assert atoms.get_volume() > 1.001 * before, "it was compressed"
