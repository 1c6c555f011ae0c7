"""The loop: exact resume, the averaged weights that are kept, divergence as a result, and stages."""

import itertools
import json
import math
import subprocess
import sys

import pytest
import torch
from line_task import Line, config, differences, run_in

from dcnn.errors import InputError
from dcnn.results import parse
from dcnn.train import checkpoint
from dcnn.train.config import Training
from dcnn.train.cpu import cpu_clock
from dcnn.train.loop import Progress
from dcnn.train.run import Run


def test_a_run_leaves_everything_a_reader_needs(tmp_path):
    result = run_in(tmp_path / "a", config(stages=[{"learning_rate": 0.1}]), Line())
    run = Run.open(tmp_path / "a")
    assert result.status == "finished"
    assert result.test["error"] < Line().evaluate(Line().network, "test")["error"]
    assert parse(run.config_values()) == config(stages=[{"learning_rate": 0.1}])
    rows = run.metrics()
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[-1]["step"] == 24
    last = rows[-1]
    assert last["train_slope_weighted"] == pytest.approx(0.5 * last["train_slope_raw"], rel=1e-6)
    assert last["train_loss"] == pytest.approx(last["train_value_weighted"] + last["train_slope_weighted"], rel=1e-5)
    assert checkpoint.load(run.best)["task"] == {"target": 2.0}
    assert json.loads(run.result_file.read_text())["parameters"] == 2
    assert "finished" in (run.folder / "log.txt").read_text()


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "soap", "lbfgs"])
def test_a_resumed_run_is_the_run_that_never_stopped(tmp_path, optimizer):
    stages = [{"optimizer": optimizer, "learning_rate": 0.05, "inner_iterations": 2}]
    whole = run_in(tmp_path / "whole", config(stages=stages, ema=0.9), Line())

    class StoppedError(Exception):
        pass

    class Killed(Line):
        def evaluate(self, network, split):
            self.evaluations = getattr(self, "evaluations", 0) + 1
            if self.evaluations == 4:
                raise StoppedError
            return super().evaluate(network, split)

    with pytest.raises(StoppedError):
        run_in(tmp_path / "parts", config(stages=stages, ema=0.9), Killed())
    again = run_in(tmp_path / "parts", config(stages=stages, ema=0.9), Line(seed=99), resume=True)
    assert differences(tmp_path / "whole", tmp_path / "parts") == []
    assert again.test == whole.test


def test_the_average_is_what_is_tested(tmp_path):
    task = Line()
    run_in(tmp_path / "a", config(stages=[{"learning_rate": 0.3}], ema=0.99, select="last"), task)
    last, best = checkpoint.load(Run(tmp_path / "a").last), checkpoint.load(Run(tmp_path / "a").best)
    assert torch.equal(best["network"]["1.weight"], last["average"]["mean"][0])
    assert not torch.equal(best["network"]["1.weight"], last["network"]["1.weight"])


def test_a_loss_that_is_not_finite_is_a_result(tmp_path):
    result = run_in(tmp_path / "a", config(), Line(explode_at=10))
    assert result.status == "diverged"
    assert json.loads((tmp_path / "a" / "result.json").read_text())["status"] == "diverged"
    assert checkpoint.load(Run(tmp_path / "a").last)["progress"]["epoch"] == 2, "the last finite state is kept"


def test_a_test_error_that_is_not_finite_is_divergence_too(tmp_path):
    """As of a network with batch statistics, whose kept ones are useless."""
    task = Line()
    task.evaluate = lambda network, part: {"error": 1.0 if part == "validation" else math.nan}
    result = run_in(tmp_path / "a", config(), task)
    assert (result.status, result.values["test"]) == ("diverged", {"error": None})


def test_early_stop_counts_validations_without_progress(tmp_path):
    result = run_in(tmp_path / "a", config(epochs=50, early_stop=3, stages=[{"learning_rate": 1e-12}]), Line())
    assert result.status == "stopped early"
    assert result.values["epochs"] <= 5


