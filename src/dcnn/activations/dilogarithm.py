"""The dilogarithm, from which the integrals of softplus and SiLU are made."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from dcnn.activations.pieces import taylor


def bernoulli(count: int) -> list[Fraction]:
    """The Bernoulli numbers B₀ … (B₁ = −1/2).

    >>> [str(b) for b in bernoulli(5)]
    ['1', '-1/2', '1/6', '0', '-1/30']
    """
    numbers = [Fraction(1)]
    for n in range(1, count):
        numbers.append(-sum(math.comb(n + 1, k) * b for k, b in enumerate(numbers)) / Fraction(n + 1))
    return numbers


# computed once on import, so that torch.compile finds numbers and not the way to them
_EVEN = tuple(float(b / math.factorial(2 * k + 1)) for k, b in enumerate(bernoulli(17)[::2]))


def dilogarithm(z: Tensor) -> Tensor:
    """Li₂(z) = Σ zᵏ/k² for −1 ≤ z ≤ 1/2.

    With w = −log(1 − z), Li₂(z) = Σ Bₙ wⁿ⁺¹/(n + 1)!; here |w| ≤ log 2, so that each term is 82 times smaller
    than the last.

    >>> float(dilogarithm(torch.tensor(-1.0, dtype=torch.float64)) + math.pi**2 / 12)
    0.0
    """
    w = torch.log1p(-z).neg_()
    return taylor(w * w, _EVEN).sub_(w / 4).mul_(w)
