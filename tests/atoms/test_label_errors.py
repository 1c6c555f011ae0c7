"""What has learnt nothing: zero forces and the mean energy."""

import numpy as np
import pytest

from dcnn import atoms
from dcnn.atoms.label_errors import KCAL_MOL_EV, errors_of_nothing


def test_zero_forces_and_the_mean_energy():
    frames = atoms.demo_dataset()
    train, test = frames[:50], frames[50:90]
    found = errors_of_nothing(train, test, KCAL_MOL_EV)
    energies = np.array([frame.energy for frame in test])
    expected = np.abs(energies - np.mean([frame.energy for frame in train])).mean()
    assert found["mean_energy_mae_kcal_mol"] == pytest.approx(expected, rel=1e-9)
    assert found["zero_force_mae_kcal_mol_A"] == pytest.approx(np.mean([np.abs(f.forces).mean() for f in test]))


def test_frames_of_several_compositions_have_an_energy_for_each_element():
    def frame(z):
        return atoms.Structure(np.array(z), np.zeros((len(z), 3)), energy=float(np.sum(z)), forces=np.ones((len(z), 3)))

    frames = [frame(z) for z in ([1, 1], [1, 8, 1], [8, 8], [8])]
    found = errors_of_nothing(frames[:3], frames[3:], KCAL_MOL_EV)
    assert found == pytest.approx({"mean_energy_mae_kcal_mol": 0.0, "zero_force_mae_kcal_mol_A": 1.0}, abs=1e-9)
