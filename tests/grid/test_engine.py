"""One suite for both engines, processes of this machine and a real Ray: what is kept, continued, refused, given up.

What both do by the same code is tried with processes in the ordinary tests, and with Ray too in the slow ones.
"""

import os
import re
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from dcnn.errors import DcnnError, InputError
from dcnn.grid import cluster, engine
from dcnn.grid.cells import GridCell
from dcnn.grid.store import local_copy
from dcnn.results import as_config
from dcnn.train import Run
from dcnn.train.text import to_yaml


@pytest.fixture(scope="module")
def two_workers():
    """A Ray of two workers; gone without a trace afterwards."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with cluster.connected("ray", cpus=2) as ray:
        yield ray
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    psutil.wait_procs(left, timeout=10)
    assert [p.name() for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


@pytest.fixture(params=["local", "ray"])
def on(request):
    if request.param == "ray":
        request.getfixturevalue("two_workers")
    return request.param


ray_too = pytest.mark.parametrize("on", ["local", pytest.param("ray", marks=pytest.mark.slow)], indirect=True)


def trainings(folder):
    """Training processes that work below `folder`."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if "dcnn.grid.child_process" in (process.info["cmdline"] or []) and str(folder) in process.info["cmdline"][-1]
    ]


def test_a_grid_runs_once_and_is_kept(on, heat, tmp_path):
    seen = []
    cells = heat(2, seeds=2)
    runs = engine.run(cells, tmp_path, on, watch=lambda running, done: seen.append(done))
    assert [(run["folder"], run["status"]) for run in runs] == [
        (str(tmp_path / cell.name), "finished") for cell in cells
    ]
    assert seen[-1] == 2
    stamps = [Run(run["folder"]).result_file.stat().st_mtime_ns for run in runs]
    assert engine.run(cells, tmp_path, "local") == engine.run(cells, tmp_path, on) == runs
    assert stamps == [Run(run["folder"]).result_file.stat().st_mtime_ns for run in runs]


@pytest.mark.parametrize(
    ("on", "whom"),
    [("local", "training"), pytest.param("ray", "training", marks=pytest.mark.slow), ("ray", "worker")],
    indirect=["on"],
)
def test_what_is_killed_goes_on_to_the_same_result(on, whom, twins, tmp_path):
    """Two cells of the same seed; the first one's training, or the worker that holds it, is killed in the middle.

    A local worker is a thread of this process.
    """
    cells, killed = twins(60, f"killed-{os.getpid()}", "left-alone"), []  # not those of another run of the tests
    url, folder = f"file://{tmp_path}/grid", tmp_path / "grid" / cells[0].name

    def watch(running, done):
        if not killed and (folder / "checkpoints" / "last.ckpt").exists():
            worker = int(re.findall(r"worker (\d+)", (folder / "output.txt").read_text())[-1])
            (training,) = trainings(cells[0].name)
            killed.append(worker if whom == "worker" else training.pid)
            os.kill(killed[0], signal.SIGKILL)

    first, second = engine.run(cells, url, on, jobs=2, watch=watch)
    assert killed
    assert (first["status"], first["steps"]) == ("finished", 600)
    assert first["test"] == second["test"]
    run, alone = Run(folder), Run(tmp_path / "grid" / cells[1].name)
    resumed = int(re.search(r"resumed after epoch (\d+)", (folder / "log.txt").read_text())[1])
    assert 0 < resumed < 60
    assert [row["epoch"] for row in run.metrics()] == list(range(1, 61))
    assert [row["train_loss"] for row in run.metrics()] == [row["train_loss"] for row in alone.metrics()]
    assert len(re.findall(r"^worker", (folder / "output.txt").read_text(), re.MULTILINE)) == 2
    assert local_copy(url) / cells[0].name == Path(first["folder"])


def test_input_that_is_refused_ends_the_grid_with_its_reason(on, tmp_path):
    missing = as_config({"kind": "atoms", "data": {"path": "/no/such/file.npz"}, "training": {"epochs": 1}})
    with pytest.raises(InputError, match=r"missing-\w+: .*no/such/file\.npz: no such file"):
        engine.run([GridCell({"name": "missing"}, missing)], tmp_path, on)


