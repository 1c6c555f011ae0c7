"""`dcnn solve`: whole files, continued after an interruption, never half of one."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest
import typer
import yaml
from typer.testing import CliRunner

from dcnn.cli.solve import read_settings, solve
from dcnn.errors import InputError
from dcnn.pde import pdebench, problems
from dcnn.pde.generate import generate

app = typer.Typer()
app.command()(solve)


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("advection", (16, 201)),
        ("compressible", (16, 101)),
        ("diffusion_reaction", (16, 16, 101)),
        ("heat", (16, 101)),
        ("poisson", (16, 16)),
    ],
)
def test_every_layout(tmp_path, name, shape):
    path = tmp_path / "out.hdf5"
    output = run(name, "-o", path, "--samples", 2, "--seed", 5, "--resolution", 16)
    assert "2 samples" in output
    assert list(tmp_path.iterdir()) == [path]
    with pdebench.open(path) as samples:
        assert len(samples) == 2
        for i, sample in enumerate(samples):
            assert sample.shape == shape
            expected = problems.get(name, sample=i, seed=5, resolution=16).solve()
            for field, values in expected.fields.items():
                np.testing.assert_allclose(sample.fields[field].reshape(values.shape), values, rtol=1e-5, atol=1e-6)


def test_the_file_states_its_settings(tmp_path):
    run("advection", "-o", tmp_path / "a.hdf5", "--resolution", 16, "beta=0.4")
    with h5py.File(tmp_path / "a.hdf5") as file:
        assert file.attrs["beta"] == 0.4
        assert file["tensor"].shape == (1, 201, 16)
        assert file["tensor"].dtype == np.float32
        assert file["t-coordinate"].shape == (202,)
    assert problems.get("advection", data=tmp_path / "a.hdf5", beta=0.4).solution().shape == (16, 201)
    run("diffusion_reaction", "-o", tmp_path / "b.h5", "--resolution", 16, "--samples", 2, "--seed", 3)
    with h5py.File(tmp_path / "b.h5") as file:
        config = yaml.safe_load(file["0001"].attrs["config"])
    assert config["sim"]["seed"] == 4
    assert (config["sim"]["Du"], config["sim"]["x_left"], config["sim"]["tdim"]) == (1e-3, -1.0, 101)


def test_json_and_a_second_run_that_has_nothing_to_do(tmp_path):
    arguments = ("heat", "-o", tmp_path / "a.hdf5", "--resolution", 16, "--json")
    first = json.loads(run(*arguments).splitlines()[-1])
    written = (tmp_path / "a.hdf5").stat().st_mtime_ns
    assert json.loads(run(*arguments).splitlines()[-1]) == first
    assert first["samples"] == 1
    assert (tmp_path / "a.hdf5").stat().st_mtime_ns == written


def test_a_terminal_shows_a_bar(tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = CliRunner().invoke(app, ["heat", "-o", str(tmp_path / "a.hdf5"), "--resolution", "16", "--samples", "2"])
    assert "solving heat" in result.stderr
    assert "2/2" in result.stderr
    assert result.stdout.startswith("wrote")


def test_an_interrupted_run_continues(tmp_path, monkeypatch):
    problem, path = problems.get("heat", resolution=16), tmp_path / "a.hdf5"
    for ready in generate(problem, path, samples=4):
        if ready == 2:
            break
    assert not path.exists()
    (tmp_path / "a.hdf5.parts/000001.npz").write_bytes(b"half")  # as if killed while writing on a bad disk
    solved = []
    original = type(problem).solve
    monkeypatch.setattr(type(problem), "solve", lambda self: solved.append(self.sample) or original(self))
    assert list(generate(problem, path, samples=4)) == [0, 1, 2, 3, 4]
    assert solved == [1, 2, 3]
    with pdebench.open(path) as samples:
        np.testing.assert_allclose(
            samples[1].fields["u"], problem.with_settings(sample=1).solve().fields["u"], atol=1e-6
        )
    assert not (tmp_path / "a.hdf5.parts").exists()


def test_a_killed_process_leaves_no_file_and_continues(tmp_path):
    script = """
        import os, signal
        from dcnn.pde import problems
        from dcnn.pde.generate import generate
        for ready in generate(problems.get("heat", resolution=16), "a.hdf5", samples=3):
            if ready == 2:
                os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=False)
    assert killed.returncode == -9
    assert [p.name for p in tmp_path.iterdir()] == ["a.hdf5.parts"]
    run("heat", "-o", tmp_path / "a.hdf5", "--samples", 3, "--resolution", 16)
    with pdebench.open(tmp_path / "a.hdf5") as samples:
        assert len(samples) == 3


