"""The dilogarithm, from which the integrals of softplus and SiLU are made."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import torch
from torch import Tensor

from dcnn.activations.series import horner, terms_for


@cache
def bernoulli(n: int) -> Fraction:
    """The Bernoulli number Bₙ (B₁ = −1/2).

    >>> [str(bernoulli(n)) for n in range(5)]
    ['1', '-1/2', '1/6', '0', '-1/30']
    """
    if n == 0:
        return Fraction(1)
    return -sum((math.comb(n + 1, k) * bernoulli(k) for k in range(n)), Fraction(0)) / (n + 1)


@cache
def _dilogarithm_coefficients(terms: int) -> tuple[float, ...]:
    return tuple(float(bernoulli(2 * k) / math.factorial(2 * k + 1)) for k in range(terms))


def dilogarithm(z: Tensor) -> Tensor:
    """Li₂(z) = Σ zᵏ/k² for −1 ≤ z ≤ 1/2.

    With w = −log(1 − z), Li₂(z) = Σ Bₙ wⁿ⁺¹/(n + 1)!; here |w| ≤ log 2, so that each term is 82 times smaller
    than the last.

    >>> float(dilogarithm(torch.tensor(-1.0, dtype=torch.float64)) + math.pi**2 / 12)
    0.0
    """
    w = torch.log1p(-z).neg_()
    even = horner(w * w, _dilogarithm_coefficients(terms_for(z.dtype, 9, 5)))
    return even.sub_(w / 4).mul_(w)
