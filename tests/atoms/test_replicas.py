"""Many replicas at once move as each would alone."""

import json
import sys

import ase.io
import numpy as np
import pytest
from ase import units
from ase.md.verlet import VelocityVerlet

from dcnn import cli
from dcnn.atoms import Calculator, Potential, build, demo_dataset
from dcnn.atoms.dynamics import draw_velocities
from dcnn.atoms.replicas import simulate_replicas
from dcnn.atoms.trained_range import OutsideRangeError
from dcnn.errors import InputError


@pytest.mark.parametrize("kind", ["molecule", "crystal"])
def test_every_replica_takes_the_path_that_ase_gives_it(argon, kind):
    atoms = argon.crystal()
    if kind == "molecule":
        atoms.pbc = False
    found = simulate_replicas(argon.potential(), atoms, 3, 20, temperature=40, timestep=4.0, seed=5)
    random = np.random.default_rng(5)
    for frame in found.frames:
        alone = atoms.copy()
        draw_velocities(alone, 40, random)
        alone.calc = Calculator(argon.potential())
        VelocityVerlet(alone, 4.0 * units.fs).run(20)
        np.testing.assert_allclose(frame.positions, alone.positions, atol=1e-9)
        np.testing.assert_allclose(frame.to_ase().get_momenta(), alone.get_momenta(), atol=1e-9)
        assert frame.energy == pytest.approx(alone.get_potential_energy(), abs=1e-9)
    assert found.drift_meV_atom_ps < 1


def test_the_thermostat_holds_its_temperature(argon):
    atoms = argon.crystal()
    options = {"ensemble": "nvt", "temperature": 60, "timestep": 4.0, "friction": 0.05}
    found = simulate_replicas(argon.potential(), atoms, 40, 60, **options)
    assert found.temperature_K == pytest.approx(60, rel=0.1)
    assert found.drift_meV_atom_ps is None


def test_a_replica_that_leaves_the_range_ends_the_run(ethanol_run):
    potential, atoms = Potential.load(ethanol_run, dtype="float64"), demo_dataset()[0].to_ase()
    with pytest.raises(OutsideRangeError, match=r"step \d+, replica \d: outside") as stop:
        simulate_replicas(potential, atoms, 2, 200, temperature=20000, check_every=1)
    assert len(stop.value.atoms) == 9


def test_wrong_use_is_explained():
    potential = Potential(build("schnet", features=8, filters=8, blocks=1, gaussians=6))
    atoms = demo_dataset()[0].to_ase()
    with pytest.raises(InputError, match="unknown ensemble of replicas 'npt'"):
        simulate_replicas(potential, atoms, 2, 2, ensemble="npt")
    with pytest.raises(InputError, match="must be positive"):
        simulate_replicas(potential, atoms, 0, 2)


def test_the_command(ethanol_run, tmp_path, monkeypatch, capsys):
    words = [
        "md",
        ethanol_run,
        "--replicas",
        3,
        "--steps",
        2,
        "--outside",
        "ignore",
        "-o",
        tmp_path / "end.xyz",
        "--json",
    ]
    monkeypatch.setattr(sys, "argv", ["dcnn", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code in (0, None)
    assert json.loads(capsys.readouterr().out)["replicas"] == 3
    assert len(ase.io.read(tmp_path / "end.xyz", index=":")) == 3
