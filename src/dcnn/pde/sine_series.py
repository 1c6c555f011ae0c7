"""Sine series that vanish at the ends of an interval: their heat and wave solutions are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class SineSeries:
    """Σₙ aₙ sin(nπ (x − low) / length), n = 1, 2, …, for numpy arrays and tensors alike."""

    coefficients: tuple[float, ...]
    low: float = 0.0
    length: float = 1.0

    def __call__(self, x: Any) -> Any:
        sin = torch.sin if isinstance(x, Tensor) else np.sin
        return sum(a * sin(n * math.pi / self.length * (x - self.low)) for n, a in enumerate(self.coefficients, 1))

    def potential(self, x: Any) -> Any:
        """∫ of the series: −Σ aₙ cos(…)/kₙ, for numpy arrays."""
        terms = zip(self.coefficients, self.wave_numbers(), strict=True)
        return -sum(a / k * np.cos(k * (x - self.low)) for a, k in terms)

    def wave_numbers(self) -> Any:
        """nπ/length of each term."""
        return math.pi / self.length * np.arange(1, len(self.coefficients) + 1)

    def evolve(self, x: Any, factors: Any) -> Any:
        """[x, t]: the series with term n multiplied by factors[n, t]."""
        waves = np.sin(np.outer(np.asarray(x) - self.low, self.wave_numbers()))  # (x, n)
        return waves @ (np.array(self.coefficients)[:, None] * factors)


def random_coefficients(seed: int, sample: int, terms: int = 4) -> tuple[float, ...]:
    """N(0, 1)/n for n = 1..terms."""
    rng = np.random.default_rng([seed, sample])
    return tuple((rng.normal(size=terms) / np.arange(1, terms + 1)).tolist())
