"""`fit` on real frames: recipes, budgets, splits, resume, and two processes equal to one."""

import json

import numpy as np
import pytest
import torch

from dcnn.atoms.frames import split_frames
from dcnn.errors import InputError
from dcnn.results import as_config, build_task, resolve, resume_run
from dcnn.results import fit_config as fit
from dcnn.train import Run, checkpoint

TINY = {"features": 16, "filters": 16, "blocks": 1, "gaussians": 10}
BASE = {
    "kind": "atoms",
    "data": {"path": "demo", "train": 40, "validation": 10, "test": 20},
    "model": {"name": "schnet", "overrides": TINY},
    "training": {"epochs": 2, "batch_size": 10, "accelerator": "cpu"},
}


def settings(recipe="best", **training):
    return {**BASE, "recipe": recipe, "training": {**BASE["training"], **training}}


@pytest.mark.parametrize("recipe", ["original", "paper", "best"])
def test_every_recipe_trains_and_reports_units(tmp_path, recipe):
    result = fit(settings(recipe), tmp_path / "run")
    assert result.status == "finished"
    assert result.values["recipe"] == recipe
    assert {"energy_mae_kcal_mol", "force_mae_kcal_mol_A", "efwt"} <= set(result.test)
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result.values


def test_the_best_recipe_learns_forces(tmp_path):
    model = {"name": "schnet", "overrides": {"features": 32, "filters": 32, "blocks": 2, "gaussians": 20}}
    training = settings(epochs=40, batch_size=4, stages=[{"learning_rate": 5e-3}])
    result = fit({**training, "model": model}, tmp_path / "run")
    first, last = Run(tmp_path / "run").metrics()[0], Run(tmp_path / "run").metrics()[-1]
    assert last["validation_force_mae_kcal_mol_A"] < 0.6 * first["validation_force_mae_kcal_mol_A"]
    assert result.test["force_mae_kcal_mol_A"] < 12


def test_the_recipe_decides_scale_and_activation():
    best, paper, original = (build_task(as_config(settings(name))) for name in ("best", "paper", "original"))
    assert best.scale.references is not None
    assert paper.scale.constant == 1e4, "the smallest power of ten above GFN2-xTB's total energy of ethanol"
    assert original.scale.constant == 1.0
    assert {m.name for m in paper.network.modules() if hasattr(m, "vanishing_order")} == {"irelu"}


def test_an_unfinished_run_goes_on_and_a_finished_one_is_returned(tmp_path):
    whole = fit(settings(epochs=4), tmp_path / "whole")
    fit(settings(epochs=4), tmp_path / "parts")
    (tmp_path / "parts" / "result.json").unlink()
    again = resume_run(tmp_path / "parts")
    assert again.test == whole.test
    assert resume_run(tmp_path / "parts").values == again.values


def test_two_processes_train_the_model_of_one(tmp_path):
    """Each process takes half of every batch; averaged gradients are those of the whole batch, in every stage.

    One process makes its steps as usual, two make them by traced graphs.
    """
    half = {"learning_rate": 1e-3, "share": 0.5, "dtype": "float64"}
    common = {"epochs": 2, "ema": None, "stages": [half, half]}
    one = fit(settings(**common, step="eager"), tmp_path / "one")
    two = fit(settings(**common, devices=2, strategy="ddp", step="traced"), tmp_path / "two")
    assert "traced step: graph for batches of one size" in (tmp_path / "two" / "log.txt").read_text()
    states = [checkpoint.load(Run(tmp_path / name).last)["network"] for name in ("one", "two")]
    for key, value in states[0].items():
        assert torch.allclose(value, states[1][key], rtol=1e-10, atol=1e-12), key
    assert two.test["force_mae_kcal_mol_A"] == pytest.approx(one.test["force_mae_kcal_mol_A"], rel=1e-9)


def test_frames_are_split_without_overlap():
    frames = split_frames(as_config(settings()).data)
    numbers = [set(part.numbers.tolist()) for part in frames.values()]
    assert [len(part) for part in numbers] == [40, 10, 20]
    assert not numbers[0] & numbers[1]
    assert not (numbers[0] | numbers[1]) & numbers[2]


def test_a_split_file_decides_the_training_frames(tmp_path):
    np.save(tmp_path / "frames.npy", np.arange(100, 160))
    data = as_config(
        {**settings(), "data": {"path": "demo", "validation": 10, "split": str(tmp_path / "frames.npy")}}
    ).data
    frames = split_frames(data)
    assert set(frames["train"].numbers) | set(frames["validation"].numbers) == set(range(100, 160))


def test_a_folder_with_the_name_of_a_problem_is_not_taken_for_data(tmp_path, monkeypatch):
    (tmp_path / "advection").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve("advection", "best", []).kind == "pde"
    assert resolve(".", "best", []).data.path == "."


@pytest.mark.parametrize(
    ("target", "recipe", "overrides", "message"),
    [
        ("no_such_file.npz", "best", [], "neither a file nor one of"),
        ("demo", "bets", [], "unknown recipe 'bets'; did you mean 'best'"),
        ("demo", "best", ["training.epoch=1"], "'epoch'; did you mean 'epochs'"),
        ("demo", "best", ["model.nam=x"], "'nam'; did you mean 'name'"),
    ],
)
def test_mistakes_on_the_command_line_are_explained(target, recipe, overrides, message):
    with pytest.raises(InputError, match=message):
        resolve(target, recipe, overrides)


def test_an_unknown_network_names_the_valid_ones(tmp_path):
    with pytest.raises(InputError, match="unknown network 'shnet'; did you mean 'schnet'"):
        build_task(resolve("demo", "best", [], model="shnet"))


def test_too_many_validation_frames_are_refused():
    with pytest.raises(InputError, match="leave none to train on"):
        split_frames(as_config({**settings(), "data": {"path": "demo", "validation": 5000}}).data)


def test_a_yaml_file_is_a_configuration(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("recipe: paper\ndata: {path: demo}\ntraining: {epochs: 1}\n")
    config = resolve(str(path), None, ["seed=7"])
    assert (config.recipe, config.seed, config.training.epochs) == ("paper", 7, 1)
    assert config.scale.unit == "power_of_ten"


def test_input_that_cannot_be_read_leaves_no_run(tmp_path):
    """So that the same command works once the file is mended."""
    (tmp_path / "empty.npz").write_bytes(b"")
    values = {"kind": "atoms", "data": {"path": str(tmp_path / "empty.npz")}, "training": {"epochs": 1}}
    for _ in range(2):
        with pytest.raises(InputError, match=r"empty\.npz"):
            fit(values, tmp_path / "run")
    assert not (tmp_path / "run").exists()
