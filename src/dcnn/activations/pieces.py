"""Elementwise pieces shared by the closed forms; none of them is meant to be differentiated by autograd."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def horner(t: Tensor, coefficients: Sequence[float]) -> Tensor:
    """c₀ + c₁t + c₂t² + …

    >>> horner(torch.tensor([2.0]), (1, 0, 3))
    tensor([13.])
    """
    total = torch.full_like(t, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total.mul_(t).add_(c)
    return total


def taylor(t: Tensor, coefficients: Sequence[float]) -> Tensor:
    """:func:`horner` with all coefficients in float64 and the first half of them, which is enough, otherwise."""
    half = (len(coefficients) + 1) // 2
    return horner(t, coefficients if t.dtype == torch.float64 else coefficients[:half])


def ones(x: Tensor) -> Tensor:
    """Ones of the shape of x that take no memory: torch's fused ``…_backward(ones(x), x)`` is σ′(x)."""
    return x.new_ones(()).expand_as(x)


def step(x: Tensor, at: float = 0.0) -> Tensor:
    """1 where x > ``at``, else 0, in the dtype of x: several times faster than comparing and converting."""
    return torch.ops.aten.threshold_backward(ones(x), x, at)


def join(a: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """``near`` where a ≤ 1, ``far`` elsewhere; both finite. ``torch.where`` takes fifteen times as long."""
    return torch.lerp(near, far, step(a, 1.0))  # exact at the weights 0 and 1
