"""GELU, exact and in its tanh form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.polynomial import Polynomial
from numpy.polynomial.hermite_e import herme2poly
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from dcnn.activations.base import Activation
from dcnn.activations.dilogarithm import horner, terms_for
from dcnn.activations.logistic import logistic_derivative

_DENSITY0 = 1 / math.sqrt(2 * math.pi)


@cache
def _hermite_difference(n: int) -> tuple[float, ...]:
    """Coefficients of (−1)ⁿ⁻¹(Heₙ − Heₙ₋₂)."""
    series = [0.0] * (n + 1)
    series[n], series[n - 2] = 1.0, -1.0
    return tuple((-1.0) ** (n - 1) * herme2poly(series))


class GELU(Activation):
    """σ(x) = x·Φ(x), Φ the distribution function of N(0, 1) and φ = Φ′ its density."""

    name = "gelu"
    smoothness = math.inf
    vanishing_order = None

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        density = torch.exp(x * x * -0.5).mul_(_DENSITY0) if max(orders) > 0 else x
        return [F.gelu(x) if n == 0 else self._slope(x, density, n) for n in orders]

    def _slope(self, x: Tensor, density: Tensor, n: int) -> Tensor:
        if n == 1:
            return torch.special.ndtr(x).addcmul_(x, density)
        # σ⁽ⁿ⁾ = (−1)ⁿ⁻¹ (Heₙ − Heₙ₋₂) φ; beyond 40 the density is 0 and only the powers could overflow
        return horner(x.clamp(-40.0, 40.0), _hermite_difference(n)).mul_(density)

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        if n == 1:
            return torch.ops.aten.gelu_backward(factor, x)
        return super()._scaled(factor, x, n)

    def _integral(self, x: Tensor) -> Tensor:
        """½(x²Φ − ∫₀ˣ t²φ dt)."""
        square = x * x
        terms = terms_for(x.dtype, 18, 10)
        series = [_DENSITY0 * (-0.5) ** k / (math.factorial(k) * (2 * k + 3)) for k in range(terms)]
        near = horner(square, series).mul_(square).mul_(x)
        density = torch.exp(square * -0.5).mul_(_DENSITY0)
        far = torch.erf(x * math.sqrt(0.5)).mul_(0.5).sub_(x * density)
        return torch.special.ndtr(x).mul_(square).sub_(torch.where(x.abs() < 1, near, far)).mul_(0.5)


_KAPPA = 0.044715
_SCALE = 2 * math.sqrt(2 / math.pi)
_LAST, _STEP = 8.0, 0.125  # beyond 8 the integrand of the table is below 1e-18
_NODES, _WEIGHTS = (
    tuple(((v + shift) / 2).tolist()) for v, shift in zip(leggauss(5), (1.0, 0.0), strict=True)
)


@cache
def _inner(n: int) -> tuple[Polynomial, ...]:
    """Bₙₖ(x), k = 0…n, in (s∘v)⁽ⁿ⁾ = Σₖ s⁽ᵏ⁾(v)·Bₙₖ, for v = 2√(2/π)·(x + κx³)."""
    if n == 0:
        return (Polynomial([1.0]),)
    last = (*_inner(n - 1), Polynomial([0.0]))
    slope = Polynomial([_SCALE, 0.0, 3 * _KAPPA * _SCALE])
    return tuple(b.deriv() + (last[k - 1] * slope if k else 0) for k, b in enumerate(last))


@cache
def _tail_table() -> tuple[float, ...]:
    """∫₀ᵃ t·s(−v(t)) dt at a = 0, 1/8, …, 8."""
    left = np.arange(0.0, _LAST, _STEP)[:, None]
    t = left + _STEP * np.array(_NODES)
    pieces = (t / (1 + np.exp(_SCALE * (t + _KAPPA * t**3)))) @ np.array(_WEIGHTS) * _STEP
    return (0.0, *np.cumsum(pieces).tolist())


class GELUTanh(Activation):
    """σ(x) = x·s(v), v = 2√(2/π)·(x + 0.044715 x³): ``gelu(approximate="tanh")``."""

    name = "gelu_tanh"
    smoothness = math.inf
    vanishing_order = None

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        near = x.clamp(-12.0, 12.0)  # s(v) is 0 or 1 beyond, and the powers of x stay finite
        s = torch.sigmoid(torch.addcmul(near, near * near, near, value=_KAPPA).mul_(_SCALE))
        return [F.gelu(x, approximate="tanh") if n == 0 else self._slope(near, s, n) for n in orders]

    def _slope(self, x: Tensor, s: Tensor, n: int) -> Tensor:
        total = torch.zeros_like(x)
        outer, inner = _inner(n), _inner(n - 1)
        for k in range(n + 1):
            factor = outer[k] * Polynomial([0.0, 1.0]) + (
                n * inner[k] if k < n else 0
            )  # (x·h)⁽ⁿ⁾ = x·h⁽ⁿ⁾ + n·h⁽ⁿ⁻¹⁾
            total.addcmul_(logistic_derivative(s, k), horner(x, factor.coef.tolist()))
        return total

    def _integral(self, x: Tensor) -> Tensor:
        """½max(0, x)² ∓ ∫₀^|x| t·s(−v) dt: the tail from the nearest entry of a table, by Gauss–Legendre."""
        a = x.abs().clamp(max=_LAST)
        index = torch.round(a / _STEP)
        start = index * _STEP
        width = a - start
        tail = torch.zeros_like(x)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            t = start + width * node
            v = torch.addcmul(t, t * t, t, value=_KAPPA).mul_(-_SCALE)
            tail.add_(torch.sigmoid(v).mul_(t), alpha=weight)
        table = torch.tensor(_tail_table(), dtype=x.dtype, device=x.device)
        tail.mul_(width).add_(table[index.long()])
        return torch.relu(x).square_().mul_(0.5).sub_(tail.mul_(torch.sign(x)))
