"""From a configuration to a trained PDE network: accuracy, inverse problems, users' files, PDEBench files, resuming."""

import json
import textwrap

import pytest
import torch
import typer
from typer.testing import CliRunner

from dcnn.cli.train import train
from dcnn.errors import InputError
from dcnn.pde import pdebench, problems, recipes
from dcnn.pde.build import build_pde
from dcnn.results import TrainedRun, resolve, resume_run
from dcnn.results import fit_config as fit
from dcnn.train.console import Console

LBFGS = {"optimizer": "lbfgs", "learning_rate": 1.0, "dtype": "float64", "inner_iterations": 10}
QUICK = {
    "kind": "pde",
    "network": {"width": 16, "depth": 2, "scale_inputs": True},
    "points": {"interior": 200, "boundary": 50, "initial": 50},
    "training": {"steps": 12, "stages": [LBFGS], "select": "last"},
    "steps_per_epoch": 4,
}

USER_FILE = textwrap.dedent(
    """
    import torch
    from dcnn.pde import Dirichlet, Initial, Problem

    class Cooling(Problem):
        name = "cooling"
        coordinates = ("x", "t")
        domain = {"x": (0.0, 1.0), "t": (0.0, 1.0)}
        fields = ("u",)
        parameters = {"alpha": 0.1}

        def residuals(self, u):
            return {"heat": u.t - self.alpha * u.xx}

        def conditions(self):
            return [Initial(u=lambda x: torch.sin(torch.pi * x)), Dirichlet(u=0.0, on="x")]
    """
)


@pytest.mark.parametrize("network", [{"hard": False}, {}, {"random_features": 12, "random_features_scale": 0.3}])
def test_heat_is_solved_to_one_percent(tmp_path, network):
    stages = [{"optimizer": "gauss_newton", "dtype": "float64", "inner_iterations": 1}]
    config = {
        **QUICK,
        "problem": {"name": "heat"},
        "network": {"width": 10, "depth": 2, "scale_inputs": True, **network},
        "points": {"interior": 150, "boundary": 30, "initial": 30},
        "training": {"steps": 24, "stages": stages, "select": "last"},
        "steps_per_epoch": 6,
    }
    result = fit(config, tmp_path / "heat")
    assert result.status == "finished"
    assert result.test["nrmse"] < 0.01 < 0.4 < result.test["constant_nrmse"]
    assert result.test["collapsed"] is False
    assert result.test["residual_rms_heat"] < 0.1
    assert set(result.test["terms"]) >= {"heat"}


def test_irelu_as_in_the_paper_dies_on_advection_and_is_reported_so(tmp_path):
    config = {
        "kind": "pde",
        "recipe": "paper",
        "problem": {"name": "advection"},
        "training": {"steps": 50},
        "points": {"interior": 200, "boundary": 50, "initial": 100},
    }
    test = fit(config, tmp_path / "dead").test
    assert test["nrmse"] > 0.95 * test["constant_nrmse"]


def test_an_unknown_speed_is_found_from_the_profile_later_on(tmp_path):
    problem = tmp_path / "measured.py"
    problem.write_text(
        textwrap.dedent(
            """
            import numpy as np, torch
            from dcnn.pde import Initial, Periodic, Problem, Sampled

            class Measured(Problem):
                name, coordinates, fields = "measured", ("x", "t"), ("u",)
                domain = {"x": (0.0, 1.0), "t": (0.0, 1.0)}
                parameters, periodic = {"speed": 0.1}, {"x": 1.0}

                def residuals(self, u):
                    return {"transport": u.t + self.speed * u.x}

                def conditions(self):
                    x = np.linspace(0, 1, 40, endpoint=False)
                    later = np.stack([x, np.ones(40)], 1)
                    seen = Sampled(later, u=np.sin(2 * np.pi * (x - 0.3)))
                    return [Initial(u=lambda x: torch.sin(2 * torch.pi * x)), Periodic("x"), seen]
            """
        )
    )
    config = {
        **QUICK,
        "problem": {"name": str(problem), "trainable": ["speed"]},
        "network": {"width": 16, "depth": 2, "modes": 1, "scale_inputs": True},
        "training": {"steps": 20, "stages": [LBFGS], "select": "last"},
    }
    result = fit(config, tmp_path / "run")
    assert result.test["parameter_speed"] == pytest.approx(0.3, abs=2e-3)
    assert "nrmse" not in result.test  # there is no solution to compare with
    assert result.test["terms"]["data_u"] < 1e-4


