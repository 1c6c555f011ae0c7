"""Ray clusters: joined by address, with a token, and addresses where nothing answers."""

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from dcnn.errors import InputError
from dcnn.grid import cluster, engine
from dcnn.train import Run
from dcnn.train.text import to_yaml

#: Ray leaves the logs of a head with a client's port open.
OPEN_LOGS = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")


def silent_port():
    """A port that accepts connections and never says a word."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def head(tmp_path, monkeypatch):
    """The address of a cluster as `ray start` makes one, in processes of its own and with a token in our home."""
    port = free_port()
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
def test_a_cluster_with_a_token_is_joined_at_its_address(head, heat, tmp_path):
    (tmp_path / "cell.yaml").write_text(to_yaml(heat(1)[0].config.to_dict()))
    program = f"""
from dcnn.grid import engine
from dcnn.grid.cells import GridCell
from dcnn.results import as_config
cell = GridCell({{"name": "joined"}}, as_config("cell.yaml"))
print(engine.run([cell], "grid", on="ray:{head}")[0]["status"])
"""
    plain = {name: value for name, value in os.environ.items() if name != "RAY_AUTH_MODE"}
    joined = subprocess.run(
        [sys.executable, "-c", program], env=plain, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert joined.stdout.split()[-1:] == ["finished"], joined.stderr[-2000:]
    assert len(list((tmp_path / "grid").glob("joined-*/result.json"))) == 1


@pytest.fixture
def two_nodes(tmp_path, monkeypatch):
    """Two raylets of one CPU each, with working folders "first" and "second"; (cluster, second node, client's port)."""
    from ray.cluster_utils import Cluster

    for name, value in cluster._ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    room = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    here, client = Path.cwd(), free_port()
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    raylets = Cluster()
    os.chdir(folders[0])
    raylets.add_node(**room, include_dashboard=False, ray_client_server_port=client)
    os.chdir(folders[1])
    second = raylets.add_node(**room)
    os.chdir(here)
    raylets.wait_for_nodes()
    yield raylets, second, client
    raylets.shutdown()


def worker_of(folder):
    """The process that holds the cell in `folder` at present; None before it has one."""
    output = folder / "output.txt"
    found = re.findall(r"^worker (\d+)", output.read_text(), re.MULTILINE) if output.exists() else []
    return psutil.Process(int(found[-1])) if found and psutil.pid_exists(int(found[-1])) else None


@pytest.mark.slow
@OPEN_LOGS
def test_a_node_that_is_taken_away_leaves_its_cells_to_the_other(two_nodes, twins, tmp_path):
    raylets, second, _ = two_nodes
    cells, lost = twins(100, "a", "b", "c"), []
    grid = tmp_path / "grid"

    def watch(running, done):
        for cell in cells if not lost else ():
            worker = worker_of(grid / cell.name)
            begun = (grid / cell.name / "checkpoints" / "last.ckpt").exists()
            if worker is not None and begun and Path(worker.cwd()).name == "second":
                lost.append(cell.name)
                raylets.remove_node(second, allow_graceful=False)
                break

    runs = engine.run(cells, f"file://{grid}", on=f"ray:{raylets.address}", watch=watch)
    assert len(lost) == 1
    assert [(run["status"], run["steps"]) for run in runs] == 3 * [("finished", 1000)]
    assert runs[0]["test"] == runs[1]["test"] == runs[2]["test"]
    assert "resumed after epoch" in (grid / lost[0] / "log.txt").read_text()
    losses = [[row["train_loss"] for row in Run(grid / cell.name).metrics()] for cell in cells]
    assert len(losses[0]) == 100
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.slow
@OPEN_LOGS
def test_a_cluster_is_used_through_its_client_port(two_nodes, twins, tmp_path):
    cells = twins(20, "a", "b")
    runs = engine.run(cells, f"file://{tmp_path}/grid", on=f"ray://127.0.0.1:{two_nodes[2]}")
    assert [(run["status"], run["steps"]) for run in runs] == 2 * [("finished", 200)]
    assert engine.run(cells, f"file://{tmp_path}/grid", on="local") == runs


@pytest.mark.parametrize("on", ["ray:127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_an_address_without_ray_is_named_in_the_message(on, heat, tmp_path, monkeypatch):
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


def test_ray_address_of_the_environment_is_joined(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    assert cluster.address_of("ray") == "10.0.0.7:6379"
    monkeypatch.delenv("RAY_ADDRESS")
    assert cluster.address_of("ray") is None


def test_a_missing_ray_says_what_to_install(heat, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'dcnn\[ray\]'"):
        engine.run(heat(1), tmp_path, on="ray")
