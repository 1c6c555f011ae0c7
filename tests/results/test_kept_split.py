"""A run keeps its split and notices when its data file has changed."""

import numpy as np
import pytest

from dcnn import atoms
from dcnn.errors import InputError
from dcnn.results import TrainedRun, fit_config, resume_run

TINY = {"features": 8, "filters": 8, "blocks": 1, "gaussians": 8}


@pytest.fixture
def run(tmp_path):
    atoms.write(atoms.demo_dataset()[:40], tmp_path / "frames.npz")
    values = {
        "data": {"path": str(tmp_path / "frames.npz"), "train": 20, "validation": 5, "test": 10},
        "model": {"name": "schnet", "overrides": TINY},
        "training": {"epochs": 2, "accelerator": "cpu"},
    }
    fit_config(values, tmp_path / "run")
    return tmp_path / "run"


def test_the_frames_of_a_run_are_those_it_was_split_into(run):
    first, again = (TrainedRun.open(run) for _ in range(2))
    errors = first.evaluate()
    assert errors.pop("by_element")["H"] == pytest.approx(first.test["by_element"]["H"], rel=1e-5)
    assert errors == pytest.approx({name: first.test[name] for name in errors}, rel=1e-5)
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("split_seed: 0", "split_seed: 1"))
    assert np.array_equal(again.task.frames["test"].numbers, first.task.frames["test"].numbers)


def test_a_file_that_has_changed_is_refused(run, tmp_path):
    atoms.write(atoms.demo_dataset()[100:140], tmp_path / "frames.npz")
    with pytest.raises(InputError, match=r"frames.npz: changed since the run began"):
        TrainedRun.open(run).evaluate()
    (run / "result.json").unlink()
    with pytest.raises(InputError, match=r"frames.npz: changed since the run began"):
        resume_run(run)