def test_a_users_file_is_trained_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cooling.py").write_text(USER_FILE)
    arguments = ["train", "cooling.py", "training.steps=3", "network.width=8", "problem.parameters.alpha=0.2", "--json"]
    app = typer.Typer()
    app.command("train")(train)
    app.command("other")(lambda: None)  # with one command alone, typer takes no name
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    result = json.loads(shown.stdout)
    assert result["data"] == "cooling.py"
    assert result["test"]["residual_rms_heat"] > 0
    assert TrainedRun.open("runs/cooling-best-seed0").config.problem.parameters == {"alpha": 0.2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("u.xx", "w.xx"), r"bad.py.*line.*NameError.*'w'"),
        (("Initial(u=", "Initial(w="), r"bad.py.*condition on 'w': no such field"),
        (('parameters = {"alpha": 0.1}', "parameters = {}"), r"bad.py.*alpha"),
    ],
)
def test_mistakes_in_a_users_file_are_named(tmp_path, change, message):
    path = tmp_path / "bad.py"
    path.write_text(USER_FILE.replace(*change))
    with pytest.raises(InputError, match=message):
        build_pde(resolve(str(path), "best", []))


def test_a_pdebench_file_is_initial_data_and_reference(tmp_path):
    path = tmp_path / "samples.hdf5"
    known = [problems.get("advection", sample=s, resolution=32).reference() for s in range(2)]
    pdebench.write(path, known, {"beta": 0.1})
    values = ["problem.sample=1", f"problem.reference={path}", "points.interior=64"]
    task = build_pde(resolve("advection", "original", values))
    assert torch.equal(torch.as_tensor(task.reference.fields["u"]), torch.as_tensor(known[1].fields["u"]).float())
    initial = next(p for g in next(iter(task.batches(0))).groups for p in g.placed if p.condition.name == "initial")
    torch.testing.assert_close(initial.prepared["u"], torch.as_tensor(known[1].fields["u"][:, 0]).float())


def test_a_file_is_the_reference_of_a_problem_that_reads_none(tmp_path):
    path = tmp_path / "heat.hdf5"
    pdebench.write(path, [problems.get("heat", resolution=16).reference()], {})
    task = build_pde(resolve("heat", "best", [f"problem.reference={path}"]))
    assert task.reference.shape[0] == 16
    with pytest.raises(InputError, match="holds u, but"):
        build_pde(resolve("compressible", "best", [f"problem.reference={path}"]))


def test_windows_of_time_can_be_resumed_and_give_the_same_network(tmp_path):
    config = {
        **QUICK,
        "problem": {"name": "advection"},
        "network": {"width": 8, "depth": 2, "modes": 2, "hard": False, "scale_inputs": True},
        "points": {"interior": 64, "time_windows": 2, "resample_every": 1},
        "training": {"epochs": 4, "stages": [{**LBFGS, "inner_iterations": 3}], "select": "last"},
    }
    whole = fit(config, tmp_path / "whole")
    assert whole.values["steps"] == 16
    with pytest.raises(StopError):
        fit(config, tmp_path / "stopped", console=StopsAfter(3))
    assert resume_run(tmp_path / "stopped").test == whole.test


def test_the_moving_average_of_a_window_begins_with_the_window(tmp_path):
    config = {
        **QUICK,
        "problem": {"name": "advection", "parameters": {"resolution": 16}},
        "network": {"width": 8, "depth": 2, "modes": 2},
        "points": {"interior": 64, "time_windows": 2},
        "training": {"epochs": 4, "ema": 0.999, "stages": [{"learning_rate": 1e-4}], "select": "last"},
    }
    fit(config, tmp_path / "run")
    first, second = (n.layers[1].weight.detach() for n in TrainedRun.open(tmp_path / "run").network.networks)
    assert float((first - second).abs().max()) < 0.005  # 0.0004; with random weights in the average 0.025


class StopError(Exception):
    """Stands in for a killed process."""


class StopsAfter(Console):
    def __init__(self, epoch):
        self.epoch = epoch

    def row(self, row, status):
        if row["epoch"] == self.epoch:
            raise StopError


# ---- recipes ----


@pytest.mark.parametrize("name", ["original", "paper", "best"])
@pytest.mark.parametrize("problem", problems.NAMES)
def test_every_recipe_builds_for_every_problem(name, problem):
    config = resolve(problem, name, ["problem.parameters.resolution=16"] if problem != "channel" else [])
    task = build_pde(config)
    residuals = task.residuals(task.network, next(iter(task.batches(0))))
    assert set(residuals) == {term.name for term in task.terms}
    assert config.training.minutes is not None


def test_the_recipes_of_the_paper_are_its_network_and_its_optimiser():
    for name, activation in (("original", "tanh"), ("paper", "irelu")):
        config = resolve("advection", name, [])
        assert (config.network.width, config.network.depth, config.network.activation) == (40, 6, activation)
        assert [s.optimizer for s in config.training.stages] == ["adam"]
        assert config.training.stages[0].learning_rate == 1e-3
        assert config.network.initialisation == "glorot"
    assert recipes.recipe("best", "compressible") != recipes.recipe("best", "poisson")


def test_an_unknown_recipe_is_named():
    with pytest.raises(InputError, match="unknown recipe 'bset'; did you mean 'best'"):
        recipes.recipe("bset", "advection")
