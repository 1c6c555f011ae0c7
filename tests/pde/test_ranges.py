"""A parameter that is given as a range: an input of the network, with the error over the range."""

import json
import math

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import dcnn
from dcnn.cli import assemble
from dcnn.errors import InputError
from dcnn.pde import Problem, problems
from dcnn.pde.boundary import Dirichlet, General, Robin
from dcnn.pde.build import build_pde
from dcnn.pde.integrals import Integral
from dcnn.pde.solution_errors import errors_over
from dcnn.results import TrainedRun
from dcnn.results import parse as validate

RANGE = [0.02, 0.1]
SMALL = {
    "kind": "pde",
    "problem": {"name": "heat", "parameters": {"alpha": RANGE, "resolution": 16}},
    "network": {"width": 8, "depth": 2},
    "points": {"interior": 64, "boundary": 16, "initial": 16},
    "training": {"steps": 2, "stages": [{"optimizer": "adam"}]},
}


def small(**problem):
    torch.manual_seed(0)
    found = build_pde(validate({**SMALL, "problem": {**SMALL["problem"], **problem}}))
    found.cast(torch.float64)
    return found


def command(*arguments):
    shown = CliRunner().invoke(assemble(arguments[0]), list(arguments))
    assert shown.exit_code == 0, shown.output
    return shown.stdout


class Exact(torch.nn.Module):
    """sin(πx) exp(−απ²t) + ½ sin(3πx) exp(−9απ²t), with an error that grows with α."""

    def __init__(self, problem, error=0.0):
        super().__init__()
        self.problem, self.error = problem, error
        self.weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, rows):
        alpha, x, t = rows.unbind(1)
        waves = [
            a * torch.sin(n * math.pi * x) * torch.exp(-alpha * (n * math.pi) ** 2 * t) for n, a in ((1, 1.0), (3, 0.5))
        ]
        return (sum(waves) * (1 + self.error * alpha))[:, None] + self.weight


def test_residuals_have_the_value_of_the_parameter_at_each_point():
    found = small()
    batch = next(iter(found.batches(0)))
    points = batch.interior.clone()
    assert points.shape == (64, 3)
    assert RANGE[0] < points[:, 0].min() < points[:, 0].max() < RANGE[1]
    partials = dcnn.derivatives.partials(found.network, points, ["t", "xx"], ("alpha", "x", "t"), "nested")
    expected = (partials["t"] - points[:, :1] * partials["xx"])[:, 0]
    torch.testing.assert_close(found.residuals(found.network, batch)["heat"], expected)
    linear = found.linearise(found.network, batch)["heat"]  # Gauss–Newton's rows
    torch.testing.assert_close(linear[0], expected)


def test_conditions_are_not_put_on_ends_of_the_range():
    found = small()
    walls = next(c for c in found.conditions if c.name == "dirichlet")
    assert walls.parts(found.problem) == 2
    points = walls.place(found.problem, torch.rand(50, 3, dtype=torch.float64), 1)
    assert (points[:, 1] == 1).all()
    assert len(points[:, 0].unique()) == 50


def test_the_error_is_taken_at_five_values_against_the_solution_of_each():
    problem = problems.get("heat", alpha=RANGE, resolution=16)
    reference = problem.solution()
    assert list(reference.grid) == ["alpha", "x", "t"]
    assert reference.shape == (5, 16, 101)
    for n, alpha in enumerate(np.linspace(*RANGE, 5)):
        own = problems.get("heat", alpha=alpha, resolution=16).solution().fields["u"]
        np.testing.assert_array_equal(reference.fields["u"][n], own)
    found = errors_over(Exact(problem, error=0.5), reference, problem.ranges)
    expected = {f"alpha={alpha:.6g}": 0.5 * alpha for alpha in np.linspace(*RANGE, 5)}
    assert found["by_parameter"] == pytest.approx(expected, rel=1e-9)
    assert found["nrmse"] == pytest.approx(0.5 * np.mean(RANGE))


def test_several_ranges_are_crossed():
    problem = problems.get("kdv", k1=(0.8, 1.0), k2=(1.4, 1.5), resolution=16)
    assert problem.coordinates == ("k1", "k2", "x", "t")
    reference = problem.solution()
    assert reference.shape == (3, 3, 16, 101)
    own = problems.get("kdv", k1=0.8, k2=1.5, resolution=16).solution()
    np.testing.assert_array_equal(reference.fields["u"][0, 2], own.fields["u"])


