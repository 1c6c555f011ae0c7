"""Intervals of learnt parameters; solutions in MATLAB files; two solitons."""

import numpy as np
import pytest
import torch
from scipy.io import savemat
from scipy.stats import t as student

from dcnn.errors import InputError
from dcnn.pde import problems
from dcnn.pde.build import build_pde
from dcnn.results import fit_config, resolve


def test_the_interval_is_that_of_least_squares_on_exact_solutions(tmp_path):
    """The network must follow the parameter as the solution does: ∂u/∂α of the sine series, at the measured points."""
    config = {
        "kind": "pde",
        "problem": {"name": "heat", "parameters": {"measured": 40, "alpha": 0.06}, "trainable": ["alpha"]},
        "network": {"width": 12, "depth": 2},
        "points": {"interior": 256},
        "loss": {"weights": {"data": 1.0}},  # the more they weigh, the more of their noise is fitted
        "training": {"steps": 20, "stages": [{"optimizer": "gauss_newton", "dtype": "float64", "inner_iterations": 1}]},
        "steps_per_epoch": 10,
    }
    test = fit_config(config, tmp_path / "run").test
    problem = problems.get("heat", measured=40)
    seen = problem.measurement()
    x, t = seen.points.numpy().T
    waves = [(1.0, 1), (0.5, 3)]
    rate = [a * np.sin(n * np.pi * x) * np.exp(-0.05 * (n * np.pi) ** 2 * t) for a, n in waves]
    slope = -sum(u * (n * np.pi) ** 2 * t for u, (_, n) in zip(rate, waves, strict=True))
    left = seen.data["u"].numpy() - sum(rate)
    best = slope @ left / (slope @ slope)  # one step of Gauss and Newton from the true α
    half = student.ppf(0.975, 39) * np.sqrt(np.sum((left - best * slope) ** 2) / 39 / (slope @ slope))
    assert test["parameter_alpha_interval"] == pytest.approx(half, rel=0.1)
    assert test["parameter_alpha"] == pytest.approx(0.05 + best, abs=0.3 * half)


def test_a_matlab_file_is_a_reference(tmp_path):
    path, x, t = tmp_path / "seen.mat", np.linspace(-1, 1, 9), np.linspace(0, 1, 5)
    savemat(path, {"x": x[:, None], "tt": t[None], "uu": np.outer(x, t)})
    task = build_pde(resolve("heat", "best", [f"problem.reference={path}", "points.interior=8"]))
    assert task.reference.shape == (9, 5)
    np.testing.assert_array_equal(task.reference.fields["u"], np.outer(x, t))
    with pytest.raises(InputError, match=r"seen.mat: holds x, tt, uu; .* one field of x and t"):
        build_pde(resolve("helmholtz", "best", [f"problem.reference={path}"]))
    path.write_bytes(b"MATLAB")
    with pytest.raises(InputError, match=r"seen.mat: not a readable MATLAB file"):
        build_pde(resolve("heat", "best", [f"problem.reference={path}"]))


def test_two_solitons_are_the_logarithm_of_hirota_and_solve_the_equation():
    problem = problems.get("kdv")
    points = problem.stretch(torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    x, t = (c.clone().requires_grad_() for c in points.unbind(1))
    e, f = torch.exp(x + 2 - t), torch.exp(1.5 * (x + 6 - 2.25 * t))
    found = torch.log(1 + e + f + e * f / 25)
    for _ in range(2):
        (found,) = torch.autograd.grad(found.sum(), x, create_graph=True)
    u = problem.solitons(x, t)
    torch.testing.assert_close(u, 2 * found, atol=1e-12, rtol=1e-9)
    partials = {"": u, "t": torch.autograd.grad(u.sum(), t, create_graph=True)[0]}
    for letters in ("x", "xx", "xxx"):
        (partials[letters],) = torch.autograd.grad(partials[letters[1:]].sum(), x, create_graph=True)
    residual = problem.evaluate({k: v.detach()[:, None] for k, v in partials.items()}, points)["kdv"]
    assert float(residual.abs().max()) < 1e-11
    assert bool(problem.solitons(*problem.stretch(torch.tensor([[0.0, 1.0], [1.0, 0.0]])).T).isfinite().all())
    torch.testing.assert_close(problem.slope(x, t).detach(), partials["x"].detach())
