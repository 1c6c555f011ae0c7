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

from dcnn.activations.activation import Activation
from dcnn.activations.logistic import Logistic
from dcnn.activations.pieces import horner, join, ones, taylor

_DENSITY0 = 1 / math.sqrt(2 * math.pi)
_SQRT_HALF = math.sqrt(0.5)


@cache
def _hermite_difference(n: int) -> tuple[float, ...]:
    """Coefficients of (−1)ⁿ⁻¹(Heₙ − Heₙ₋₂)."""
    series = [0.0] * (n + 1)
    series[n], series[n - 2] = 1.0, -1.0
    return tuple((-1.0) ** (n - 1) * herme2poly(series))


# Taylor coefficients of x⁻³·∫₀ˣ t²φ dt in x²
_SECOND_MOMENT = tuple(_DENSITY0 * (-0.5) ** k / (math.factorial(k) * (2 * k + 3)) for k in range(20))


def _density(x: Tensor) -> Tensor:
    """φ(x)."""
    return (x * x).mul_(-0.5).exp_().mul_(_DENSITY0)


class GELU(Activation):
    """σ(x) = x·Φ(x), Φ the distribution function of N(0, 1) and φ = Φ′ its density."""

    name = "gelu"
    smoothness = math.inf
    vanishing_order = None

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        return [self._nth(x, n) for n in orders]

    def _nth(self, x: Tensor, n: int) -> Tensor:
        if n == 0:
            return F.gelu(x)
        if n == 1:
            return torch.ops.aten.gelu_backward(ones(x), x)
        # σ⁽ⁿ⁾ = (−1)ⁿ⁻¹ (Heₙ − Heₙ₋₂) φ; beyond 40 the density is 0 and only the powers could overflow
        x = x.clamp(-40.0, 40.0)
        return horner(x, _hermite_difference(n)).mul_(_density(x))

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        if n == 1:
            return torch.ops.aten.gelu_backward(factor, x)
        return super()._scaled(factor, x, n)

    def _integral(self, x: Tensor) -> Tensor:
        """½(x²Φ − ∫₀ˣ t²φ dt)."""
        a, close = x.abs(), x.clamp(-1.0, 1.0)
        near = taylor(close * close, _SECOND_MOMENT)
        near.mul_(close).mul_(close).mul_(close)
        # ½·erf(x/√2) − x·φ; erfc, because torch's float32 erf is right to 1e-7 only
        far = torch.erfc(a * _SQRT_HALF).neg_().add_(1.0).mul_(0.5).copysign_(x).addcmul_(x, _density(x), value=-1)
        return torch.erfc(x * -_SQRT_HALF).mul_(0.5).mul_(x).mul_(x).sub_(join(a, near, far)).mul_(0.5)


_KAPPA = 0.044715
_SCALE = 2 * math.sqrt(2 / math.pi)
_LAST, _STEP = 8.0, 0.125  # beyond 8 the integrand of the table is below 1e-18
_NODES, _WEIGHTS = (tuple(((v + shift) / 2).tolist()) for v, shift in zip(leggauss(5), (1.0, 0.0), strict=True))


def _inner(x: Tensor) -> Tensor:
    """v(x) = 2√(2/π)·(x + κx³)."""
    return torch.addcmul(x, x * x, x, value=_KAPPA).mul_(_SCALE)


@cache
def _bell(n: int) -> tuple[Polynomial, ...]:
    """Bₙₖ(x), k = 0…n, in (s∘v)⁽ⁿ⁾ = Σₖ s⁽ᵏ⁾(v)·Bₙₖ."""
    if n == 0:
        return (Polynomial([1.0]),)
    last = (*_bell(n - 1), Polynomial([0.0]))
    slope = Polynomial([_SCALE, 0.0, 3 * _KAPPA * _SCALE])  # v′
    return tuple(b.deriv() + (last[k - 1] * slope if k else 0) for k, b in enumerate(last))


@cache
def _chain_polynomials(n: int) -> tuple[tuple[float, ...], ...]:
    """The polynomials Pₖ in (x·s(v))⁽ⁿ⁾ = x·(s∘v)⁽ⁿ⁾ + n·(s∘v)⁽ⁿ⁻¹⁾ = Σₖ s⁽ᵏ⁾(v)·Pₖ(x)."""
    lower = (*_bell(n - 1), Polynomial([0.0]))
    x = Polynomial([0.0, 1.0])
    return tuple(tuple((x * b + n * c).coef.tolist()) for b, c in zip(_bell(n), lower, strict=True))


def _tail_table() -> tuple[float, ...]:
    """∫₀ᵃ t·s(−v(t)) dt at a = 0, 1/8, …, 8."""
    left = np.arange(0.0, _LAST, _STEP)[:, None]
    t = left + _STEP * np.array(_NODES)
    pieces = (t / (1 + np.exp(_SCALE * (t + _KAPPA * t**3)))) @ np.array(_WEIGHTS) * _STEP
    return (0.0, *np.cumsum(pieces).tolist())


_TAIL = _tail_table()


class GELUTanh(Activation):
    """σ(x) = x·s(v), v = 2√(2/π)·(x + 0.044715 x³): ``gelu(approximate="tanh")``."""

    name = "gelu_tanh"
    smoothness = math.inf
    vanishing_order = None

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        if max(orders) <= 1:
            return [self._first(x, n) for n in orders]
        near = x.clamp(-12.0, 12.0)  # s(v) is 0 or 1 beyond, and the powers of x stay finite
        # s⁽ᵏ⁾(v) from −|v|, where s(1 − s) keeps its digits: the powers of x enlarge what is lost at s = 1
        logistic = Logistic(_inner(near).abs_().neg_())
        return [self._first(x, n) if n <= 1 else self._nth(near, logistic, n) for n in orders]

    def _first(self, x: Tensor, n: int) -> Tensor:
        if n == 0:
            return F.gelu(x, approximate="tanh")
        return torch.ops.aten.gelu_backward(ones(x), x, approximate="tanh")

    def _nth(self, x: Tensor, logistic: Logistic, n: int) -> Tensor:
        odd, even = torch.zeros_like(x), torch.zeros_like(x)
        for k, polynomial in enumerate(_chain_polynomials(n)):
            if k > 0:  # for n > 1 the polynomial of s itself is 0
                (odd if k % 2 else even).addcmul_(logistic.derivative(k), horner(x, polynomial))
        return odd.addcmul_(even, torch.sign(x), value=-1)  # even derivatives of s are odd functions

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        if n == 1:
            return torch.ops.aten.gelu_backward(factor, x, approximate="tanh")
        return super()._scaled(factor, x, n)

    def _integral(self, x: Tensor) -> Tensor:
        """½max(0, x)² ∓ ∫₀^|x| t·s(−v) dt: the tail from the nearest entry of a table, by Gauss–Legendre."""
        a = x.abs().clamp(max=_LAST)
        index = torch.round(a / _STEP)
        start = index * _STEP
        width = a - start
        tail = torch.zeros_like(x)
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            t = start + width * node
            tail.add_(torch.sigmoid(_inner(t).neg_()).mul_(t), alpha=weight)
        table = torch.tensor(_TAIL, dtype=x.dtype, device=x.device)
        table = table.type_as(x)  # for TorchScript, whose trace has the dtype of its example in the table
        tail.mul_(width).add_(table[index.long().clamp_(0, len(table) - 1)])  # NaN has no index
        return torch.relu(x).square_().mul_(0.5).sub_(tail.mul_(torch.sign(x)))
