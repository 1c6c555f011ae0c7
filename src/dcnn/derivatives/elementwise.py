"""Functions with closed-form derivatives that are no activations: cosine, exponential, logarithm, powers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from dcnn.activations import Sin


class Elementwise(Protocol):
    """A scalar function with closed-form derivatives, such as every :class:`dcnn.activations.Activation`."""

    def derivatives(self, x: Tensor, n: int) -> Sequence[Tensor]:
        """(f(x), f′(x), …, f⁽ⁿ⁾(x))."""
        ...


class Cos:
    """cos x."""

    def derivatives(self, x: Tensor, n: int) -> Sequence[Tensor]:
        return Sin().derivatives(x, n + 1)[1:]


class Exp:
    """eˣ."""

    def derivatives(self, x: Tensor, n: int) -> Sequence[Tensor]:
        return [torch.exp(x)] * (n + 1)


class Log:
    """log x."""

    def derivatives(self, x: Tensor, n: int) -> Sequence[Tensor]:
        return [torch.log(x), *Power(-1).derivatives(x, n - 1)] if n > 0 else [torch.log(x)]


class Power:
    """xᵖ for a constant p; the derivatives of a polynomial beyond its degree are exact zeros."""

    def __init__(self, p: float) -> None:
        self.p = p

    def derivatives(self, x: Tensor, n: int) -> Sequence[Tensor]:
        return [self._nth(x, k) for k in range(n + 1)]

    def _nth(self, x: Tensor, n: int) -> Tensor:
        factor = prod(self.p - k for k in range(n))
        return x ** (self.p - n) * factor if factor else torch.zeros_like(x)
