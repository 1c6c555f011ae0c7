"""Random smooth initial conditions: superposed sine waves, known at every point."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Waves:
    """offset + scale · Σᵢ Aᵢ sin(2π nᵢ x / length + φᵢ), for numpy arrays and tensors alike."""

    amplitudes: tuple[float, ...]
    numbers: tuple[int, ...]
    phases: tuple[float, ...]
    length: float = 1.0
    offset: float = 0.0
    scale: float = 1.0

    def __call__(self, x: Any) -> Any:
        sin = torch.sin if isinstance(x, Tensor) else np.sin
        terms = zip(self.amplitudes, self.numbers, self.phases, strict=True)
        return self.offset + self.scale * sum(
            a * sin(2 * math.pi * n / self.length * x + phase) for a, n, phase in terms
        )

    def between(self, low: float, high: float) -> Waves:
        """The same waves moved and stretched so that they run from `low` to `high`."""
        values = Waves(self.amplitudes, self.numbers, self.phases)(np.linspace(0, 1, 4096, endpoint=False))
        scale = float((high - low) / (values.max() - values.min()))
        offset = float(low - scale * values.min())
        return Waves(self.amplitudes, self.numbers, self.phases, self.length, offset, scale)


def random_waves(rng: np.random.Generator, length: float, highest: int, terms: int = 2) -> Waves:
    """`terms` waves with amplitudes in [0, 1], wave numbers in 1..highest and phases in [0, 2π).

    PDEBench draws its 1-D initial conditions like this; it also folds (absolute value) a tenth of them
    and cuts windows out of some, which is left out here so that every sample is smooth.
    """
    return Waves(
        tuple(rng.uniform(0, 1, terms).tolist()),
        tuple(rng.integers(1, highest + 1, terms).tolist()),
        tuple(rng.uniform(0, 2 * math.pi, terms).tolist()),
        length,
    )
