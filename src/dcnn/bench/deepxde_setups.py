"""The paper's three PDE set-ups written for DeepXDE as its scripts have them: what ours is checked and timed against.

Data (initial values, measured points) come from the problem of ours, so that both sides train on the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dcnn.pde.conditions import Condition, Periodic, Sampled
from dcnn.pde.deepxde import load_deepxde
from dcnn.pde.problem import Problem

dde = load_deepxde()

Residual = Callable[[Tensor, Tensor], Tensor]


def advection(problem: Problem) -> Residual:
    """u_t + β u_x."""

    def residual(x: Tensor, y: Tensor) -> Tensor:
        return dde.grad.jacobian(y, x, i=0, j=1) + problem.parameters["beta"] * dde.grad.jacobian(y, x, i=0, j=0)

    return residual


def compressible(problem: Problem, flux_x: Callable[..., Tensor] | None = None) -> Residual:
    """Mass, momentum (with −p_x) and energy, added up; `flux_x` is the x-derivative of the energy flux."""
    flux_x = flux_x or energy_flux_x

    def residual(x: Tensor, y: Tensor) -> Tensor:
        rho, v, p = y[:, 0:1], y[:, 1:2], y[:, 2:3]  # (N, 1) each
        energy = p / (problem.parameters["gamma"] - 1) + 0.5 * rho * v**2
        mass = dde.grad.jacobian(y, x, i=0, j=1) + dde.grad.jacobian(rho * v, x, i=0, j=0)
        v_x, v_t = (dde.grad.jacobian(y, x, i=1, j=j) for j in (0, 1))
        momentum = rho * (v_t + v * v_x) - dde.grad.jacobian(y, x, i=2, j=0)
        return mass + momentum + dde.grad.jacobian(energy, x, i=0, j=1) + flux_x(x, v, energy, p)

    return residual


def energy_flux_x(x: Tensor, v: Tensor, energy: Tensor, p: Tensor) -> Tensor:
    """∂/∂x_k Σ_ij v_j (E_i + p_j) in O(N); all arguments (N, 1) but x.

    The scripts build the matrix itself; with it, their 16,000 rows would take gigabytes and minutes a step.
    """
    v_x, energy_x, product_x = (dde.grad.jacobian(f, x, i=0, j=0) for f in (v, energy, v * p))
    return v_x * energy.sum() + energy_x * v.sum() + len(v) * product_x


def energy_flux_x_as_published(x: Tensor, v: Tensor, energy: Tensor, p: Tensor) -> Tensor:
    """The same by the scripts' own N × N product, for few points."""
    flux = v * (energy.unsqueeze(1) + p)  # (N, N, 1)
    return torch.autograd.grad(flux.sum(), x, create_graph=True)[0][:, 0:1]


def diffusion_reaction(problem: Problem) -> Residual:
    """Both equations, added up."""
    k, d_u, d_v = (problem.parameters[name] for name in ("k", "D_u", "D_v"))

    def residual(x: Tensor, y: Tensor) -> Tensor:
        u, v = y[:, 0:1], y[:, 1:2]  # (N, 1)
        u_xx, u_yy = (dde.grad.hessian(y, x, component=0, i=i, j=i) for i in (0, 1))
        v_xx, v_yy = (dde.grad.hessian(y, x, component=1, i=i, j=i) for i in (0, 1))
        u_t, v_t = (dde.grad.jacobian(y, x, i=i, j=2) for i in (0, 1))
        activator = u_t - d_u * (u_xx + u_yy) - (u - u**3 - k - v)
        inhibitor = v_t - d_v * (v_xx + v_yy) - (u - v)
        return activator + inhibitor

    return residual


RESIDUALS: dict[str, Callable[..., Residual]] = {
    "advection": advection,
    "compressible": compressible,
    "diffusion_reaction": diffusion_reaction,
}


def time_pde(problem: Problem, conditions: Sequence[Condition], residual: Residual, **counts: int) -> Any:
    """DeepXDE's data object: its own points, its own boundary conditions, the `conditions` of ours in their order."""
    space = [problem.domain[c] for c in problem.coordinates if c != "t"]
    if len(space) == 1:
        geometry = dde.geometry.Interval(*space[0])
    else:
        geometry = dde.geometry.Rectangle(*(list(corner) for corner in zip(*space, strict=True)))
    domain = dde.geometry.GeometryXTime(geometry, dde.geometry.TimeDomain(*problem.domain["t"]))
    translated = [_translated(problem, condition, domain) for condition in conditions]
    return dde.data.TimePDE(domain, residual, translated, **counts)


def _translated(problem: Problem, condition: Condition, domain: Any) -> Any:
    ((_, column, _),) = condition.targets(problem)
    if isinstance(condition, Sampled):
        (values,) = condition.data.values()
        return dde.icbc.PointSetBC(condition.points.numpy(), values.numpy()[:, None], component=column)
    if isinstance(condition, Periodic):
        axis = problem.axis(condition.along)
        return dde.icbc.PeriodicBC(domain, axis, lambda x, on_boundary: on_boundary, component=column)
    return dde.icbc.NeumannBC(domain, lambda x: np.zeros((len(x), 1)), lambda x, on_boundary: on_boundary, column)
