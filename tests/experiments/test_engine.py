"""Engines: a real two-worker Ray, a worker that is killed, folders behind URLs, addresses that do not answer."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from dcnn.errors import DcnnError, InputError
from dcnn.experiments import cluster, engine
from dcnn.experiments.compare import cells_of
from dcnn.experiments.grid import Cell
from dcnn.experiments.ray_engine import needs
from dcnn.experiments.store import Store, here, paced
from dcnn.experiments.sweep import define, run_sweep
from dcnn.train import Run
from dcnn.train.config import to_yaml
from dcnn.train.fit import as_config, resolve

TINY = ["network.width=4", "network.depth=1", "points.interior=8", "points.boundary=4", "points.initial=4"]
TINY += ["training.stages=[{optimizer: adam}]", "training.accelerator=cpu", "steps_per_epoch=10"]


def heat(epochs, seeds=1, more=()):
    return cells_of("heat", ["best"], [None], seeds, f"training.epochs={epochs}", [*TINY, *more])


@pytest.fixture(scope="module")
def two_workers():
    """A Ray of two workers; gone without a trace afterwards."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with cluster.connected("ray", cpus=2) as ray:
        yield ray
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    psutil.wait_procs(left, timeout=10)
    assert [p.name() for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_killed_worker_s_cell_goes_on_elsewhere_to_the_same_result(two_workers, tmp_path):
    """Two cells of the same seed; the worker of the first is killed while it trains, its scratch folder with it."""
    twins = [Cell({"name": name}, heat(120)[0].config) for name in ("killed", "left-alone")]
    url, killed, seen = f"file://{tmp_path}/grid", [], []

    def watch(running, done):
        seen.append(done)
        folder = tmp_path / "grid" / "killed"
        if not killed and (folder / "checkpoints" / "last.ckpt").exists():
            killed.append(int(re.search(r"Ray worker (\d+)", (folder / "output.txt").read_text())[1]))
            os.kill(killed[0], signal.SIGKILL)

    first, second = engine.run(twins, url, on="ray", jobs=2, watch=watch)
    assert (first["status"], first["steps"], seen[-1]) == ("finished", 1200, 2)
    assert first["test"] == second["test"]
    run, alone = Run(tmp_path / "grid" / "killed"), Run(tmp_path / "grid" / "left-alone")
    resumed = int(re.search(r"resumed after epoch (\d+)", (run.folder / "log.txt").read_text())[1])
    assert 0 < resumed < 120
    assert [row["epoch"] for row in run.metrics()] == list(range(1, 121))
    assert [row["train_loss"] for row in run.metrics()] == [row["train_loss"] for row in alone.metrics()]
    workers = re.findall(r"Ray worker (\d+)", (run.folder / "output.txt").read_text())
    assert len(set(workers)) == 2
    assert here(url) / "killed" == Path(first["folder"])
    assert not psutil.pid_exists(killed[0])


def test_ray_keeps_finished_cells_and_says_why_one_cannot_run(two_workers, tmp_path):
    missing = as_config({"kind": "atoms", "data": {"path": "/no/such/file.npz"}, "training": {"epochs": 1}})
    with pytest.raises(InputError, match=r"missing: .*no/such/file\.npz: no such file"):
        engine.run([*heat(2), Cell({"name": "missing"}, missing)], tmp_path, on="ray")
    runs = engine.run(heat(2), tmp_path, on="ray")
    assert [(run["folder"], run["status"]) for run in runs] == [(str(tmp_path / "best-0"), "finished")]
    stamp = (tmp_path / "best-0" / "result.json").stat().st_mtime_ns
    assert engine.run(heat(2), tmp_path, on="local") == engine.run(heat(2), tmp_path, on="ray") == runs
    assert (tmp_path / "best-0" / "result.json").stat().st_mtime_ns == stamp


@pytest.mark.slow
def test_a_cell_that_dies_on_ray_leaves_the_others_their_results(two_workers, tmp_path):
    """A folder where its result is to be written: the process dies of it, every time."""
    (tmp_path / "dies" / "result.json.partial").mkdir(parents=True)
    (config,) = [cell.config for cell in heat(2)]
    with pytest.raises(DcnnError, match=rf"1 of 2 runs died 3 times.*\n{tmp_path}/dies: "):
        engine.run([Cell({"name": name}, config) for name in ("dies", "lives")], tmp_path, on="ray")
    assert Run(tmp_path / "lives").result().values["status"] == "finished"


def test_a_sweep_ranks_its_trials_by_validation_and_writes_the_best(two_workers, tmp_path):
    pairs = [*TINY, "training.stages.0.learning_rate=loguniform(1e-5,1e-1)", "network.activation=choice(tanh,sin)"]
    sweep = define("heat", pairs, budget="training.epochs=4")
    seen = []
    rows = run_sweep(sweep, tmp_path, 3, watch=lambda running, done: seen.append(done))
    assert [row["score"] for row in rows] == sorted(row["score"] for row in rows)
    assert {row["trial"] for row in rows} == {"trial-00000", "trial-00001", "trial-00002"}
    assert {row["status"] for row in rows} <= {"finished", "stopped"}
    assert seen[-1] == 3
    for row in rows:
        losses = [line["validation_loss"] for line in Run(row["folder"]).metrics()]
        assert row["score"] == pytest.approx(min(losses), rel=1e-6)
    best = as_config(tmp_path / "best.yaml")
    assert best.training.stages[0].learning_rate == rows[0]["sample"]["training.stages.0.learning_rate"]
    assert best == Run(rows[0]["folder"]).config()
    with pytest.raises(InputError, match="holds a sweep already"):
        run_sweep(sweep, tmp_path, 3)


def silent_port():
    """A port that accepts connections and never says a word."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


@pytest.fixture
def head(tmp_path, monkeypatch):
    """The address of a cluster as `ray start` makes one, in processes of its own and with a token in our home."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    monkeypatch.setenv("HOME", str(tmp_path))
    options = [f"--port={port}", "--num-cpus=1", "--include-dashboard=false", "--block"]
    with tempfile.TemporaryDirectory(prefix="ray") as short:  # sockets have short paths
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--temp-dir={short}", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if "Ray runtime started" in line:
                    break
            yield f"127.0.0.1:{port}"
            process.terminate()
            process.communicate()


@pytest.mark.slow
def test_a_cluster_with_a_token_is_joined_at_its_address(head, tmp_path):
    (tmp_path / "cell.yaml").write_text(to_yaml(heat(1)[0].config))
    program = f"""
from dcnn.experiments import engine
from dcnn.experiments.grid import Cell
from dcnn.train.fit import as_config
cell = Cell({{"name": "joined"}}, as_config("cell.yaml"))
print(engine.run([cell], "grid", on="ray:{head}")[0]["status"])
"""
    plain = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    joined = subprocess.run(
        [sys.executable, "-c", program], env=plain, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert joined.stdout.split()[-1:] == ["finished"], joined.stderr[-2000:]
    assert (tmp_path / "grid" / "joined" / "result.json").exists()


@pytest.mark.parametrize("on", ["ray:127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_without_ray_is_named_in_the_message(on, tmp_path, monkeypatch):
    pytest.importorskip("ray").shutdown()
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with silent_port() as listener:
        address = on.format(listener.getsockname()[1])
        with pytest.raises(InputError, match=re.escape(address.removeprefix("ray:").removeprefix("//"))):
            engine.run(heat(1), tmp_path, on=address)
    with pytest.raises(InputError, match=rf"{re.escape(address.split(':', 1)[1])}.*refused"):
        engine.run(heat(1), tmp_path, on=address)


def test_the_wait_for_an_address_is_less_than_half_a_minute():
    assert 2 * cluster.PATIENCE < 30


@pytest.mark.parametrize("on", ["slurm", "rayon", "ray:head", "ray://head"])
def test_other_engines_are_refused(on, tmp_path):
    with pytest.raises(InputError, match=f"--on {on}: .*ray://"):
        engine.run(heat(1), tmp_path, on=on)


def test_ray_address_of_the_environment_is_joined(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    assert cluster.address_of("ray") == "10.0.0.7:6379"
    monkeypatch.delenv("RAY_ADDRESS")
    assert cluster.address_of("ray") is None


def test_a_missing_ray_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'dcnn\[ray\]'"):
        engine.run(heat(1), tmp_path, on="ray")


@pytest.mark.parametrize(
    ("overrides", "resources"),
    [
        ([], {"num_cpus": 1, "num_gpus": 0}),
        (["training.threads=3", "training.devices=2"], {"num_cpus": 6, "num_gpus": 0}),
        (["training.devices=2", "training.accelerator=gpu"], {"num_cpus": 2, "num_gpus": 2}),
    ],
)
def test_a_cell_asks_for_what_its_configuration_uses(overrides, resources):
    assert needs(resolve("heat", "best", overrides)) == resources


def test_the_local_engine_copies_to_a_url_and_goes_on_from_it(tmp_path):
    runs = engine.run(heat(3), "memory://grid/a", jobs=1)
    assert Store("memory://grid/a").names_with("result.json") == {"best-0"}
    page = here("memory://grid/a") / "page.html"
    page.write_text("page")
    assert engine.publish("memory://grid/a", page) == ["memory://grid/a/page.html"]
    with pytest.raises(InputError, match="memory of one process"):
        engine.run(heat(3), "memory://grid/a", on="ray")
    page.unlink()
    (here("memory://grid/a") / "best-0" / "result.json").unlink()
    assert engine.run(heat(3), "memory://grid/a", jobs=1) == runs  # from the store: nothing is trained


def test_files_go_up_when_they_changed_and_closing_ones_last(tmp_path, monkeypatch):
    run, store, order = tmp_path / "run", Store(f"file://{tmp_path}/store"), []
    write = store._write
    monkeypatch.setattr(
        store, "_write", lambda path, content: (order.append(path.split("/")[-1]), write(path, content))
    )
    (run / "checkpoints").mkdir(parents=True)
    for name in ("result.json", "checkpoints/last.ckpt", "checkpoints/best.ckpt", "metrics.csv", "x.partial"):
        (run / name).write_text(name)
    store.up(run, "a")
    assert sorted(order[:2]) == ["best.ckpt", "metrics.csv"]
    assert order[2:] == ["last.ckpt", "result.json"]
    (run / "metrics.csv").write_text("more rows")
    store.up(run, "a")
    assert order[4:] == ["metrics.csv"]
    store.down("a", tmp_path / "copy")
    assert (tmp_path / "copy" / "metrics.csv").read_text() == "more rows"
    assert (tmp_path / "copy" / "checkpoints" / "last.ckpt").read_text() == "checkpoints/last.ckpt"
    store.down("never-begun", tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_an_unknown_protocol_is_refused():
    with pytest.raises(InputError, match=r"nosuch://bucket: .*nosuch"):
        Store("nosuch://bucket")


def test_paced_actions_are_not_repeated_at_once():
    done = []
    act = paced(lambda: done.append(1))
    act()
    act()
    assert done == [1]


def test_an_interrupted_grid_says_how_to_go_on(tmp_path):
    def watch(running, done):
        raise KeyboardInterrupt

    with pytest.raises(DcnnError, match=r"0 of 1 runs are finished in .*, and the same command goes on"):
        engine.run(heat(10_000), tmp_path, watch=watch)
    assert not [p for p in psutil.Process().children() if "tethered" in " ".join(p.cmdline())]


def test_training_ends_with_the_process_that_started_it(tmp_path):
    """The parent is killed: its training process must not go on alone."""
    code = f"from dcnn.experiments.process import start; from pathlib import Path; import time\n\
print(start(open('{tmp_path}/c.yaml').read(), Path('{tmp_path}/run')).pid, flush=True); time.sleep(60)"
    (tmp_path / "c.yaml").write_text(to_yaml(heat(100_000)[0].config))
    parent = psutil.Popen([sys.executable, "-c", code], stdout=-1)
    child = psutil.Process(int(parent.stdout.readline()))
    while not Run(tmp_path / "run").last.exists():
        assert child.is_running()
        time.sleep(0.05)
    parent.kill()
    parent.communicate()
    assert psutil.wait_procs([child], timeout=20)[1] == []