class Warmed(Problem):
    coordinates, fields, domain = ("x",), ("u",), {"x": (0.0, 1.0)}
    parameters = {"a": (1.0, 2.0), "level": 3.0}

    def residuals(self, u, a):
        return {"equation": u.xx - self.a * a, "flux": (self.a * u.x).x - self.a * u.xx}

    def conditions(self):
        return [
            Dirichlet(u=lambda a: self.a + self.level, on="x-"),
            Robin(u=0.0, a=lambda a: a, on="x+"),
            General(lambda u, normal: self.a * normal.slope(u), on="x+", name="general"),
            Integral(lambda u: u / self.a, equals=lambda a: a, points=4, times=8),
        ]


def test_conditions_of_every_kind_have_the_value_of_the_parameter():
    problem = Warmed()
    problem.check_posed()
    points = torch.rand(6, 2, dtype=torch.float64) + torch.tensor([1.0, 0.0])
    a = points[:, 0]
    partials = {k: torch.full((6, 1), v, dtype=torch.float64) for k, v in {"": 2.0, "x": 3.0, "xx": 5.0}.items()}
    residuals = problem.evaluate(partials, points)
    torch.testing.assert_close(residuals["equation"], 5 - a**2)
    torch.testing.assert_close(residuals["flux"], 0 * a)
    wall, robin, general, integral = problem.conditions()
    points[:, 1] = 1.0
    found = {}
    for condition in (wall, robin, general):
        found |= condition.residuals(problem, partials, condition.prepare(problem, points))
    torch.testing.assert_close(found["dirichlet_u"], 2 - (a + 3))
    torch.testing.assert_close(found["robin_u"], 3 + 2 * a)
    torch.testing.assert_close(found["general"], 3 * a)
    places = integral.place(problem, points)
    values = {"": torch.ones(len(places), 1, dtype=torch.float64)}
    chosen = places.reshape(4, 8, 2)[0, :, 0]  # one value a row
    assert len(chosen.unique()) == 8
    found = integral.residuals(problem, values, integral.prepare(problem, places))["integral"]
    torch.testing.assert_close(found, 1 / chosen - chosen)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problems.get("heat", alpha=(0.1, 0.02)), r"range of alpha must be \(low, high\)"),
        (lambda: problems.get("heat", alpha=(0.1, 0.2, 0.3)), r"range of alpha must be \(low, high\)"),
        (lambda: problems.get("heat", alpha=(0.1, 0.2), trainable="alpha"), "trainable parameter of heat"),
        (lambda: problems.get("heat", alpha=(0.1, 0.2)).alpha, "a value only at points"),
        (lambda: small(regularise={"alpha": 0.05}), "changes a range"),
    ],
)
def test_what_a_range_cannot_be_is_said(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_the_command_line_trains_evaluates_predicts_and_shows_a_range(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["network.width=6", "network.depth=1", "training.steps=3", "problem.parameters.resolution=16"]
    command("train", "heat", "problem.parameters.alpha=[0.02,0.1]", *options, "-o", "run")
    test = json.loads((tmp_path / "run" / "result.json").read_text())["test"]
    assert [*test["by_parameter"]] == ["alpha=0.02", "alpha=0.04", "alpha=0.06", "alpha=0.08", "alpha=0.1"]
    assert test["nrmse"] == pytest.approx(np.mean([*test["by_parameter"].values()]))
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Error over the range of alpha" in page
    assert "nRMSE, alpha=0.04" in page

    again = json.loads(command("evaluate", "run", "--json"))["errors"]["by_parameter"]
    assert again == pytest.approx(test["by_parameter"])
    (tmp_path / "points.csv").write_text("alpha,x,t\n0.03,0.5,0.2\n0.09,0.5,0.2\n")
    command("predict", "run", "points.csv", "-o", "out.csv")
    written = np.genfromtxt("out.csv", delimiter=",", names=True)
    np.testing.assert_allclose(written["u"], TrainedRun.open("run").solution(alpha=[0.03, 0.09], x=0.5, t=0.2))

    command("solve", "heat", "alpha=0.07", "--resolution", "16", "-o", "heat.hdf5")  # one value of the range
    found = json.loads(command("evaluate", "run", "--data", "heat.hdf5", "--json"))["errors"]
    assert [*found["by_parameter"]] == ["alpha=0.07"]
    assert found["nrmse"] == found["by_parameter"]["alpha=0.07"]


def test_a_problem_in_python_may_have_a_range(tmp_path):
    problem = problems.get("lotka_volterra", x0=(1.0, 3.0), resolution=31)
    settings = {"network": {"width": 6}, "points": {"interior": 32}}
    result = dcnn.fit(problem, tmp_path / "run", steps=2, settings=settings)
    start = result.solution(x0=np.array([1.0, 3.0]), t=0.0)
    np.testing.assert_allclose(start["x"], [1.0, 3.0], atol=1e-6)
    np.testing.assert_allclose(start["y"], 1.0, atol=1e-6)
    assert len(result.test["by_parameter"]) == 5
