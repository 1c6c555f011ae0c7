"""Molecular dynamics: conservation, the order of the integrator, temperatures, and the drift that is reported."""

import ase.io
import numpy as np
import pytest
from ase import Atoms, units
from ase.build import molecule
from ase.calculators.calculator import Calculator as AseCalculator
from ase.constraints import FixAtoms, FixBondLengths

from dcnn.atoms import Calculator, demo_dataset
from dcnn.atoms.dynamics import draw_velocities, simulate
from dcnn.errors import DcnnError, InputError


class Leaking(AseCalculator):
    """No forces, and an energy that rises by `leak` eV a call."""

    implemented_properties = ["energy", "forces"]
    leak, calls = 0.0, 0

    def calculate(self, atoms, properties, system_changes):
        super().calculate(atoms, properties, system_changes)
        self.results = {"energy": self.leak * self.calls, "forces": np.zeros((len(atoms), 3))}
        self.calls += 1


def with_argon(argon, atoms=None):
    atoms = argon.crystal() if atoms is None else atoms
    atoms.calc = Calculator(argon.potential())
    return atoms


def test_the_drift_is_the_slope_of_the_total_energy():
    atoms = Atoms("Ar4", 5 * np.arange(12).reshape(4, 3))
    atoms.calc = Leaking()
    atoms.calc.leak = 2e-6
    found = simulate(atoms, 50, temperature=100, timestep=2.0)
    assert found.drift_meV_atom_ps == pytest.approx(2e-6 / 2e-3 * 1e3 / 4, rel=1e-6)  # a call a step of 2 fs
    assert found.fluctuation_meV_atom == pytest.approx(0, abs=1e-6)
    assert found.time_ps[-1] == pytest.approx(0.1)


def test_energy_is_conserved_to_second_order_in_the_timestep(argon):
    spread = []
    for timestep, steps in ((8.0, 100), (4.0, 200)):
        found = simulate(with_argon(argon), steps, temperature=60, timestep=timestep, seed=3)
        assert abs(found.drift_meV_atom_ps) < 0.05
        spread.append(found.fluctuation_meV_atom)
    assert spread[0] / spread[1] == pytest.approx(4, rel=0.25)


def test_a_trained_molecule_conserves_its_energy(ethanol_run):
    atoms = demo_dataset()[0].to_ase()
    atoms.calc = Calculator(ethanol_run, outside="ignore")  # of a toy
    found = simulate(atoms, 400, temperature=300, timestep=0.25)
    assert abs(found.drift_meV_atom_ps) < 1
    assert found.fluctuation_meV_atom < 0.5
    assert found.to_dict().keys() >= {"drift_meV_atom_ps", "temperature_K", "steps", "ms_per_step"}


def test_a_path_is_that_of_ase(argon):
    ours, theirs = with_argon(argon), argon.crystal()
    theirs.calc = argon.reference()
    found = [simulate(atoms, 50, temperature=60, timestep=5.0, seed=1) for atoms in (ours, theirs)]
    np.testing.assert_allclose(ours.positions, theirs.positions, atol=1e-9)
    np.testing.assert_allclose(found[0].total_eV, found[1].total_eV, atol=1e-10)


@pytest.mark.parametrize(
    ("atoms", "freedoms"),
    [(molecule("CH3CH2OH"), 21), (molecule("CO2"), 4), (Atoms("Ar8", np.eye(8, 3), cell=[9, 9, 9], pbc=True), 21)],
)
def test_velocities_hold_the_temperature_in_the_freedoms_that_are_left(atoms, freedoms):
    draw_velocities(atoms, 300, np.random.default_rng(0))
    assert atoms.get_kinetic_energy() == pytest.approx(0.5 * freedoms * units.kB * 300, rel=1e-10)
    assert np.abs(atoms.get_momenta().sum(0)).max() < 1e-10
    if not atoms.pbc.any():
        assert np.abs(atoms.get_angular_momentum()).max() < 1e-8
    atoms.calc = Leaking()
    assert simulate(atoms, 1).temperatures_K[0] == pytest.approx(300, rel=1e-8)


def test_atoms_that_move_keep_their_velocities(argon):
    atoms = with_argon(argon)
    momenta = np.random.default_rng(0).standard_normal(atoms.positions.shape)
    atoms.set_momenta(momenta)
    first = simulate(atoms, 1, temperature=1e-3, timestep=1e-6).temperatures_K[0]
    assert first == pytest.approx(2 * 0.5 * np.sum(momenta**2 / atoms.get_masses()[:, None]) / (24 * units.kB))


