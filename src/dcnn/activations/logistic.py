"""Activations made of the logistic function s(x) = 1/(1 + e⁻ˣ)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from dcnn.activations.base import Activation
from dcnn.activations.dilogarithm import bernoulli, dilogarithm, horner, terms_for

LOG2 = math.log(2.0)
_ETA2 = math.pi**2 / 12  # −Li₂(−1)


@cache
def _logistic_polynomial(n: int) -> tuple[int, ...]:
    """Coefficients of Aₙ in s⁽ⁿ⁾ = p·Aₙ(p) (n odd) or t·p·Aₙ(p) (n even), p = s(1 − s), t = 1 − 2s.

    They follow from p′ = p·t, t′ = −2p and t² = 1 − 4p.
    """
    if n == 1:
        return (1,)
    a = _logistic_polynomial(n - 1)
    derivative = [
        (k + 1) * c for k, c in enumerate(a)
    ]  # (p·A)′ as a polynomial in p, whose s⁽ⁿ⁾ is p·t times it
    if n % 2 == 0:
        return tuple(derivative)
    # (t·p·A)′ = −2p·p·A + p·(1 − 4p)·(p·A)′
    return tuple(
        d - 4 * e - 2 * c for d, e, c in zip([*derivative, 0], [0, *derivative], [0, *a], strict=True)
    )


def logistic_derivative(s: Tensor, n: int) -> Tensor:
    """s⁽ⁿ⁾(x) from s = s(x), as a new tensor."""
    if n == 0:
        return s.clone()
    p = s - s * s
    if n == 1:
        return p
    if n == 2:
        return p.mul_(1 - 2 * s)
    if n == 3:
        return torch.addcmul(p, p, p, value=-6)
    value = horner(p, _logistic_polynomial(n)).mul_(p)
    return value if n % 2 else value.mul_(1 - 2 * s)


def shifted_softplus(x: Tensor) -> Tensor:
    """log((1 + eˣ)/2), to full relative precision near 0."""
    return torch.expm1(-x.abs()).mul_(0.5).log1p_().add_(torch.relu(x))


@cache
def _log_cosh_coefficients(terms: int, silu: bool) -> tuple[float, ...]:
    """Taylor coefficients of x⁻³·∫₀ˣ log cosh(t/2) dt in x², or of x⁻³·∫₀ˣ (t/2)·tanh(t/2) dt."""
    out = []
    for k in range(terms):
        n = 2 * k + 2
        c = (2**n - 1) * bernoulli(n) / math.factorial(n)  # tanh(t/2)/2 = Σ c t²ᵏ⁺¹
        out.append(float(c / (n + 1) if silu else c / (n * (n + 1))))
    return tuple(out)


def _odd_part(x: Tensor, silu: bool) -> Tensor:
    """∫₀ˣ of log cosh(t/2), or of (t/2)·tanh(t/2), by its Taylor series: for |x| ≤ 1."""
    square = x * x
    return horner(square, _log_cosh_coefficients(terms_for(x.dtype, 16, 8), silu)).mul_(square).mul_(x)


class Sigmoid(Activation):
    """σ(x) = 1/(1 + e⁻ˣ)."""

    name = "sigmoid"
    smoothness = math.inf
    vanishing_order = None

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        s = torch.sigmoid(x)
        return [logistic_derivative(s, n) for n in orders]

    def _integral(self, x: Tensor) -> Tensor:
        return shifted_softplus(x)


class Tanh(Activation):
    """σ(x) = tanh x."""

    name = "tanh"
    smoothness = math.inf
    vanishing_order = None

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        y = torch.tanh(x)
        return [self._nth(y, n) for n in orders]

    def _nth(self, y: Tensor, n: int) -> Tensor:
        if n == 0:
            return y.clone()
        slope = 1 - y * y
        if n == 1:
            return slope
        if n == 2:
            return slope.mul_(y).mul_(-2)
        # tanh x = 2 s(2x) − 1, and p(2x) = (1 − tanh² x)/4
        p = slope.mul_(0.25)
        value = horner(p, _logistic_polynomial(n)).mul_(p).mul_(2.0 ** (n + 1))
        return value if n % 2 else value.mul_(y).neg_()

    def _integral(self, x: Tensor) -> Tensor:
        a = x.abs()
        near = torch.tanh(x).square_().neg_().log1p_().mul_(-0.5)  # log cosh = −½ log(1 − tanh²)
        far = torch.expm1(-2 * a).mul_(0.5).log1p_().add_(a)
        return torch.where(a < 1, near, far)


class Softplus(Activation):
    """σ(x) = log(1 + e^(βx))/β."""

    name = "softplus"
    smoothness = math.inf
    vanishing_order = None
    _shift = 0.0

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = beta

    def extra_repr(self) -> str:
        return f"beta={self.beta}"

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        s = torch.sigmoid(x * self.beta) if max(orders) > 0 else x
        return [self._value(x) if n == 0 else self._slope(s, n) for n in orders]

    def _value(self, x: Tensor) -> Tensor:
        value = F.softplus(x, self.beta, threshold=40.0)  # torch's own threshold of 20 costs 2e-9 in float64
        return value.sub_(self._shift) if self._shift else value

    def _slope(self, s: Tensor, n: int) -> Tensor:
        value = logistic_derivative(s, n - 1)
        return value if self.beta == 1 else value.mul_(self.beta ** (n - 1))

    def _integral(self, x: Tensor) -> Tensor:
        y = x * self.beta
        a = y.abs()
        near = torch.addcmul(_odd_part(y, silu=False), y, y, value=0.25)
        far = torch.relu(y).square_().mul_(0.5)
        far.addcmul_(torch.sign(y), dilogarithm(torch.exp(-a).neg_()).add_(_ETA2))
        if self._shift:
            far.sub_(y, alpha=LOG2)
        else:
            near.add_(y, alpha=LOG2)
        return torch.where(a < 1, near, far).mul_(1 / self.beta**2)


class ShiftedSoftplus(Softplus):
    """σ(x) = log(1 + eˣ) − log 2, which is 0 at 0."""

    name = "shifted_softplus"
    _shift = LOG2

    def __init__(self) -> None:
        super().__init__()

    def extra_repr(self) -> str:
        return ""


class SiLU(Activation):
    """σ(x) = x/(1 + e⁻ˣ)."""

    name = "silu"
    smoothness = math.inf
    vanishing_order = None

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        s = torch.sigmoid(x) if max(orders) > 0 else x
        return [F.silu(x) if n == 0 else self._slope(x, s, n) for n in orders]

    def _slope(self, x: Tensor, s: Tensor, n: int) -> Tensor:
        p = s - s * s
        if n == 1:
            return torch.addcmul(s, x, p)  # s + x·p
        if n == 2:
            return torch.addcmul(p * 2, x, p.mul_(1 - 2 * s))  # 2p + x·p·t
        return torch.addcmul(logistic_derivative(s, n - 1).mul_(n), x, logistic_derivative(s, n))

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        if n == 1:
            return torch.ops.aten.silu_backward(factor, x)
        return super()._scaled(factor, x, n)

    def _integral(self, x: Tensor) -> Tensor:
        a = x.abs()
        near = torch.addcmul(_odd_part(x, silu=True), x, x, value=0.25)
        small = torch.exp(-a)
        tail = dilogarithm(small.neg()).sub_(torch.log1p(small).mul_(a)).add_(_ETA2)  # ∫₀ᵃ t/(1 + eᵗ) dt
        far = torch.relu(x).square_().mul_(0.5).sub_(torch.sign(x).mul_(tail))
        return torch.where(a < 1, near, far)
