"""Stress labels are checked by the response of the energy to the cell: sign, unit, virials."""

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.io import write as ase_write

from dcnn.atoms import load
from dcnn.atoms.data.stress_check import check_stress
from dcnn.errors import InputError


def strained(path, change=lambda stress, volume: stress):
    """Copper under small random strains, with EMT's labels; the stress as `change` makes it."""
    random, frames = np.random.default_rng(0), []
    crystal = bulk("Cu", cubic=True)
    crystal.rattle(0.02, seed=1)
    for _ in range(12):
        atoms = crystal.copy()
        strain = random.normal(size=(3, 3)) * 0.01
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + 0.5 * (strain + strain.T)), scale_atoms=True)
        atoms.calc = EMT()
        stress = change(atoms.get_stress(voigt=False), atoms.get_volume())
        atoms.info |= {"my_energy": atoms.get_potential_energy(), "my_stress": stress}
        atoms.arrays["my_forces"] = atoms.get_forces()
        atoms.calc = None
        frames.append(atoms)
    ase_write(path, frames, format="extxyz")
    return path


KEYS = {"energy_key": "my_energy", "forces_key": "my_forces"}


def test_sound_stress_and_virials_pass(tmp_path):
    assert check_stress(load(strained(tmp_path / "a.xyz"), **KEYS, stress_key="my_stress")) == pytest.approx(1, abs=0.1)
    path = strained(tmp_path / "b.xyz", lambda stress, volume: -volume * stress)
    assert check_stress(load(path, **KEYS, virial_key="my_stress")) == pytest.approx(1, abs=0.1)


WRONG = {
    "of the opposite sign": lambda stress, volume: -stress,
    "in GPa": lambda stress, volume: stress * 160.2,
    "in kbar": lambda stress, volume: -stress * 1602,
    "a virial": lambda stress, volume: -stress * volume,
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_stress_is_refused(what, tmp_path):
    path = strained(tmp_path / "a.xyz", WRONG[what])
    with pytest.raises(InputError, match=f"a.xyz: the stress is {what}"):
        load(path, **KEYS, stress_key="my_stress")


def test_frames_of_one_cell_say_nothing(tmp_path):
    data = load(strained(tmp_path / "a.xyz"), **KEYS, stress_key="my_stress")
    assert check_stress(data[:5]) is None
