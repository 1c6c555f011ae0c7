"""Two processes that train as one: the same weights, one folder, one end."""

import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial

import psutil
import pytest
import torch
from line_task import Line, build_line, config

from dcnn.errors import InputError
from dcnn.results import fit_config, resume_run
from dcnn.train import checkpoint
from dcnn.train.config import Training
from dcnn.train.console import Console
from dcnn.train.divergence import kept
from dcnn.train.loop import Trainer
from dcnn.train.processes import OneProcess, make_fabric
from dcnn.train.run import Run

TINY = ("network.width=8", "network.depth=2", "points.interior=64", "steps_per_epoch=5", "--recipe", "paper")


def heat(**training):
    return {
        "kind": "pde",
        "recipe": "paper",
        "problem": {"name": "heat"},
        "network": {"width": 8, "depth": 2},
        "points": {"interior": 64},
        "steps_per_epoch": 5,
        "training": {"steps": 10, "accelerator": "cpu", **training},
    }


@pytest.mark.slow
def test_graphs_and_line_searches_of_two_processes_are_those_of_one(tmp_path):
    half = {"share": 0.5, "dtype": "float64"}
    stages = [{**half, "learning_rate": 1e-3, "clip_norm": 1.0}, {**half, "optimizer": "lbfgs", "inner_iterations": 3}]
    common = {"stages": stages, "step": "traced"}
    fit_config(heat(**common), tmp_path / "one")
    fit_config(heat(**common, devices=2), tmp_path / "two")
    states = [checkpoint.load(Run(tmp_path / name).last)["network"] for name in ("one", "two")]
    for key, value in states[0].items():
        assert torch.allclose(value, states[1][key], rtol=1e-7, atol=1e-9), key
    rows = [Run(tmp_path / name).metrics()[0] for name in ("one", "two")]
    assert rows[1]["train_loss"] == pytest.approx(rows[0]["train_loss"], rel=1e-8), "of all points, not of a share"
    assert "traced step: graph for batches" in (tmp_path / "two" / "log.txt").read_text()


def test_all_processes_stop_when_the_loss_of_one_is_not_finite(tmp_path):
    settings = config(devices=2, accelerator="cpu")
    result = fit_config(settings, tmp_path / "a", build=partial(build_line, explode_at=6, explode_in=1))
    assert (result.status, result.values["steps"]) == ("diverged", 5)
    assert "the loss is not finite (value)" in result.values["message"]
    state = kept(Run(tmp_path / "a"))["diverged"]
    assert (state["place"]["rank"], state["place"]["world"]) == (1, 2)
    assert torch.equal(state["batch"][0], list(Line().batches(1))[1][1::2])


def test_errors_of_other_processes_are_one_line(tmp_path):
    values = heat(devices=2) | {"loss": {"weighting": "uncertainty"}}
    with pytest.raises(InputError, match=r"^loss.weighting: weights that follow the terms need one process"):
        fit_config(values, tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_an_accelerator_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^training.accelerator=gpu, devices=1: [^\n]+$"):
        fit_config(heat(accelerator="gpu"), tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_one_process_on_the_cpu_needs_no_lightning(tmp_path):
    """Its import takes seconds of every run."""
    assert isinstance(make_fabric(Training(steps=1, accelerator="cpu"), tmp_path), OneProcess)
    several = make_fabric(Training(steps=1, accelerator="cpu", strategy="ddp"), tmp_path)
    assert type(several).__name__ == "Fabric"


class OnMeta(OneProcess):
    """A device that holds no numbers stands for a GPU."""

    def setup_module(self, module, move_to_device=True):
        return module.to("meta")

    def to_device(self, batch):
        return batch.to("meta")


class SeenError(Exception):
    pass


class Looked(Line):
    def residuals(self, network, batch):
        raise SeenError(batch.device.type)


def test_all_of_a_step_is_on_one_device(tmp_path):
    settings = config(ema=0.9)
    trainer = Trainer(OnMeta(), Looked(), settings, Run.create(tmp_path / "a", settings), Console())
    with pytest.raises(SeenError, match="meta"):
        trainer.train()
    tensors = [*trainer.task.network.parameters(), *trainer.average.mean, *trainer.stepper.parameters]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    trainer.average.load_state_dict({"mean": [torch.zeros(1, 1), torch.zeros(1)], "updates": 3})
    assert {mean.device.type for mean in trainer.average.mean} == {"meta"}, "checkpoints are read to the CPU"


# ---- whole commands -------------------------------------------------------------------------------------------------


def command(*words, **environment):
    """`dcnn …` in a process of its own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "RANK", "WORLD_SIZE", "LOCAL_RANK"))}
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, words)], env={**clean, **environment}, text=True, stderr=subprocess.PIPE
    )


def wait_for(condition, what, seconds=900):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_signal_to_the_first_process_ends_all(tmp_path, number, code):
    run = Run(tmp_path / "a")
    words = ("dcnn.cli", "train", "heat", *TINY, "training.steps=1000000", "training.devices=2", "--no-page")
    parent = command(*words, "-o", run.folder)
    try:
        wait_for(run.last.exists, "no checkpoint")
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len([child for child in children if "multiprocessing.spawn" in " ".join(child.cmdline())]) == 2
        os.kill(parent.pid, number)
        said = parent.communicate(timeout=600)[1]
        assert parent.returncode == code
        wait_for(lambda: not any(map(psutil.pid_exists, (c.pid for c in children))), "children live on", 300)
    finally:
        parent.kill()
    if number == signal.SIGTERM:
        assert said.endswith(f"dcnn: {run.folder}: stopped; go on with `dcnn train --resume {run.folder}`\n")
        step = checkpoint.load(run.last)["progress"]["step"]
        assert resume_run(run.folder, overrides=[f"training.steps={step + 3}"]).values["steps"] == step + 3


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("starter", ["torchrun", "slurm"])
def test_processes_that_are_there_already_are_used(tmp_path, monkeypatch, starter):
    """One folder, made by the first process, also if nobody names it; equal to one process."""
    monkeypatch.chdir(tmp_path)
    stages = 'training.stages=[{"dtype": "float64", "learning_rate": 1e-3}]'
    words = ("train", "heat", *TINY, "training.steps=10", stages, "training.accelerator=cpu", "--no-page")
    if starter == "torchrun":
        torchrun = ("torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}", "-m", "dcnn.cli")
        started = [command(*torchrun, *words, "training.devices=2")]
    else:
        shared = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "7"}
        shared |= {"SLURM_NODEID": "0", "SLURM_NODELIST": "localhost", "SLURM_NNODES": "1", "SLURM_JOB_NUM_NODES": "1"}
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        started = [
            command("dcnn.cli", *words, "training.devices=2", **shared, SLURM_PROCID=str(n), SLURM_LOCALID=str(n))
            for n in range(2)
        ]
    for process in started:
        said = process.communicate(timeout=400)[1]
        assert process.returncode == 0, said
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["heat-paper-seed0"]
    run = Run(tmp_path / "runs" / "heat-paper-seed0")
    assert [row["epoch"] for row in run.metrics()] == [1, 2]
    fit_config(heat(stages=[{"dtype": "float64", "learning_rate": 1e-3}]), tmp_path / "one")
    one, two = (checkpoint.load(folder.last)["network"] for folder in (Run(tmp_path / "one"), run))
    for key, value in one.items():
        assert torch.allclose(value, two[key], rtol=1e-9, atol=1e-12), key
