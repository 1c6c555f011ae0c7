"""Ctrl-C and SIGTERM: a checkpoint in the middle of an epoch, from which a run goes on as if nothing had been."""

import os
import signal
import sys

import pytest
from line_task import Line, config, differences, run_in

import dcnn.cli
from dcnn.errors import InputError
from dcnn.results import fit_config, resume_run
from dcnn.train import checkpoint
from dcnn.train.interrupt import Interrupted, watching_for_stop
from dcnn.train.run import Run
from dcnn.train.step import Stepper

ATOMS = {
    "kind": "atoms",
    "data": {"path": "demo", "train": 30, "validation": 5, "test": 5},
    "model": {"name": "schnet", "overrides": {"features": 8, "filters": 8, "blocks": 1, "gaussians": 8}},
    "training": {"epochs": 2, "batch_size": 5, "accelerator": "cpu"},
}
POINTS = {"interior": 64, "boundary": 16, "initial": 16, "resample_every": 2, "adaptive": True}
PDE = {
    "kind": "pde",
    "recipe": "paper",
    "problem": {"name": "heat"},
    "network": {"width": 8, "depth": 2},
    "points": POINTS,
    "steps_per_epoch": 6,
    "training": {
        "steps": 12,
        "accelerator": "cpu",
        "stages": [{"share": 0.7}, {"share": 0.3, "optimizer": "lbfgs", "inner_iterations": 3, "dtype": "float64"}],
    },
}


@pytest.fixture(autouse=True)
def ctrl_c_is_heard():
    """A shell that starts the tests in the background has Ctrl-C ignored, and what is ignored stays ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("call", [6, 8])  # in the middle of the second epoch, and at its end
def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path, number, call):
    settings = config(ema=0.9, stages=[{"learning_rate": 0.05}])
    run_in(tmp_path / "whole", settings, Line())
    with pytest.raises(Interrupted, match="go on with `dcnn train --resume") as stopped:
        run_in(tmp_path / "parts", settings, Line(signal_at={call: number}))
    assert stopped.value.exit_code == 128 + number
    assert checkpoint.load(Run(tmp_path / "parts").last)["progress"]["step"] == call
    run_in(tmp_path / "parts", settings, Line(seed=99), resume=True)
    assert differences(tmp_path / "whole", tmp_path / "parts") == []


def interrupt_at(step, monkeypatch):
    usual = Stepper.__call__

    def stepped(self, batch, number, rate):
        if number == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return usual(self, batch, number, rate)

    monkeypatch.setattr(Stepper, "__call__", stepped)


@pytest.mark.parametrize(("values", "step"), [(ATOMS, 8), (PDE, 6), (PDE, 10)])
def test_real_runs_go_on_bit_for_bit(tmp_path, monkeypatch, values, step):
    """Graphs of the step, points drawn by residual, and a second stage."""
    fit_config(values, tmp_path / "whole")
    with monkeypatch.context() as patched:
        interrupt_at(step, patched)
        with pytest.raises(Interrupted):
            fit_config(values, tmp_path / "parts")
    resume_run(tmp_path / "parts")
    assert differences(tmp_path / "whole", tmp_path / "parts") == []


def test_the_command_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    interrupt_at(2, monkeypatch)
    words = ["network.width=8", "network.depth=1", "points.interior=32", "training.steps=50", "--no-page"]
    monkeypatch.setattr(sys, "argv", ["dcnn", "train", "heat", *words, "-o", str(tmp_path / "a")])
    with pytest.raises(SystemExit) as stopped:
        dcnn.cli.main()
    assert stopped.value.code == 143
    written = capsys.readouterr().err
    assert written == f"dcnn: {tmp_path / 'a'}: stopped; go on with `dcnn train --resume {tmp_path / 'a'}`\n"


def test_a_second_signal_interrupts_at_once_and_an_ignored_one_stays_ignored():
    with watching_for_stop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.number == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with watching_for_stop() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.number == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_finished_run_goes_on_with_a_larger_budget(tmp_path):
    values = {**ATOMS, "training": {**ATOMS["training"], "epochs": 1}}
    fit_config(values, tmp_path / "a")
    longer = resume_run(tmp_path / "a", overrides=["training.epochs=3"])
    assert (longer.status, longer.values["epochs"]) == ("finished", 3)
    assert [row["epoch"] for row in Run(tmp_path / "a").metrics()] == [1, 2, 3]
    assert Run(tmp_path / "a").config_values()["training"]["epochs"] == 3
    for pairs, message in (
        (["training.epochs=2"], "3 epochs are done already"),
        (["training.epochs=9", "seed=3"], "seed=3: only the budget of a run can change"),
        (["training.epochs=9", "training.minutes=1"], "only one of them can be meant"),
        (["training.minutes=0"], r"training\.minutes"),
    ):
        with pytest.raises(InputError, match=message):
            resume_run(tmp_path / "a", overrides=pairs)