def test_stages_change_optimiser_and_precision(tmp_path):
    task = Line()
    stages = [
        {"share": 0.5, "learning_rate": 0.05},
        {"optimizer": "lbfgs", "learning_rate": 1.0, "share": 0.5, "dtype": "float64"},
    ]
    result = run_in(tmp_path / "a", config(steps=12, epochs=None, stages=stages), task)
    assert task.network[1].weight.dtype == torch.float64
    assert result.test["error"] < 1e-9, "L-BFGS solves a quadratic"
    assert result.values["steps"] == 12


def test_time_is_a_budget_too(tmp_path):
    result = run_in(tmp_path / "a", config(epochs=None, minutes=0.001), Line())
    assert result.status == "finished"
    assert result.values["seconds"] >= 0.06


def test_minutes_of_the_processor_do_not_pass_while_others_have_it(tmp_path, monkeypatch):
    ticks = itertools.count(0.0, 2.0)  # two seconds from one look at the clock to the next
    monkeypatch.setattr("dcnn.train.cpu.time.process_time", lambda: next(ticks))
    monkeypatch.setattr("dcnn.train.cpu.os.times", lambda: (0.0,) * 5)  # no compilers
    result = run_in(tmp_path / "a", config(epochs=None, minutes=0.1, clock="cpu"), Line())
    assert (result.values["steps"], result.values["seconds"]) == (3, 6.0)


def test_minutes_of_the_processor_include_those_of_compilers(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # as the clock sets it; put back afterwards
    clock = cpu_clock()
    before = clock()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert clock() - before >= 0.25


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    run_in(tmp_path / "a", config(epochs=1), Line())
    with pytest.raises(InputError, match="--resume"):
        Run.create(tmp_path / "a", config())


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"rubbish", "not a readable checkpoint"), (None, "no such checkpoint")],
)
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path, content, message):
    path = tmp_path / "x.ckpt"
    if content:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"x.ckpt: {message}"):
        checkpoint.load(path)


def test_checkpoints_know_their_format(tmp_path):
    path = tmp_path / "x.ckpt"
    torch.save({"a": 1}, path)
    with pytest.raises(InputError, match="not a dcnn checkpoint"):
        checkpoint.load(path)
    torch.save({"format_version": 99}, path)
    with pytest.raises(InputError, match="newer dcnn"):
        checkpoint.load(path)


def test_old_checkpoints_are_upgraded_step_by_step(tmp_path, monkeypatch):
    path = tmp_path / "x.ckpt"
    checkpoint.save(path, {"a": 1})
    monkeypatch.setattr(checkpoint, "FORMAT_VERSION", 3)
    monkeypatch.setattr(
        checkpoint, "UPGRADES", {1: lambda s: s | {"b": s["a"] + 1}, 2: lambda s: s | {"c": s["b"] + 1}}
    )
    assert checkpoint.load(path)["c"] == 3


def test_a_run_that_is_missing_or_unfinished_says_so(tmp_path):
    with pytest.raises(InputError, match="not a run folder"):
        Run.open(tmp_path)
    run = Run.create(tmp_path / "a", config())
    assert run.metrics() == []
    with pytest.raises(InputError, match="not finished"):
        run.result()


def test_a_new_column_joins_the_table(tmp_path):
    run = Run.create(tmp_path / "a", config())
    run.append({"epoch": 1, "loss": 2.0})
    run.append({"epoch": 2, "loss": 1.0, "extra": 5.0})
    run.append({"epoch": 3, "loss": 0.5})
    rows = run.metrics()
    assert [row["loss"] for row in rows] == [2.0, 1.0, 0.5]
    assert rows[1]["extra"] == 5.0
    assert math.isnan(rows[0]["extra"])
    assert math.isnan(rows[2]["extra"])


def test_of_minutes_those_that_train_count():
    settings = Training(minutes=2.0)
    assert Progress(seconds=70.0, graph_seconds=30.0).share(settings, 10) == pytest.approx(40 / 90)
    assert Progress(seconds=120.0, graph_seconds=30.0).share(settings, 10) == 1
    assert Progress(seconds=130.0, graph_seconds=130.0).share(settings, 10) == 1  # compiling took it all
