"""Activations made of the logistic function s(x) = 1/(1 + e⁻ˣ)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from dcnn.activations import traced
from dcnn.activations.activation import Activation
from dcnn.activations.dilogarithm import bernoulli, dilogarithm
from dcnn.activations.pieces import horner, join, ones, taylor

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
    derivative = [(k + 1) * c for k, c in enumerate(a)]  # (p·A)′ as a polynomial in p, whose s⁽ⁿ⁾ is p·t times it
    if n % 2 == 0:
        return tuple(derivative)
    # (t·p·A)′ = −2p·p·A + p·(1 − 4p)·(p·A)′
    return tuple(d - 4 * e - 2 * c for d, e, c in zip([*derivative, 0], [0, *derivative], [0, *a], strict=True))


class Logistic:
    """s(x) and its derivatives, sharing what they have in common."""

    def __init__(self, x: Tensor) -> None:
        self.s = torch.sigmoid(x)

    @cached_property
    def p(self) -> Tensor:
        return torch.addcmul(self.s, self.s, self.s, value=-1)

    @cached_property
    def t(self) -> Tensor:
        return torch.rsub(self.s, 1, alpha=2)

    def derivative(self, n: int) -> Tensor:
        """s⁽ⁿ⁾(x); not to be changed in place, others may be made of it."""
        if n <= 1:
            return self.p if n else self.s
        if n == 2:
            return self.p * self.t
        value = horner(self.p, _logistic_polynomial(n)).mul_(self.p)
        return value if n % 2 else value.mul_(self.t)


def shifted_softplus(x: Tensor) -> Tensor:
    """log((1 + eˣ)/2), to full relative precision near 0."""
    return torch.expm1(-x.abs()).mul_(0.5).log1p_().add_(torch.relu(x))


# c in tanh(t/2)/2 = Σ c t²ᵏ⁺¹, and from it the Taylor coefficients in x² of x⁻³·∫₀ˣ f dt
_TANH = [(n, (2**n - 1) * b / math.factorial(n)) for n, b in enumerate(bernoulli(34)) if n > 1 and n % 2 == 0]
_LOG_COSH = tuple(float(c / (n * (n + 1))) for n, c in _TANH)  # f = log cosh(t/2)
_T_TANH = tuple(float(c / (n + 1)) for n, c in _TANH)  # f = (t/2)·tanh(t/2)


def _odd_part(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """∫₀ˣ f dt for |x| ≤ 1."""
    square = x * x
    return taylor(square, coefficients).mul_(square).mul_(x)


class Sigmoid(Activation):
    """σ(x) = 1/(1 + e⁻ˣ)."""

    name = "sigmoid"
    smoothness = math.inf
    vanishing_order = None

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        logistic = Logistic(x)
        return [logistic.derivative(n) for n in orders]

    def _integral(self, x: Tensor) -> Tensor:
        return shifted_softplus(x)


class Tanh(Activation):
    """σ(x) = tanh x."""

    name = "tanh"
    smoothness = math.inf
    vanishing_order = None

    def forward(self, x: Tensor) -> Tensor:
        if torch.jit.is_scripting():
            return torch.tanh(x)
        else:
            return traced.tanh(x) if isinstance(x, Tensor) and traced.tracing() else torch.tanh(x)

    def derivatives(self, x: Tensor, n: int) -> tuple[Tensor, ...]:
        return traced.tanh_derivatives(x, n) if traced.tracing() else super().derivatives(x, n)

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        y = torch.tanh(x)
        return [self._nth(y, n) for n in orders]

    def _nth(self, y: Tensor, n: int) -> Tensor:
        if n == 0:
            return y
        slope = torch.ops.aten.tanh_backward(ones(y), y)
        if n == 1:
            return slope
        if n == 2:
            return slope.mul_(y).mul_(-2)
        # tanh x = 2 s(2x) − 1, and p(2x) = (1 − tanh² x)/4
        p = slope.mul_(0.25)
        value = horner(p, _logistic_polynomial(n)).mul_(p).mul_(2.0 ** (n + 1))
        return value if n % 2 else value.mul_(y).neg_()

    def _integral(self, x: Tensor) -> Tensor:
        """log cosh x."""
        a = x.abs()
        near = torch.tanh(x.clamp(-1.0, 1.0)).square_().neg_().log1p_().mul_(-0.5)
        far = torch.expm1(-2 * a).mul_(0.5).log1p_().add_(a)
        return join(a, near, far)


class Softplus(Activation):
    """σ(x) = log(1 + e^(βx))/β."""

    name = "softplus"
    smoothness = math.inf
    vanishing_order = None

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        self.beta = beta

    def extra_repr(self) -> str:
        return f"beta={self.beta}"

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        if max(orders) == 0:
            return [self._value(x)]
        logistic = Logistic(x if self.beta == 1 else x * self.beta)
        return [self._slope(logistic, n) if n > 0 else self._value(x) for n in orders]

    def _slope(self, logistic: Logistic, n: int) -> Tensor:
        value = logistic.derivative(n - 1)
        return value if self.beta == 1 else value * self.beta ** (n - 1)

    def _value(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta, threshold=40.0)  # torch's own threshold of 20 costs 2e-9 in float64

    def _integral(self, x: Tensor) -> Tensor:
        y = x * self.beta
        close = y.clamp(-1.0, 1.0)
        near = _softplus_integral_near(close).add_(close, alpha=LOG2)
        return join(y.abs(), near, _softplus_integral_far(y)).mul_(1 / self.beta**2)


def _softplus_integral_near(x: Tensor) -> Tensor:
    """∫₀ˣ log((1 + eᵗ)/2) dt for |x| ≤ 1."""
    return torch.addcmul(_odd_part(x, _LOG_COSH), x, x, value=0.25)


def _softplus_integral_far(x: Tensor) -> Tensor:
    """∫₀ˣ log(1 + eᵗ) dt = ½max(0, x)² ± (π²/12 + Li₂(−e^−|x|)), which loses digits near 0."""
    tail = dilogarithm(torch.exp(-x.abs()).neg_()).add_(_ETA2)
    return torch.relu(x).square_().mul_(0.5).addcmul_(torch.sign(x), tail)


class ShiftedSoftplus(Softplus):
    """σ(x) = log(1 + eˣ) − log 2, which is 0 at 0."""

    name = "shifted_softplus"

    def __init__(self) -> None:
        super().__init__()

    def extra_repr(self) -> str:
        return ""

    def _value(self, x: Tensor) -> Tensor:
        return x.abs().neg_().exp_().add_(1.0).mul_(0.5).log_().add_(torch.relu(x))  # half the time of softplus

    def _integral(self, x: Tensor) -> Tensor:
        near = _softplus_integral_near(x.clamp(-1.0, 1.0))
        return join(x.abs(), near, _softplus_integral_far(x).sub_(x, alpha=LOG2))


class SiLU(Activation):
    """σ(x) = x/(1 + e⁻ˣ)."""

    name = "silu"
    smoothness = math.inf
    vanishing_order = None

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        logistic = Logistic(x) if max(orders) > 1 else None
        return [self._nth(x, logistic, n) for n in orders]

    def _nth(self, x: Tensor, logistic: Logistic | None, n: int) -> Tensor:
        if n == 0:
            return F.silu(x)
        if n == 1 or logistic is None:
            return torch.ops.aten.silu_backward(ones(x), x)
        if n == 2:
            return (logistic.t * x).add_(2.0).mul_(logistic.p)
        return torch.addcmul(logistic.derivative(n - 1) * n, x, logistic.derivative(n))

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        if n == 1:
            return torch.ops.aten.silu_backward(factor, x)
        return super()._scaled(factor, x, n)

    def _integral(self, x: Tensor) -> Tensor:
        """½max(0, x)² ∓ ∫₀^|x| t/(1 + eᵗ) dt."""
        a, close = x.abs(), x.clamp(-1.0, 1.0)
        near = torch.addcmul(_odd_part(close, _T_TANH), close, close, value=0.25)
        small = torch.exp(-a)
        tail = dilogarithm(small.neg()).add_(_ETA2).sub_(torch.log1p(small).mul_(a))
        far = torch.relu(x).square_().mul_(0.5).sub_(torch.sign(x).mul_(tail))
        return join(a, near, far)
