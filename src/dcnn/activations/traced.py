"""tanh for steps that are traced and compiled (``dcnn.train.compiling``).

The compiler's own tanh takes four times as long as torch's and is evaluated again wherever a derivative needs it. Here
all derivatives are polynomials of the one result.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from dcnn.torch_internals import recording


def tracing() -> bool:
    """Whether make_fx is recording operations."""
    return not torch.compiler.is_compiling() and recording()


# torch's tanh as an operator that the compiler calls and does not look into
_LIBRARY = torch.library.Library("dcnn", "FRAGMENT")
_LIBRARY.define("tanh(Tensor x) -> Tensor")
_LIBRARY.impl("tanh", torch.tanh, "CPU")
_LIBRARY.impl("tanh", torch.empty_like, "Meta")


class _Tanh(torch.autograd.Function):
    """y = tanh x, saving y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.ops.dcnn.tanh(x) if x.device.type == "cpu" else torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


@cache
def _polynomial(n: int) -> tuple[float, ...]:
    """Coefficients of q in tanh⁽ⁿ⁾ x = (1 − y²)·q(y).

    >>> [_polynomial(n) for n in (1, 2, 3)]
    [(1.0,), (0.0, -2.0), (-2.0, 0.0, 6.0)]
    """
    if n == 1:
        return (1.0,)
    q = Polynomial(_polynomial(n - 1))
    return tuple((q.deriv() * Polynomial([1, 0, -1]) - Polynomial([0, 2]) * q).trim().coef.tolist())


def tanh(x: Tensor) -> Tensor:
    """tanh x, differentiable by autograd."""
    return _Tanh.apply(x)


def tanh_derivatives(x: Tensor, n: int) -> tuple[Tensor, ...]:
    """(tanh x, tanh′ x, …, tanh⁽ⁿ⁾ x), differentiable by autograd."""
    y = _Tanh.apply(x)
    found, slope = [y], 1 - y * y
    for order in range(1, n + 1):
        *lower, highest = _polynomial(order)
        q: Any = highest
        for coefficient in reversed(lower):
            q = q * y + coefficient if coefficient else q * y
        found.append(slope * q)
    return tuple(found)
