"""Run folders and checkpoints of released versions open: tests/kept holds some of each."""

import shutil
from pathlib import Path

import pytest
import torch

from dcnn import atoms
from dcnn.errors import InputError
from dcnn.results import TrainedRun, resume_run

KEPT = Path(__file__).parents[1] / "kept"
FOLDERS = sorted(path.parent for path in KEPT.glob("*/*/config.yaml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_old_run_has_the_errors_that_it_had(folder):
    run = TrainedRun.open(folder)
    assert run.status == "finished"
    expected = {name: value for name, value in run.test.items() if isinstance(value, float)}
    found = run.evaluate()
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert run.audit().to_dict()["findings"] is not None


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_old_run_goes_on(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    result = resume_run(tmp_path / "run")
    assert (result.status, result.values["steps"]) == ("finished", TrainedRun.open(folder).values["steps"])


def test_a_run_with_a_weighting_that_is_gone_opens_and_does_not_go_on(tmp_path):
    shutil.copytree(KEPT / "v0.1" / "pde", tmp_path / "run")
    config, last = tmp_path / "run" / "config.yaml", tmp_path / "run" / "checkpoints" / "last.ckpt"
    config.write_text(config.read_text().replace("weighting: fixed", "weighting: softadapt"))
    state = torch.load(last, weights_only=True)
    state["weighting"]["weighting"] = "SoftAdapt"
    torch.save(state, last)
    assert TrainedRun.open(tmp_path / "run").evaluate()["nrmse"] > 0
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(InputError, match="state is of SoftAdapt"):
        resume_run(tmp_path / "run")


def test_an_old_potential_is_a_calculator():
    structure = atoms.demo_dataset()[0].to_ase()
    structure.calc = atoms.Calculator(KEPT / "v0.1" / "atoms")
    assert structure.get_forces().shape == (9, 3)
