"""Quasi-Newton and Gauss–Newton: quadratics, Rosenbrock's valley, tiny losses, exact resume."""

import copy

import pytest
import torch

from dcnn.train import gauss_newton
from dcnn.train.gauss_newton import GaussNewton, jacobian
from dcnn.train.lbfgs import LBFGS, Broyden
from dcnn.train.line_search import strong_wolfe

DIAGONAL = torch.logspace(0, 4, 12, dtype=torch.float64)


def quadratic(x):
    """Residuals whose squares are a quadratic of condition 10⁴ with its minimum, 0, at 1."""
    return DIAGONAL.sqrt() * (x - 1)


def rosenbrock(x):
    return torch.cat([10 * (x[1:] - x[:-1] ** 2), 1 - x[:-1]])


class Search:
    """A function of residuals being minimised by one of the methods."""

    def __init__(self, residuals, start, make, factor=1.0):
        self.x = torch.nn.Parameter(start.clone())
        self.residuals, self.factor = residuals, factor
        self.optimizer = make([self.x])

    def value(self):
        return float(self.residuals(self.x.detach()).square().sum())

    def _loss(self):
        self.optimizer.zero_grad()
        loss = self.factor * self.residuals(self.x).square().sum()
        loss.backward()
        return loss

    def _linearised(self, wanted):
        r = self.factor**0.5 * self.residuals(self.x)
        return r.detach(), jacobian(r, [self.x]) if wanted else None

    def run(self, steps):
        for _ in range(steps):
            self.optimizer.step(self._linearised if isinstance(self.optimizer, GaussNewton) else self._loss)
        return self


METHODS = {
    "lbfgs": lambda p: LBFGS(p, iterations=5),
    "broyden": lambda p: Broyden(p, iterations=5),
    "gauss_newton": lambda p: GaussNewton(p, iterations=5),
}
START = torch.linspace(-1.2, 1.0, 12, dtype=torch.float64)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("factor", [1.0, 1e-12])
def test_a_quadratic_of_any_size_is_solved(name, factor):
    assert Search(quadratic, START, METHODS[name], factor).run(20).value() < 1e-16


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("factor", [1.0, 1e-10])
def test_rosenbrocks_valley_is_followed_to_its_end(name, factor):
    search = Search(rosenbrock, torch.full((12,), -0.5, dtype=torch.float64), METHODS[name], factor).run(60)
    assert search.value() < 1e-16 or (search.x.detach() - 1).abs().max() < 1e-6, search.value()


@pytest.mark.parametrize("name", METHODS)
def test_a_loaded_state_goes_on_exactly(name):
    whole = Search(rosenbrock, START, METHODS[name]).run(3)
    state, x = copy.deepcopy(whole.optimizer.state_dict()), whole.x.detach().clone()
    whole.run(3)
    resumed = Search(rosenbrock, x, METHODS[name])
    resumed.optimizer.load_state_dict(state)
    assert torch.equal(resumed.run(3).x, whole.x)


@pytest.mark.parametrize("name", METHODS)
def test_an_overflow_is_taken_back(name):
    search = Search(lambda x: torch.exp(40 * x), torch.full((2,), 3.0, dtype=torch.float64), METHODS[name])
    before = search.value()
    search.run(3)
    assert torch.isfinite(search.x).all()
    assert search.value() <= before


def test_the_memory_of_lbfgs_is_limited():
    search = Search(rosenbrock, START, lambda p: LBFGS(p, iterations=10, history=4)).run(1)
    assert len(search.optimizer.state[search.x]["s"]) == 4


def test_a_linear_problem_takes_one_undamped_step():
    matrix = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    right = torch.arange(6.0, dtype=torch.float64)
    search = Search(
        lambda x: matrix @ x - right, torch.zeros(4, dtype=torch.float64), lambda p: GaussNewton(p, damping=1e-15)
    )
    exact = torch.linalg.lstsq(matrix, right[:, None]).solution[:, 0]
    torch.testing.assert_close(search.run(1).x.detach(), exact, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(300, 40), (40, 300), (300, 300)])
def test_all_ways_of_solving_agree(shape, monkeypatch):
    random = torch.Generator().manual_seed(0)
    J = torch.randn(shape, dtype=torch.float64, generator=random) * torch.logspace(0, -3, shape[1], dtype=torch.float64)
    r = torch.randn(shape[0], dtype=torch.float64, generator=random)
    exact = -torch.linalg.solve(J.T @ J + 1.0 * torch.eye(shape[1], dtype=torch.float64), J.T @ r)
    direct = -gauss_newton._solver(J)(1.0)(r)
    monkeypatch.setattr(gauss_newton, "LARGE", 1)
    monkeypatch.setattr(gauss_newton, "RANK", 20)
    iterative = -gauss_newton._solver(J)(1.0)(r)
    torch.testing.assert_close(direct, exact, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(iterative, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("first", [1e-6, 0.3, 1.0, 50.0])
@pytest.mark.parametrize("scale", [1.0, 1e-20])
def test_a_step_has_decrease_and_a_small_slope(first, scale):
    def f(t):
        return scale * ((t - 1) ** 4 + 0.1 * t), scale * (4 * (t - 1) ** 3 + 0.1)

    found = strong_wolfe(f, first, *f(0.0))
    assert found.value <= f(0.0)[0] + 1e-4 * found.length * f(0.0)[1]
    assert abs(found.slope) <= 0.9 * abs(f(0.0)[1])