@ray_too
def test_a_cell_that_dies_again_and_again_leaves_the_others_their_results(on, twins, tmp_path):
    """A folder stands where its result is to be written: the process dies of it, every time."""
    dies, lives = cells = twins(1, "dies", "lives")
    (tmp_path / dies.name / "result.partial.json").mkdir(parents=True)
    with pytest.raises(DcnnError, match=rf"1 of 2 runs died 3 times.*\n{tmp_path}/{dies.name}: "):
        engine.run(cells, tmp_path, on)
    assert Run(tmp_path / lives.name).result().values["status"] == "finished"
    assert (tmp_path / dies.name / "output.txt").read_text().count("worker") == 3


@ray_too
def test_a_cell_that_lags_is_given_up_and_the_others_finish(on, twins, heat, tmp_path):
    slow = GridCell({"name": "slow"}, heat(100_000)[0].config)
    quick = twins(2, "quick")[0]

    def lagging(running):
        return {slow.name} if Run(tmp_path / quick.name).result_file.exists() else ()

    engine.compute([slow, quick], tmp_path, on, lagging=lagging)
    assert not Run(tmp_path / slow.name).result_file.exists()
    assert Run(tmp_path / quick.name).result().status == "finished"
    psutil.wait_procs(trainings(tmp_path), timeout=20)
    assert trainings(tmp_path) == []


def test_an_interrupted_grid_says_how_to_go_on(on, heat, tmp_path):
    def watch(running, done):
        raise KeyboardInterrupt

    with pytest.raises(DcnnError, match=r"0 of 1 runs are finished in .*, and the same command goes on"):
        engine.run(heat(10_000), tmp_path, on, watch=watch)
    psutil.wait_procs(trainings(tmp_path), timeout=20)
    assert trainings(tmp_path) == []


@pytest.mark.parametrize("name", ["slurm", "rayon", "ray:head", "ray://head"])
def test_other_engines_are_refused(name, heat, tmp_path):
    with pytest.raises(InputError, match=f"--on {name}: .*ray://"):
        engine.run(heat(1), tmp_path, on=name)


def test_at_least_one_run_at_a_time(heat, tmp_path):
    with pytest.raises(InputError, match="--jobs 0: at least one"):
        engine.run(heat(1), tmp_path, jobs=0)


@pytest.mark.parametrize(
    ("words", "resources"),
    [
        ([], (1, 0)),
        (["training.threads=3", "training.devices=2"], (6, 0)),
        (["training.devices=2", "training.accelerator=gpu"], (2, 2)),
    ],
)
def test_a_cell_asks_for_what_its_configuration_uses(words, resources, heat, tmp_path, monkeypatch):
    asked = []

    class Workers:
        pending = ()

        def __init__(self, jobs):
            assert jobs == 2

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def submit(self, order):
            asked.append((order.cpus, order.gpus))

    monkeypatch.setattr(engine, "LocalWorkers", Workers)
    engine.compute(heat(1, more=words), tmp_path)
    assert asked == [resources]


def test_training_ends_with_the_process_that_started_it(heat, tmp_path):
    """The parent is killed: its training process must not go on alone."""
    code = f"from dcnn.grid.child_process import start; from pathlib import Path; import time\n\
print(start(open('{tmp_path}/c.yaml').read(), Path('{tmp_path}/run')).pid, flush=True); time.sleep(60)"
    (tmp_path / "c.yaml").write_text(to_yaml(heat(100_000)[0].config.to_dict()))
    parent = psutil.Popen([sys.executable, "-c", code], stdout=-1)
    child = psutil.Process(int(parent.stdout.readline()))
    while not Run(tmp_path / "run").last.exists():
        assert child.is_running()
        time.sleep(0.05)
    parent.kill()
    parent.communicate()
    assert psutil.wait_procs([child], timeout=20)[1] == []
