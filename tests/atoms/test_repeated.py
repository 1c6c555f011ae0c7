"""Molecules evaluated again and again: compiled once that pays, with the same energies and forces."""

import logging

import numpy as np
import pytest
import torch
from ase import Atoms

from dcnn import atoms
from dcnn.atoms import Calculator, Potential, demo_dataset
from dcnn.atoms.forces import energy_and_forces
from dcnn.atoms.repeated import Repeated


def potential(name="schnet", **options):
    torch.manual_seed(0)
    sizes = {"schnet": {"features": 8, "filters": 8, "blocks": 1}, "tensornet": {"features": 4, "layers": 1}}[name]
    return Potential(atoms.build(name, **sizes, **options))


@pytest.mark.parametrize("name", ["schnet", "tensornet"])
def test_a_moving_molecule_has_one_graph_with_the_usual_forces(name, traced_only):
    frames = [frame.to_ase() for frame in demo_dataset()[:6]]
    usual, fast = Calculator(potential(name, cutoff=2.5), compiled=False), Calculator(potential(name, cutoff=2.5))
    assert usual.potential.repeated is None
    fast.potential.repeated.scale = 0.0
    for frame in frames:
        for calculator in (usual, fast):
            calculator.calculate(frame.copy())
        np.testing.assert_allclose(fast.results["energy"], usual.results["energy"], rtol=1e-10)
        np.testing.assert_allclose(fast.results["forces"], usual.results["forces"], atol=1e-9)
    assert len(traced_only) == len(fast.potential.repeated.ready) == 1


def test_other_weights_are_taken_by_the_graph(traced_only):
    found = potential()
    batch = atoms.batch(z=[8, 1, 1], positions=[[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]]).to(dtype=torch.float64)
    repeated = Repeated(found.network, scale=0.0)
    for _ in range(3):
        with torch.no_grad():
            repeated(energy_and_forces, batch)
            for weight in found.network.parameters():
                weight.mul_(1.1)
    with torch.no_grad():
        energy, _ = repeated(energy_and_forces, batch)
    assert len(traced_only) == 1
    torch.testing.assert_close(energy, found.network(batch).detach())


def test_wrong_numbers_are_not_used(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        "dcnn.train.compiling.machine_code", lambda graph, *_: lambda *inputs: [2 * t for t in graph(*inputs)]
    )
    calculator = Calculator(potential())
    calculator.potential.repeated.scale = 0.0
    water = Atoms("OH2", [[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    with caplog.at_level(logging.WARNING):
        energies = []
        for _ in range(4):
            calculator.calculate(water)
            energies.append(calculator.results["energy"])
    assert len(set(energies)) == 1
    assert "its numbers differ" in caplog.text
    assert not calculator.potential.repeated.ready


def test_nothing_is_compiled_before_it_pays(traced_only):
    calculator = Calculator(potential())
    calculator.potential.repeated.scale = 1e9
    for frame in demo_dataset()[:4]:
        calculator.calculate(frame.to_ase())
    assert traced_only == []


def test_a_molecule_that_comes_apart_is_one_shape_still(traced_only):
    found = potential(cutoff=3.0)
    fast, usual = Calculator(found), Calculator(potential(cutoff=3.0), compiled=False)
    fast.potential.repeated.scale = 0.0
    molecule = demo_dataset()[0].to_ase()
    for shift in (0.0, 0.5, 5.0, 50.0):
        moved = molecule.copy()
        moved.positions[0, 0] += shift
        for calculator in (fast, usual):
            calculator.calculate(moved)
        np.testing.assert_allclose(fast.results["forces"], usual.results["forces"], atol=1e-9)
    assert len(traced_only) == 1


def test_one_atom_alone_has_an_energy():
    for compiled in (True, False):
        atom = Atoms("O", calculator=Calculator(potential(), compiled=compiled))
        assert np.isfinite(atom.get_potential_energy())


def test_only_what_a_network_depends_on_is_a_change():
    molecule = demo_dataset()[0].to_ase()
    calculator = Calculator(potential())
    assert set(calculator.check_state(molecule)) >= {"positions", "numbers", "cell", "pbc"}
    calculator.calculate(molecule)
    molecule.set_initial_charges([0.1] * len(molecule))
    assert calculator.check_state(molecule) == []
    molecule.positions[0, 0] += 1e-12
    assert calculator.check_state(molecule) == ["positions"]
    molecule.set_cell([9.0, 9.0, 9.0])
    molecule.pbc = True
    assert set(calculator.check_state(molecule)) == {"positions", "cell", "pbc"}
    assert set(calculator.check_state(molecule[:3])) == {"positions", "numbers", "cell", "pbc"}
