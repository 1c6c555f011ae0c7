"""Any network for a problem: modules that carry derivatives, modules that do not, networks of DeepXDE."""

import pytest
import torch
from torch import nn

import dcnn
from dcnn.errors import InputError
from dcnn.pde import Problem, from_deepxde, problems
from dcnn.pde.build import build_pde
from dcnn.pde.deepxde import load_deepxde
from dcnn.pde.own_network import OwnNetwork
from dcnn.results import TrainedRun, resolve

FEW = {"points": {"interior": 40}, "steps_per_epoch": 4}


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


class Unusual(nn.Module):
    """Sorts its hidden layer, which no Jet knows."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)).sort(dim=1).values)


@pytest.mark.parametrize(
    ("module", "taylor", "last"),
    [
        (lambda: nn.Sequential(nn.Linear(2, 8), Sine(), nn.Linear(8, 1)), True, "gauss_newton"),
        (Unusual, False, "lbfgs"),
    ],
)  # fmt: skip
def test_any_module_is_trained_and_is_the_solution(tmp_path, module, taylor, last):
    torch.manual_seed(0)
    mine = module()
    before = [p.detach().clone() for p in mine.parameters()]
    run = dcnn.fit(
        problems.get("poisson", resolution=16), tmp_path / "run", network=mine, steps=4 if taylor else 2, settings=FEW
    )
    assert isinstance(run.network, OwnNetwork)
    assert run.network.taylor is taylor
    assert run.config.training.stages[-1].optimizer == last
    assert run.config.network.module == type(mine).__qualname__
    assert any(not torch.equal(a.double(), b.double()) for a, b in zip(mine.parameters(), before, strict=True))
    x, y = torch.rand(2, 5, dtype=torch.float64)
    u = run.solution(x=x, y=y)
    expected = (x * (1 - x) * y * (1 - y)).to(run.network.unit) * mine(torch.stack([x, y], 1).to(run.network.unit))[
        :, 0
    ]
    torch.testing.assert_close(torch.as_tensor(u).reshape(-1).to(expected), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match=r"a module of yours, .*: give it"):
        _ = TrainedRun.open(tmp_path / "run").network


def test_derivatives_are_those_of_the_module_either_way():
    problem = problems.get("poisson")
    points = problem.stretch(torch.rand(6, 2, dtype=torch.float64))
    module = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    carried, nested = OwnNetwork(problem, module, hard=True).double(), OwnNetwork(problem, module, hard=True).double()
    nested.taylor = False
    found = [n.partials(n.at(points, ("x", "yy", "xy"))) for n in (carried, nested)]
    assert found[0].keys() == found[1].keys()
    torch.testing.assert_close(found[0], found[1])


def test_a_network_of_deepxde_goes_on_training(tmp_path):
    dde, problem = load_deepxde(), problems.get("poisson", resolution=16)
    ours = from_deepxde(dde.nn.FNN([2, 8, 8, 1], "tanh", "Glorot normal"), problem)
    run = dcnn.fit(problem, tmp_path / "run", network=ours, steps=16, settings=FEW)
    assert run.test["nrmse"] < 0.5 < run.test["constant_nrmse"]
    assert run.network is ours


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda: nn.Linear(3, 1), r"cannot take points \(3, 2\)"),
        (lambda: nn.Linear(2, 2), r"must give \(3, 1\) for 3 points, found \(3, 2\)"),
    ],
)
def test_modules_that_do_not_fit_are_refused(tmp_path, module, message):
    with pytest.raises(InputError, match=message):
        dcnn.fit(problems.get("poisson"), tmp_path / "run", network=module(), steps=1)
    with pytest.raises(InputError, match="goes with a PDE problem"):
        dcnn.fit({"kind": "atoms", "data": {"path": "demo"}}, tmp_path / "other", network=module(), steps=1)


# ---- what a run remembers --------------------------------------------------------------------------------------------


def test_what_auto_stood_for_is_in_the_configuration_of_the_run(tmp_path):
    """A run opened again has the network that was trained, even if the problem offers other constraints by then."""
    settings = {"points": {"interior": 30}, "network": {"width": 4, "depth": 1}}
    run = dcnn.fit(problems.get("heat", resolution=8), tmp_path / "run", steps=1, settings=settings)
    assert (run.config.network.hard, run.config.network.modes, run.config.network.features) == (True, 0, False)
    saved = TrainedRun.open(tmp_path / "run")
    assert saved.config.network == run.config.network
    assert saved.evaluate()["nrmse"] == pytest.approx(run.test["nrmse"], rel=1e-6)


def test_unknowns_are_shared_with_the_regularised_problem():
    settings = ["problem.regularise.k=0.02", "problem.trainable=[D_u]", "problem.parameters.resolution=8"]
    config = resolve("diffusion_reaction", "best", [*settings, "problem.parameters.initial=smooth"])
    given = [[0.1, 0.2, 0.5]]
    problem: Problem = problems.get("diffusion_reaction", resolution=8, initial="smooth", trainable="D_u")
    task = build_pde(config, problem=problem.with_data(given, u=[0.3]))
    assert task.problem is not task.truth
    assert (task.problem.parameters["k"], task.truth.parameters["k"]) == (0.02, 5e-3)
    assert task.problem.D_u is task.truth.D_u
    assert any(p is task.truth.D_u for p in task.network.parameters())