@pytest.mark.parametrize("equilibrate", [0, 20])
def test_the_thermostat_reaches_its_temperature(equilibrate):
    """Free atoms under Langevin dynamics: 3N freedoms hold ½kT each."""
    atoms = Atoms("Ar100", 20 * np.random.default_rng(0).random((100, 3)))
    atoms.calc = Leaking()
    options = {"ensemble": "nvt", "timestep": 5.0, "friction": 0.05, "equilibrate": equilibrate}
    found = simulate(atoms, 300, temperature=200, **options)
    assert found.temperature_K == pytest.approx(200, rel=0.03)
    assert found.drift_meV_atom_ps is None
    assert len(found.total_eV) == 301


def test_the_seed_decides(argon):
    runs = [simulate(with_argon(argon), 5, ensemble="nvt", seed=seed).total_eV for seed in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize("name", ["out/path.traj", "path.xyz", "path.extxyz"])
def test_the_trajectory_holds_energies_and_forces(argon, tmp_path, name):
    atoms, told = with_argon(argon), []
    simulate(atoms, 20, timestep=2.0, trajectory=tmp_path / name, every=5, progress=lambda *at: told.append(at))
    frames = ase.io.read(tmp_path / name, index=":")
    assert len(frames) == 5
    assert frames[-1].get_potential_energy() == pytest.approx(atoms.get_potential_energy())
    np.testing.assert_allclose(frames[-1].get_forces(), atoms.get_forces(), atol=1e-7)
    assert told[0] == (0, 20)
    assert told[-1] == (20, 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ensemble": "nph"}, "unknown ensemble 'nph'"),
        ({"timestep": 0.0}, "timestep is 0.0; it must be positive"),
        ({"trajectory": "path.pdb"}, r"path.pdb: a trajectory is written as .traj, .xyz, .extxyz"),
    ],
)
def test_wrong_settings_are_explained(argon, options, message):
    with pytest.raises(InputError, match=message):
        simulate(with_argon(argon), 5, **options)


def test_a_trajectory_is_not_overwritten(argon, tmp_path):
    (tmp_path / "path.traj").write_text("hours of work")
    with pytest.raises(InputError, match="exists already"):
        simulate(with_argon(argon), 5, trajectory=tmp_path / "path.traj")
    assert (tmp_path / "path.traj").read_text() == "hours of work"


def test_an_explosion_is_reported_with_its_step(argon):
    pair = with_argon(argon, Atoms("Ar2", [[0, 0, 0], [0, 0, 1.2]]))
    with pytest.raises(DcnnError, match=r"step \d+ of 50: the temperature is .* K. The potential does not hold here"):
        simulate(pair, 50, timestep=20.0)


def test_constraints_count_neither_in_the_velocities_nor_in_the_temperature():
    atoms = Atoms("Ar20", 5.0 * np.stack(np.unravel_index(range(20), (3, 3, 3)), 1), cell=[15, 15, 15], pbc=True)
    atoms.set_constraint(FixAtoms(range(10)))
    draw_velocities(atoms, 300, np.random.default_rng(0))
    assert not atoms.get_momenta()[:10].any()
    assert atoms.get_temperature() == pytest.approx(300, rel=1e-10)
    atoms.calc = Leaking()
    for ensemble in ("nve", "nvt"):
        found = simulate(atoms, 1, ensemble=ensemble)
        assert found.temperatures_K[0] == pytest.approx(300, rel=1e-8)


def test_held_bonds_leave_the_total_momentum_conserved():
    atoms = molecule("H2O") + molecule("H2O")
    atoms.positions[3:] += 5.0
    atoms.set_cell([10, 10, 10])
    atoms.pbc = True
    atoms.set_constraint(FixBondLengths([(a, b) for k in (0, 3) for a, b in ((k, k + 1), (k, k + 2), (k + 1, k + 2))]))
    draw_velocities(atoms, 300, np.random.default_rng(0))
    assert np.abs(atoms.get_momenta().sum(0)).max() < 1e-8
    assert atoms.get_kinetic_energy() == pytest.approx(0.5 * (18 - 6 - 3) * units.kB * 300, rel=1e-6)
