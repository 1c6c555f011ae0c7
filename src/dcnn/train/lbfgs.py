"""Quasi-Newton methods on one set of points at a time: L-BFGS, and the self-scaled Broyden update with a full matrix.

torch's own L-BFGS drops pairs with yᵀs below 1e-10, as all are at losses near 1e-7. All tests here are relative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from dcnn.train.line_search import strong_wolfe

EPS = 1e-14  # a pair is used if yᵀs > EPS |y| |s|


class QuasiNewton(torch.optim.Optimizer):
    """`iterations` steps x ← x + t d on one set of points, d = −H ∇f, t by a strong Wolfe line search.

    H is remembered from call to call, but no pair (s, y) is made across two calls: its gradients would be those of
    different points. A call that does not end in finite weights is taken back.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float = 1.0, iterations: int = 20, **options: Any) -> None:
        super().__init__(list(parameters), {"lr": lr, "iterations": iterations, **options})
        self._all: list[Tensor] = self.param_groups[0]["params"]

    # ---- what a method states -------------------------------------------------------------------------------------

    def direction(self, memory: dict[str, Any], gradient: Tensor) -> Tensor:
        """−H ∇f."""
        raise NotImplementedError

    def learn(self, memory: dict[str, Any], s: Tensor, y: Tensor, curved: Tensor) -> None:
        """A pair of a step s and its change of the gradient y; `curved` is H⁻¹ s."""
        raise NotImplementedError

    # ---- the iteration --------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Tensor]) -> Any:  # type: ignore[override]
        group, memory = self.param_groups[0], self.state[self._all[0]]
        weights = begin = torch.cat([p.detach().reshape(-1) for p in self._all])

        def evaluate(at: Tensor) -> tuple[Tensor, Tensor]:
            assign(self._all, at)
            with torch.enable_grad():
                loss = closure()
            slopes = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._all]
            return loss.detach(), torch.cat([g.detach().reshape(-1) for g in slopes])

        loss, gradient = evaluate(weights)
        first = loss
        for _ in range(group["iterations"]):
            fresh = not memory
            d = -gradient if fresh else self.direction(memory, gradient)
            slope = float(gradient @ d)
            if not slope < 0:
                if fresh:
                    break
                memory.clear()
                continue
            length = min(1.0, 1 / float(gradient.abs().sum())) * group["lr"] if fresh else group["lr"]
            seen: dict[float, tuple[Tensor, Tensor]] = {}

            def along(t: float, d: Tensor = d, weights: Tensor = weights, seen: Any = seen) -> tuple[float, float]:
                seen[t] = evaluate(weights + t * d)
                return float(seen[t][0]), float(seen[t][1] @ d)

            trial = strong_wolfe(along, length, float(loss), slope)
            if trial.length == 0:  # nothing is lower along d: start again from the gradient, or stop
                if fresh:
                    break
                memory.clear()
                continue
            loss, new = seen[trial.length]
            s, y = trial.length * d, new - gradient
            if float(y @ s) > EPS * float(y.norm() * s.norm()):
                self.learn(memory, s, y, -trial.length * gradient)
            weights, gradient = weights + s, new
        assign(self._all, weights)
        if not (math.isfinite(float(loss)) and bool(torch.isfinite(weights).all())):
            assign(self._all, begin)
            memory.clear()
        return first


@torch.no_grad()
def assign(parameters: list[Tensor], flat: Tensor) -> None:
    """One long vector as the values of all parameters."""
    parts = torch.split(flat, [p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))


class LBFGS(QuasiNewton):
    """H from the last `history` pairs by the two-loop recursion, started from yᵀs/yᵀy times the unit matrix."""

    def __init__(self, parameters: Iterable[Tensor], lr: float = 1.0, iterations: int = 20, history: int = 50) -> None:
        super().__init__(parameters, lr, iterations, history=history)

    def direction(self, memory: dict[str, Any], gradient: Tensor) -> Tensor:
        q: Tensor = -gradient
        pairs = list(zip(memory["s"], memory["y"], memory["rho"], strict=True))
        alphas = []
        for s, y, rho in reversed(pairs):
            alphas.append(rho * (s @ q))
            q = q - alphas[-1] * y
        s, y, rho = pairs[-1]
        q = q / (rho * (y @ y))
        for (s, y, rho), alpha in zip(pairs, reversed(alphas), strict=True):
            q = q + (alpha - rho * (y @ q)) * s
        return q

    def learn(self, memory: dict[str, Any], s: Tensor, y: Tensor, curved: Tensor) -> None:
        for name, value in (("s", s), ("y", y), ("rho", 1 / (y @ s))):
            kept = memory.setdefault(name, [])
            kept.append(value)
            del kept[: -self.param_groups[0]["history"]]


class Broyden(QuasiNewton):
    """H as a full matrix with the self-scaled Broyden update (Al-Baali 1998; for PINNs Urbán et al., arXiv 2405.04230).

    H ← (H − Hy yᵀH / yᵀHy + φ v vᵀ)/τ + s sᵀ/yᵀs with v = √(yᵀHy) (s/yᵀs − Hy/yᵀHy); the matrix has (weights)² entries.
    """

    def direction(self, memory: dict[str, Any], gradient: Tensor) -> Tensor:
        H: Tensor = memory["H"]
        return -(H @ gradient)

    def learn(self, memory: dict[str, Any], s: Tensor, y: Tensor, curved: Tensor) -> None:
        ys = float(y @ s)
        if "H" not in memory:  # the first matrix has the size of the first pair
            memory["H"] = torch.eye(len(s), dtype=s.dtype, device=s.device) * (ys / float(y @ y))
            curved = s * (float(y @ y) / ys)
        H: Tensor = memory["H"]
        Hy = H @ y
        yHy, sBs, n = float(y @ Hy), float(s @ curved), len(s)
        h, b = yHy / ys, sBs / ys
        a = max(h * b - 1, 1e-16)
        rho = min(1.0, h * (1 - math.sqrt(a / (a + 1))))
        theta = max((rho - 1) / a, min(1 / rho, (1 - b) / b))
        sigma = max(1 + theta * a, 1e-16)
        root = min(1.0, 1 / b) * sigma ** (-1 / max(1, n - 1))
        tau = min(root, min(1.0, 1 / b) / theta) if theta > 0 else min(root, sigma)
        phi = (1 - theta) / (1 + a * theta)
        v = math.sqrt(yHy) * (s / ys - Hy / yHy)
        H.addr_(Hy, Hy, alpha=-1 / yHy).addr_(v, v, alpha=phi).div_(tau).addr_(s, s, alpha=1 / ys)
