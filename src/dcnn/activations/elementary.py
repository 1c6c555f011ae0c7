"""Activations made of powers, exponentials and sines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dcnn.activations.activation import Activation
from dcnn.activations.pieces import join, ones, step, taylor


class Identity(Activation):
    """σ(x) = x."""

    name = "identity"
    smoothness = math.inf
    vanishing_order = 2

    def forward(self, x: Tensor) -> Tensor:
        return x

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        return [x.clone() if n == 0 else torch.full_like(x, float(n == 1)) for n in orders]

    def _integral(self, x: Tensor) -> Tensor:
        return (x * x).mul_(0.5)


class ReLU(Activation):
    """σ(x) = max(0, x), with σ′(0) = 0."""

    name = "relu"
    smoothness = 0
    vanishing_order = 2

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        return [self._nth(x, n) for n in orders]

    def _nth(self, x: Tensor, n: int) -> Tensor:
        if n == 0:
            return torch.relu(x)
        return step(x) if n == 1 else torch.zeros_like(x)

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        if n == 1:
            return torch.ops.aten.threshold_backward(factor, x, 0.0)
        return super()._scaled(factor, x, n)

    def _integral(self, x: Tensor) -> Tensor:
        return torch.relu(x).square_().mul_(0.5)


class LeakyReLU(Activation):
    """σ(x) = x for x > 0, ``negative_slope`` · x otherwise."""

    name = "leaky_relu"
    smoothness = 0
    vanishing_order = 2

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope)

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        return [self._nth(x, n) for n in orders]

    def _nth(self, x: Tensor, n: int) -> Tensor:
        if n == 0:
            return F.leaky_relu(x, self.negative_slope)
        if n == 1:
            return torch.ops.aten.leaky_relu_backward(ones(x), x, self.negative_slope, False)
        return torch.zeros_like(x)

    def _integral(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope).mul_(x).mul_(0.5)


_EXPONENTIAL = tuple(1 / math.factorial(k + 2) for k in range(20))  # (eˣ − 1 − x)/x²


class ELU(Activation):
    """σ(x) = ``scale`` · x for x > 0, ``scale`` · ``alpha`` · (eˣ − 1) otherwise."""

    name = "elu"
    vanishing_order = None
    scale = 1.0

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha
        # the slopes on both sides of 0 are 1 and alpha, the curvatures 0 and alpha
        self.smoothness = 1 if alpha == 1 else 0

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        return [self._nth(x, n) for n in orders]

    def _nth(self, x: Tensor, n: int) -> Tensor:
        if n == 0:
            return torch.ops.aten.elu(x, self.alpha, self.scale)
        if n == 1:
            return torch.ops.aten.elu_backward(ones(x), self.alpha, self.scale, 1.0, False, x)
        return torch.exp(x.clamp(max=0.0)).sub_(step(x)).mul_(self.scale * self.alpha)

    def _integral(self, x: Tensor) -> Tensor:
        left = x.clamp(max=0.0)
        close = left.clamp(min=-1.0)
        near = taylor(close, _EXPONENTIAL).mul_(close).mul_(close)
        left = join(-left, near, torch.expm1(left).sub_(left))  # eˣ − 1 − x
        return torch.relu(x).square_().mul_(0.5).add_(left, alpha=self.alpha).mul_(self.scale)


class SELU(ELU):
    """ELU with the self-normalising constants of Klambauer et al. (2017)."""

    name = "selu"
    scale = 1.0507009873554805

    def __init__(self) -> None:
        super().__init__(alpha=1.6732632423543772)

    def extra_repr(self) -> str:
        return ""


class Sin(Activation):
    """σ(x) = sin x."""

    name = "sin"
    smoothness = math.inf
    vanishing_order = None

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        return [self._nth(x, n) for n in orders]

    def _nth(self, x: Tensor, n: int) -> Tensor:
        value = torch.cos(x) if n % 2 else torch.sin(x)
        return value.neg_() if n % 4 > 1 else value

    def _integral(self, x: Tensor) -> Tensor:
        return torch.sin(x * 0.5).square_().mul_(2.0)  # 1 − cos x without its cancellation at 0
