"""A loss that is not finite: stopped before the update, named, kept, and evaluated again."""

import json
import math
import sys

import pytest
import torch
from line_task import Line, config, run_in

import dcnn.cli
from dcnn.results import TrainedRun, fit_config
from dcnn.train import checkpoint
from dcnn.train.divergence import kept
from dcnn.train.run import Run
from dcnn.train.step import Stepper

POINTS = {"interior": 32, "boundary": 8, "initial": 8}
PDE = {
    "kind": "pde",
    "recipe": "paper",
    "problem": {"name": "heat"},
    "network": {"width": 8, "depth": 2},
    "points": POINTS,
    "steps_per_epoch": 4,
    "training": {"steps": 20, "accelerator": "cpu"},
}
ATOMS = {
    "kind": "atoms",
    "data": {"path": "demo", "train": 20, "validation": 5, "test": 5},
    "model": {"name": "schnet", "overrides": {"features": 8, "filters": 8, "blocks": 1, "gaussians": 8}},
    "training": {"epochs": 5, "batch_size": 5, "accelerator": "cpu"},
}


def finite(weights):
    return all(bool(torch.isfinite(value).all()) for value in weights.values())


@pytest.mark.parametrize("select", ["best", "last"])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_it_stops_at_that_step_and_keeps_good_weights(tmp_path, select, clip_norm):
    settings = config(select=select, stages=[{"learning_rate": 0.05, "clip_norm": clip_norm}])
    result = run_in(tmp_path / "a", settings, Line(explode_at=7))
    run = Run(tmp_path / "a")
    assert (result.status, result.values["steps"]) == ("diverged", 6)
    message = result.values["message"]
    assert message.startswith("step 6: the loss is not finite (value); the first layer with such an output is 0; lower")
    assert "dcnn replay" in message
    assert len(message) < 300
    assert "\n" not in message
    assert finite(checkpoint.load(run.best)["network"])
    assert checkpoint.load(run.last)["progress"]["epoch"] == 1
    state = kept(run)
    assert finite(state["network"])
    assert torch.equal(state["diverged"]["batch"][0], list(Line().batches(1))[2])
    assert math.isnan(run.metrics()[-1]["train_loss"])


def test_a_gradient_that_is_not_finite_does_not_reach_the_weights(tmp_path):
    class Root(Line):
        def residuals(self, network, batch):
            found = super().residuals(network, batch)
            return found | {"value": (found["value"] * (self.calls < 3)).abs().sqrt()}

    result = run_in(tmp_path / "a", config(), Root())
    assert (result.status, result.values["steps"]) == ("diverged", 2)
    assert "the gradient is not finite, first that of 1.weight" in result.values["message"]
    assert finite(checkpoint.load(Run(tmp_path / "a").best)["network"]), "of the weights before the step"


def test_a_line_search_comes_back_from_weights_without_a_finite_loss(tmp_path):
    class Cliff(Line):
        def residuals(self, network, batch):
            found = super().residuals(network, batch)
            beyond = network[1].weight.detach().abs() > 50
            return {name: torch.where(beyond, math.inf, value) for name, value in found.items()}

    stage = {"optimizer": "lbfgs", "learning_rate": 1e4, "dtype": "float64"}
    result = run_in(tmp_path / "a", config(epochs=1, stages=[stage]), Cliff())
    assert (result.status, result.values["steps"]) == ("finished", 4)
    assert finite(checkpoint.load(Run(tmp_path / "a").last)["network"])


def test_early_stopping_does_not_hide_a_divergence(tmp_path):
    settings = config(early_stop=1, stages=[{"learning_rate": 1e-12}])
    task = Line(explode_at=6)
    task.evaluate = lambda network, split: {"error": 1.0}
    assert run_in(tmp_path / "a", settings, task).status == "diverged"


def spoil_weights_at(step, monkeypatch):
    usual = Stepper.__call__

    def stepped(self, batch, number, rate):
        if number == step:
            with torch.no_grad():
                next(self.task.network.parameters()).fill_(math.nan)
        return usual(self, batch, number, rate)

    monkeypatch.setattr(Stepper, "__call__", stepped)


@pytest.mark.parametrize(
    ("values", "training", "terms"),
    [
        (PDE, {}, "heat, initial_u"),
        (PDE, {"step": "traced"}, "heat, initial_u"),
        (PDE, {"stages": [{"optimizer": "lbfgs", "inner_iterations": 2}]}, "heat, initial_u"),
        (ATOMS, {}, "energy, forces"),
        (ATOMS, {"select": "last", "step": "eager"}, "energy, forces"),
    ],
)
def test_every_kind_of_run_can_be_replayed(tmp_path, monkeypatch, capsys, values, training, terms):
    with monkeypatch.context() as patched:
        spoil_weights_at(6, patched)
        result = fit_config({**values, "training": {**values["training"], **training}}, tmp_path / "a")
    assert (result.status, result.values["steps"]) == ("diverged", 6)
    assert f"({terms}" in result.values["message"]
    found = TrainedRun.open(tmp_path / "a").replay()
    assert found["message"] == result.values["message"]
    assert found["again"] in result.values["message"]
    assert math.isnan(found["terms"][terms.partition(",")[0]])
    for arguments in (["replay", tmp_path / "a"], ["replay", tmp_path / "a", "--json"]):
        monkeypatch.setattr(sys, "argv", ["dcnn", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            dcnn.cli.main()
        assert not stopped.value.code
    shown = capsys.readouterr().out
    assert found["layer"] in shown
    assert json.loads(shown[shown.index("{") :])["layer"] == found["layer"]


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["dcnn", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        dcnn.cli.main()
    return stopped.value.code, capsys.readouterr().err


def test_commands_without_finite_weights_fail(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patched:
        spoil_weights_at(0, patched)
        fit_config(PDE, tmp_path / "a")
    code, said = command(monkeypatch, capsys, "evaluate", tmp_path / "a")
    assert (code, said.count("\n")) == (1, 1)
    assert "diverged" in said
    fit_config(PDE, tmp_path / "b")
    code, said = command(monkeypatch, capsys, "replay", tmp_path / "b")
    assert (code, "only a run that diverged has one" in said) == (2, True)
    best = checkpoint.load(Run(tmp_path / "b").best)
    for value in best["network"].values():
        value.fill_(math.nan)
    checkpoint.save(Run(tmp_path / "b").best, best)
    assert command(monkeypatch, capsys, "evaluate", tmp_path / "b")[0] == 1
