"""A solved PDE on a grid, at points of a file, and as a file of torch's."""

import json

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from dcnn.cli.export import export
from dcnn.cli.predict import predict
from dcnn.errors import InputError
from dcnn.results import TrainedRun, fit_config

app = typer.Typer()
app.command()(predict)
app.command()(export)
SIZES = {"points": {"interior": 16, "boundary": 8, "initial": 8}, "training": {"steps": 2, "accelerator": "cpu"}}
PROBLEM = """
from dcnn.pde import *

class Decay(Problem):
    name = "decay"
    coordinates = ("t",)
    fields = ("u",)
    domain = {"t": (0.0, 1.0)}

    def residuals(self, u):
        return {"decay": u.t + u}

    def conditions(self):
        return [Initial(u=1.0)]
"""


@pytest.fixture(scope="module")
def heat(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "heat"
    fit_config({"problem": {"name": "heat"}, **SIZES}, folder)
    return folder


def command(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_grid_of_the_domain(heat, tmp_path):
    about = json.loads(command("predict", heat, "grid", "-o", tmp_path / "u.npz", "--json"))
    assert about["points"] == 101**2
    found, solution = np.load(tmp_path / "u.npz"), TrainedRun.open(heat).solution
    assert found["u"].shape == (101, 101)
    np.testing.assert_allclose(found["u"], solution(t=found["t"], x=found["x"]), rtol=1e-6, atol=1e-9)


def test_points_of_a_table(heat, tmp_path):
    (tmp_path / "points.csv").write_text("x,t,note\n0.5,0.1,1\n0.25,0.2,2\n")
    command("predict", heat, tmp_path / "points.csv", "-o", tmp_path / "u.csv")
    lines = (tmp_path / "u.csv").read_text().splitlines()
    assert sorted(lines[0].split(",")) == ["t", "u", "x"]
    assert len(lines) == 3


def test_a_missing_column_is_named(heat, tmp_path):
    (tmp_path / "points.csv").write_text("x\n0.5\n")
    with pytest.raises(InputError, match="no column t; it holds x"):
        command("predict", heat, tmp_path / "points.csv", "-o", tmp_path / "u.csv")
    assert not (tmp_path / "u.csv").exists()


def test_points_that_are_no_numbers_are_refused_and_those_outside_warned_about(heat, tmp_path):
    (tmp_path / "points.csv").write_text("x,t\n0.5,0.1\nnan,0.1\n")
    with pytest.raises(InputError, match="x is NaN or infinite in row 1"):
        command("predict", heat, tmp_path / "points.csv", "-o", tmp_path / "u.csv")
    (tmp_path / "points.csv").write_text("x,t\n0.5,0.1\n7,0.1\n")
    with pytest.warns(UserWarning, match=r"1 points have x outside of \[0, 1\]"):
        command("predict", heat, tmp_path / "points.csv", "-o", tmp_path / "u.csv")


def test_a_problem_of_ones_own_asks_for_trust(tmp_path):
    (tmp_path / "decay.py").write_text(PROBLEM)
    fit_config({"problem": {"name": str(tmp_path / "decay.py")}, **SIZES}, tmp_path / "run")
    words = ("predict", tmp_path / "run", "grid", "-o", tmp_path / "u.csv")
    with pytest.raises(InputError, match="--trust"):
        command(*words)
    command(*words, "--trust")
    assert len((tmp_path / "u.csv").read_text().splitlines()) == 102


def test_an_exported_solution_needs_torch_alone(heat, tmp_path):
    command("export", heat, "-o", tmp_path / "heat.pt2")
    solution = TrainedRun.open(heat).solution
    points = torch.rand(7, 2, dtype=next(solution.network.parameters()).dtype)
    found = torch.export.load(tmp_path / "heat.pt2").module()(points)
    np.testing.assert_allclose(found.detach().numpy()[:, 0], solution(points.numpy()), rtol=1e-5, atol=1e-7)
