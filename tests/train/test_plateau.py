"""The learning rate that falls where validation makes no progress."""

import pytest

import dcnn
from dcnn.train import Run

TINY = {
    "network": {"width": 4, "depth": 1},
    "points": {"interior": 8, "boundary": 4, "initial": 4},
    "steps_per_epoch": 2,
}


@pytest.mark.parametrize(("patience", "expected"), [(1, [1, 1, 1, 0.5, 0.5, 0.25]), (2, [1, 1, 1, 1, 0.5, 0.5])])
def test_the_rate_halves_after_so_many_validations_without_progress(patience, expected, tmp_path):
    """Steps of this size change no weight, so that only the first validation is a progress."""
    stage = {"optimizer": "adam", "learning_rate": 1e-30, "schedule": "plateau", "patience": patience, "final": 0.0}
    config = {"kind": "pde", "problem": {"name": "heat"}, **TINY}
    dcnn.fit({**config, "training": {"epochs": 6, "stages": [stage], "accelerator": "cpu"}}, tmp_path / "run")
    rates = [row["learning_rate"] / 1e-30 for row in Run(tmp_path / "run").metrics()]
    assert rates == pytest.approx(expected)
