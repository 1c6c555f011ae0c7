"""Finite differences in float64, to check derivatives that were computed in any other way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import product
from math import comb, prod
from typing import Any, overload

import torch
from torch import Tensor, nn

from dcnn.derivatives.partials import _index, coordinate_names
from dcnn.derivatives.taylor import Index


@overload
def finite_difference(f: Callable[..., Tensor], x: Tensor, *, step: float | None = None) -> Tensor: ...
@overload
def finite_difference(
    f: Callable[..., Tensor],
    x: Tensor,
    wanted: Sequence[str],
    coordinates: Sequence[str] | None = None,
    step: float | None = None,
) -> dict[str, Tensor]: ...
def finite_difference(
    f: Callable[..., Tensor],
    x: Tensor,
    wanted: Sequence[str] | None = None,
    coordinates: Sequence[str] | None = None,
    step: float | None = None,
) -> Any:
    """Derivatives of f by central differences in float64, with one Richardson step: error O(step⁴).

    Without `wanted`: the gradient of Σ f(x), of the shape of x (4 evaluations an element of x).
    With `wanted` (and `coordinates`), as in :func:`partials`: a dictionary of (N, fields), at points (N, d).

    A module is copied and evaluated in float64; any other function must accept float64. For a directional
    derivative, difference t ↦ f(x + t v) at 0.

    >>> finite_difference(lambda x: (x**3).sum(), torch.tensor([1.0, 2.0])).round(decimals=9)
    tensor([ 3., 12.], dtype=torch.float64)
    """
    if isinstance(f, nn.Module):
        f = copy.deepcopy(f).double()
    x = x.detach().double()
    if wanted is None:
        return _gradient(f, x, step)
    names = coordinate_names(x, wanted, coordinates)
    return {name: _partial(f, x, _index(name, names), step) for name in wanted}


def _default_step(order: int) -> float:
    # truncation ~ h⁴ against rounding ~ eps / h^order
    return float(torch.finfo(torch.float64).eps ** (1 / (order + 4)))


def _gradient(f: Callable[..., Tensor], x: Tensor, step: float | None) -> Tensor:
    h = step or _default_step(1)
    grad = torch.zeros_like(x)
    for i in range(x.numel()):
        unit = torch.zeros_like(x)
        unit.view(-1)[i] = 1.0

        def along(t: float, unit: Tensor = unit) -> Tensor:
            return f(x + t * unit).detach().sum()

        wide, narrow = ((along(s) - along(-s)) / (2 * s) for s in (h, h / 2))
        grad.view(-1)[i] = (4 * narrow - wide) / 3
    return grad


def _partial(f: Callable[..., Tensor], x: Tensor, alpha: Index, step: float | None) -> Tensor:
    h = step or _default_step(sum(alpha))
    if not any(alpha):
        return f(x).detach()
    wide, narrow = (_central(f, x, alpha, s) for s in (h, h / 2))
    return (4 * narrow - wide) / 3


def _central(f: Callable[..., Tensor], x: Tensor, alpha: Index, h: float) -> Tensor:
    """Π δⁿ/hⁿ over the columns, with (δⁿf)(x) = Σₖ (−1)ᵏ C(n,k) f(x + (n/2 − k)h)."""
    total: Tensor | None = None
    for ks in product(*(range(n + 1) for n in alpha)):
        weight = prod((-1) ** k * comb(n, k) for n, k in zip(alpha, ks, strict=True))
        shift = x.new_tensor([(n / 2 - k) * h for n, k in zip(alpha, ks, strict=True)])
        part = weight * f(x + shift).detach()
        total = part if total is None else total + part
    assert total is not None
    return total / h ** sum(alpha)
