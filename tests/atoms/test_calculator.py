"""The ASE calculator: against ASE's own Lennard-Jones, its pair list, optimisers, and what it refuses."""

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.calculator import PropertyNotImplementedError
from ase.filters import FrechetCellFilter
from ase.optimize import BFGS

from dcnn.atoms import Calculator, Potential, Structure, demo_dataset
from dcnn.errors import InputError


@pytest.mark.parametrize("pbc", [True, False, (True, True, False)])
@pytest.mark.parametrize("seed", [0, 1])
def test_energy_forces_and_stress_are_those_of_ase(argon, pbc, seed):
    ours, theirs = argon.crystal(seed), argon.crystal(seed)
    ours.pbc = theirs.pbc = pbc
    ours.calc, theirs.calc = Calculator(argon.potential()), argon.reference()
    assert ours.get_potential_energy() == pytest.approx(theirs.get_potential_energy(), rel=1e-10)
    assert ours.get_potential_energy(force_consistent=True) == ours.get_potential_energy()
    np.testing.assert_allclose(ours.get_forces(), theirs.get_forces(), atol=1e-10)
    if pbc is True:
        np.testing.assert_allclose(ours.get_stress(), theirs.get_stress(), atol=1e-10)
    else:
        with pytest.raises(PropertyNotImplementedError):
            ours.get_stress()


def test_a_trained_run_gives_what_the_potential_predicts(ethanol_run):
    frame = demo_dataset()[7]
    atoms = frame.to_ase()
    atoms.calc = Calculator(ethanol_run)
    expected = Potential.load(ethanol_run, dtype="float64").predict([frame])[0]
    assert atoms.get_potential_energy() == pytest.approx(expected.energy, rel=1e-12)
    np.testing.assert_allclose(atoms.get_forces(), expected.forces, atol=1e-10)
    rough = Calculator(ethanol_run, dtype="float32")
    assert rough.get_potential_energy(atoms) == pytest.approx(expected.energy, abs=1e-4)


def test_pairs_are_searched_for_only_when_an_atom_has_used_half_the_skin(argon):
    atoms = argon.crystal()
    atoms.calc = Calculator(argon.potential(), skin=0.5)
    pairs = atoms.calc.pairs
    for step, searches in ((0.0, 1), (0.24, 1), (0.02, 2), (0.24, 2), (-0.24, 2)):
        atoms.positions[3, 0] += step
        atoms.get_forces()
        assert pairs.searches == searches
    atoms.set_cell(1.001 * atoms.cell.array)
    atoms.get_forces()
    assert pairs.searches == 3, "another cell"
    atoms.pbc = (True, True, False)
    atoms.get_forces()
    assert pairs.searches == 4, "other boundary conditions"
    atoms.pbc = False
    atoms.get_forces()
    assert pairs.searches == 5
    del atoms[0]
    atoms.get_forces()
    assert pairs.searches == 6, "other atoms"


@pytest.mark.parametrize("skin", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("pbc", [True, False])
def test_along_a_walk_nothing_is_missed(argon, skin, pbc):
    atoms, rng = argon.crystal(), np.random.default_rng(1)
    atoms.pbc = pbc
    atoms.calc = Calculator(argon.potential(), skin=skin)
    for _ in range(25):
        atoms.positions += 0.05 * rng.standard_normal(atoms.positions.shape)
        fresh = atoms.copy()
        fresh.calc = argon.reference()
        assert atoms.get_potential_energy() == pytest.approx(fresh.get_potential_energy(), rel=1e-9)
        np.testing.assert_allclose(atoms.get_forces(), fresh.get_forces(), atol=1e-10)
    assert atoms.calc.pairs.searches == 25 if skin == 0 else atoms.calc.pairs.searches < 25


def test_a_molecule_inside_the_cutoff_keeps_its_indices(ethanol_run):
    atoms = demo_dataset()[0].to_ase()
    atoms.calc = Calculator(ethanol_run, skin=4.0)
    for _ in range(5):
        atoms.positions += 0.01
        atoms.get_forces()
    assert (atoms.calc.pairs.searches, atoms.calc.pairs.changes) == (1, 1)


def test_a_pair_relaxes_to_the_minimum(argon):
    pair = Atoms("Ar2", [[0, 0, 0], [0, 0, 4.4]])
    pair.calc = Calculator(argon.potential())
    assert BFGS(pair, logfile=None).run(fmax=1e-7, steps=200)
    assert pair.get_distance(0, 1) == pytest.approx(2 ** (1 / 6) * argon.sigma, abs=1e-4)


def test_a_crystal_relaxes_with_its_cell(argon):
    atoms = argon.crystal()
    atoms.calc = Calculator(argon.potential())
    assert BFGS(FrechetCellFilter(atoms), logfile=None).run(fmax=1e-4, steps=300)
    assert np.abs(atoms.get_stress()).max() < 1e-5
    assert np.abs(atoms.get_forces()).max() < 1e-4


def test_a_trained_molecule_relaxes_downhill(ethanol_run):
    atoms = demo_dataset()[0].to_ase()
    atoms.calc = Calculator(ethanol_run, outside="ignore")  # of a toy
    before = atoms.get_potential_energy()
    assert BFGS(atoms, logfile=None).run(fmax=1e-3, steps=500)
    assert atoms.get_potential_energy() < before


@pytest.mark.parametrize(
    ("numbers", "positions", "message"),
    [
        ([6, 14], [[0, 0, 0], [0, 0, 2]], "the structure holds Si, but the potential was trained on H, C, O only"),
        ([6, 1], [[0, 0, 0], [0, 0, 0]], "atoms 0 and 1 are 0 Å apart"),
        ([6, 1], [[0, 0, 0], [0, np.nan, 0]], "the position of atom 1 is NaN"),
        ([6, 1, 1], [[0, 0, 0], [6e3, 0, 0], [0, 6e3, 1]], "the atoms extend over 6000 × 6000 × 1 Å"),
        ([6, 1, 1], [[0, 0, 0], [1e20, 0, 0], [0, 6e3, 1]], r"the atoms extend over 1e\+20 × 6000 × 1 Å"),
    ],
)
def test_what_cannot_be_computed_is_explained(ethanol_run, numbers, positions, message):
    with pytest.raises(InputError, match=message):
        Calculator(ethanol_run).get_potential_energy(Atoms(numbers, positions))


def test_a_negative_skin_is_refused(argon):
    with pytest.raises(InputError, match="skin is -1"):
        Calculator(argon.potential(), skin=-1)


def test_the_list_itself_returns_the_pairs_within_the_cutoff(argon):
    atoms, calculator = argon.crystal(), Calculator(argon.potential(), skin=1.5)
    structure = Structure(atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)
    batch = calculator.pairs(structure)
    assert float(batch.pair_vectors().norm(dim=1).max()) < batch.cutoff == 8.0
