"""Runs that are killed at random moments end bit for bit as those that were not.

`make test-kills` kills each kind twenty times; the ordinary tests twice.
"""

import multiprocessing
import os
import random
import time

import psutil
import pytest
from line_task import begin_or_go_on, differences

from dcnn.train.run import Run

HALF = {"share": 0.5, "dtype": "float64"}
ATOMS = {
    "kind": "atoms",
    "data": {"path": "demo", "train": 20, "validation": 5, "test": 5},
    "model": {"name": "schnet", "overrides": {"features": 8, "filters": 8, "blocks": 1, "gaussians": 8}},
    "training": {"epochs": 10, "batch_size": 5, "accelerator": "cpu"},
}
PDE = {
    "kind": "pde",
    "recipe": "paper",
    "problem": {"name": "heat"},
    "network": {"width": 8, "depth": 2},
    "points": {"interior": 64, "resample_every": 3, "adaptive": True},
    "steps_per_epoch": 5,
    "training": {
        "steps": 60,
        "ema": 0.9,
        "accelerator": "cpu",
        "stages": [HALF, {**HALF, "optimizer": "lbfgs", "inner_iterations": 2}],
    },
}
DDP = {**PDE, "points": {"interior": 64, "resample_every": 3}, "training": {**PDE["training"], "devices": 2}}


def end_bit_equal(values, folder, kills, seed):
    """Runs once whole, and again with kills at random moments, most after a new checkpoint and some before it, until
    there were as many as asked for; returns the number of kills and of the runs they were spread over.
    """
    server = multiprocessing.get_context("forkserver")  # imports once, not for every kill
    server.set_forkserver_preload(["dcnn.results", "dcnn.atoms.domain", "dcnn.pde.domain", "line_task"])
    chance, begun = random.Random(seed), time.monotonic()
    whole = server.Process(target=begin_or_go_on, args=(values, folder / "whole"))
    whole.start()
    whole.join()
    assert whole.exitcode == 0
    training = Run(folder / "whole").result().values["seconds"]
    starting = time.monotonic() - begun - training
    done = runs = 0
    while done < kills:
        run, runs = Run(folder / f"parts-{runs}"), runs + 1
        killed = 0
        while not run.result_file.exists():
            process = server.Process(target=begin_or_go_on, args=(values, run.folder))
            process.start()
            if done < kills and (killed == 0 or chance.random() < 0.7):
                before = _time_of(run.last)
                while process.is_alive() and _time_of(run.last) == before:
                    time.sleep(0.002)
                process.join(chance.uniform(0, 2 * training / kills))
            else:
                process.join(chance.uniform(0, starting) if done < kills else None)
            if not process.is_alive():
                assert process.exitcode == 0
                continue
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.join()
            assert not psutil.wait_procs(children, timeout=60)[1]
            done, killed = done + 1, killed + 1
            epochs = [row["epoch"] for row in run.metrics()]
            assert epochs == sorted(set(epochs)), "an epoch twice"
        assert not [path.name for path in run.folder.rglob("*.partial*")]
        assert differences(folder / "whole", run.folder) == []
    return done, runs


def _time_of(path):
    return path.stat().st_mtime_ns if path.exists() else 0


@pytest.mark.parametrize("values", [ATOMS, pytest.param(PDE, marks=pytest.mark.slow)], ids=["atoms", "pde"])
def test_a_run_that_is_killed_twice(tmp_path, values):
    end_bit_equal(values, tmp_path, 2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("values", [ATOMS, PDE, DDP], ids=["atoms", "pde", "two-processes"])
def test_a_run_that_is_killed_twenty_times(tmp_path, values):
    done, runs = end_bit_equal(values, tmp_path, 20, seed=int(os.environ.get("DCNN_KILLS_SEED", "2")))
    print(f"{done} kills over {runs} runs, bit-equal")
