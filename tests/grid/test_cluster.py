"""Ray clusters: joined by address, with a token, and addresses where nothing answers."""

import os
import re
import socket
import subprocess
import sys
import tempfile

import pytest

from dcnn.errors import InputError
from dcnn.grid import cluster, engine
from dcnn.train.text import to_yaml


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