OWN = """
from dcnn.pde import Problem

class Mine(Problem):
    coordinates, fields = ("x", "t"), ("u",)
    domain = {"x": (0, 1), "t": (0, 1)}

    def residuals(self, u):
        return {"f": u.t + u.x}
"""


def test_own_problem_and_example(tmp_path):
    example = Path(__file__).parents[2] / "examples/my_problem.py"
    run(example, "-o", tmp_path / "a.hdf5", "r=1.5")
    with pdebench.open(tmp_path / "a.hdf5") as samples:
        assert samples.attributes["r"] == 1.5
        assert samples[0].shape == (256, 101)
    problem = problems.load_file(example)
    start = problem.soft_conditions()[0]
    assert start.terms(problem) == ("initial_u",)
    assert len(example.read_text().splitlines()) < 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heet",), "unknown problem 'heet'; did you mean 'heat'"),
        (("heat", "alpha"), "'alpha' is not of the form key=value"),
        (("heat", "=3"), "'=3' is not of the form key=value"),
        (("heat", "alpa=3"), "unknown parameter of heat 'alpa'; did you mean 'alpha'"),
        (("heat", "--samples", 0), "samples must be at least 1, found 0"),
        (("heat", "--resolution", 3), "resolution must be a whole number of at least 8 cells, found 3"),
        (("navier_stokes", "--samples", 2), "navier_stokes has one solution only"),
        (("own.py",), "own.py: no known solution"),
        (("missing.py",), "missing.py: no such problem file"),
    ],
)
def test_wrong_use(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(InputError, match=re.escape(message)):
        run(*arguments, "-o", tmp_path / "a.hdf5")
    assert not list(tmp_path.glob("a.hdf5*"))


def test_other_settings_are_not_mixed(tmp_path):
    problem, path = problems.get("heat", resolution=16), tmp_path / "a.hdf5"
    running = generate(problem, path, samples=2)
    assert [next(running), next(running)] == [0, 1]
    with pytest.raises(
        InputError, match=r"a.hdf5.parts exists and was made with other settings: alpha 0.05 \(now 1.0\)"
    ):
        next(generate(problem.with_settings(alpha=1.0), path, samples=2))
    assert list(generate(problem, path, samples=2)) == [0, 1, 2]
    with pytest.raises(InputError, match=r"a.hdf5 exists .* samples 2 \(now 3\)"):
        next(generate(problem, path, samples=3))
    (tmp_path / "b.hdf5").write_text("something else")
    with pytest.raises(InputError, match=r"b.hdf5 exists"):
        next(generate(problem, tmp_path / "b.hdf5"))


def test_a_solution_that_blew_up_is_not_written(tmp_path, monkeypatch):
    problem = problems.get("heat", resolution=16)
    bad = problem.solve()
    bad.fields["u"][0, 0] = np.inf
    monkeypatch.setattr(type(problem), "solve", lambda self: bad)
    with pytest.raises(ArithmeticError, match="heat: sample 0: the solution of 'u' is not finite"):
        list(generate(problem, tmp_path / "a.hdf5"))


def test_settings_are_read_as_yaml():
    assert read_settings(["beta=1e-1", "data=a.hdf5", "sample=3"]) == {"beta": "1e-1", "data": "a.hdf5", "sample": 3}
    assert problems.get("advection", beta="1e-1").parameters == {"beta": 0.1}
