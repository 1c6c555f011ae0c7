"""Gauss–Newton in the space of residuals, damped as Levenberg and Marquardt did: for losses that are sums of squares.

Curvature comes from the Jacobian J of all residuals r; no second derivative of a residual is needed. Of JᵀJ and JJᵀ the
smaller one is factorised; beyond `LARGE` rows conjugate gradients with a Nyström preconditioner solve instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.losses import Fixed
from dcnn.train.lbfgs import assign

LARGE = 5000
RANK, MOST_CG = 200, 200
TRIES = 12  # dampings in one step
REACH = 0.1  # of a step, where its curvature is measured

Linearised = tuple[Tensor, Tensor | None]  # r (M,) and, if asked for, J (M, weights)


class GaussNewton(torch.optim.Optimizer):
    """`iterations` steps on one set of points, δ = −(JᵀJ + λI)⁻¹ Jᵀr, from weights in float64.

    λ grows until a step lowers |r|², and shrinks by how well J had foretold it (Nielsen 1999). It is relative to the
    mean square of a column of J, so that it has no unit. A step is bent by what r does along it beyond J, measured at a
    tenth of it (geodesic acceleration, Transtrum and Sethna 2012), which lets λ become much smaller.
    """

    def __init__(self, parameters: Iterable[Tensor], iterations: int = 1, damping: float = 1e-3) -> None:
        super().__init__(list(parameters), {"lr": 1.0, "iterations": iterations, "damping": damping})
        self._all: list[Tensor] = self.param_groups[0]["params"]

    def step(self, closure: Callable[[bool], Linearised]) -> Any:  # type: ignore[override]
        """`closure(jacobian)` gives residuals whose squares add up to the loss, and J if `jacobian` is true."""
        group, memory = self.param_groups[0], self.state[self._all[0]]
        memory.setdefault("damping", group["damping"])
        memory.setdefault("growth", 2.0)
        first: Tensor | None = None
        for _ in range(group["iterations"]):
            r, J = closure(True)
            assert J is not None
            first = r @ r if first is None else first
            if not self._one_step(closure, memory, r, J):
                break
        return first

    def _one_step(self, closure: Callable[[bool], Linearised], memory: dict[str, Any], r: Tensor, J: Tensor) -> bool:
        weights = torch.cat([p.detach().reshape(-1) for p in self._all])
        loss, slope = float(r @ r), J.T @ r
        unit = float(J.square().sum()) / J.shape[1]
        if not (math.isfinite(unit) and unit > 0):
            return False
        factorise = _solver(J)
        for _ in range(TRIES):
            damping = memory["damping"] * unit
            solve = factorise(damping)
            delta = -solve(r)
            assign(self._all, weights + REACH * delta)
            curvature = ((closure(False)[0] - r) / REACH - J @ delta) * (2 / REACH)
            bend = -0.5 * solve(curvature)
            straight = not 2 * float(bend.norm()) <= 0.75 * float(delta.norm())  # NaN is no bend
            foretold = -float(delta @ slope) + damping * float(delta @ delta)  # of |r|² − |r + Jδ|²
            assign(self._all, weights + delta if straight else weights + delta + bend)
            new = closure(False)[0]
            gain = (loss - float(new @ new)) / foretold if foretold > 0 else -1.0
            if gain > 1e-4:  # NaN and infinite are refused, too
                memory["damping"] = max(memory["damping"] * max(0.1, 1 - (2 * gain - 1) ** 3), 1e-16)
                memory["growth"] = 2.0
                return True
            memory["damping"] = min(memory["damping"] * memory["growth"], 1e8)
            memory["growth"] *= 2
        assign(self._all, weights)
        memory["growth"] = 2.0
        return False


def _solver(J: Tensor) -> Callable[[float], Callable[[Tensor], Tensor]]:
    """damping -> (r -> (JᵀJ + damping I)⁻¹ Jᵀr), with what does not depend on the damping done once."""
    rows, columns = J.shape
    if min(rows, columns) > LARGE:
        sketch = _nystrom(J)
        return lambda damping: lambda r: _conjugate_gradients(J, J.T @ r, damping, sketch)
    wide = rows < columns
    gram = J @ J.T if wide else J.T @ J

    def factorise(damping: float) -> Callable[[Tensor], Tensor]:
        damped = gram.clone()
        damped.diagonal().add_(damping)
        factor, failed = torch.linalg.cholesky_ex(damped)
        if int(failed):  # damping below rounding
            return lambda r: torch.full_like(J[0], math.nan)
        if wide:
            return lambda r: J.T @ torch.cholesky_solve(r[:, None], factor)[:, 0]
        return lambda r: torch.cholesky_solve((J.T @ r)[:, None], factor)[:, 0]

    return factorise


def _nystrom(J: Tensor) -> tuple[Tensor, Tensor]:
    """(U, s) with JᵀJ ≈ U diag(s) Uᵀ of rank `RANK` (Frangella, Tropp and Udell 2021)."""
    random = torch.Generator(J.device).manual_seed(0)
    start = torch.randn(J.shape[1], RANK, generator=random, dtype=J.dtype, device=J.device)
    start = torch.linalg.qr(start).Q
    image = J.T @ (J @ start)
    shift = 1e-14 * float(image.norm())
    image = image + shift * start
    factor = torch.linalg.cholesky(start.T @ image + shift * torch.eye(RANK, dtype=J.dtype, device=J.device))
    left = torch.linalg.solve_triangular(factor, image.T, upper=False).T
    U, s, _ = torch.linalg.svd(left, full_matrices=False)
    return U, (s.square() - shift).clamp_min(0)


def _conjugate_gradients(J: Tensor, right: Tensor, damping: float, sketch: tuple[Tensor, Tensor]) -> Tensor:
    """(JᵀJ + damping I) δ = right, to a relative residual of 1e-8 or `MOST_CG` iterations."""
    U, s = sketch
    scale = (float(s[-1]) + damping) / (s + damping) - 1

    def precondition(x: Tensor) -> Tensor:
        return x + U @ (scale * (U.T @ x))

    delta, rest = torch.zeros_like(right), right
    z = p = precondition(rest)
    size = float(rest @ z)
    for _ in range(MOST_CG):
        image = J.T @ (J @ p) + damping * p
        length = size / float(p @ image)
        delta, rest = delta + length * p, rest - length * image
        if float(rest.norm()) < 1e-8 * float(right.norm()):
            break
        z = precondition(rest)
        size, before = float(rest @ z), size
        p = z + size / before * p
    return delta


def must_be_squares(task: Any, stage: Any, world: int) -> None:
    """Raise an InputError if the loss of a stage is not a sum of squares with fixed weights in float64."""
    wrong = [term.name for term in task.terms if term.norm != "l2"]
    if wrong or not isinstance(task.weighting, Fixed):
        found = wrong or type(task.weighting).__name__
        raise InputError(f"gauss_newton needs fixed weights and the norm l2; found {found}")
    if stage.dtype != "float64" or world > 1:
        raise InputError("gauss_newton needs dtype: float64 in its stage, and one process")


def weighted_residuals(
    task: Any, module: Any, batch: Any, parameters: Sequence[Tensor], step: int, wanted: bool
) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
    """r with |r|² = Σ weight · mean square of a term, J if `wanted`, and the value of every term."""
    weights = {term.name: term.weight_at(step) for term in task.terms}
    if wanted and hasattr(task, "linearise"):
        found: dict[str, tuple[Tensor, Tensor]] = task.linearise(task.network, batch)
    else:
        with torch.set_grad_enabled(wanted):
            residuals = {name: r.reshape(-1) for name, r in module(batch).items()}
        found = {name: (r.detach(), jacobian(r, parameters) if wanted else r) for name, r in residuals.items()}
    roots = {name: math.sqrt(weights[name] / len(r)) for name, (r, _) in found.items()}
    r = torch.cat([roots[name] * r for name, (r, _) in found.items()])
    J = torch.cat([roots[name] * J for name, (_, J) in found.items()]) if wanted else None
    return r, J, {name: r.square().mean() for name, (r, _) in found.items()}


def jacobian(residuals: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """J (M, weights), a backward pass a row: for tasks that cannot linearise their residuals faster themselves."""
    rows = []
    for residual in residuals.unbind():
        found = torch.autograd.grad(residual, parameters, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([g.reshape(-1) for g in found]))
    return torch.stack(rows)
