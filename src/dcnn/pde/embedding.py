"""What the first layer sees of a point: scaled coordinates, exactly periodic waves, random Fourier features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dcnn.errors import InputError
from dcnn.pde.problem import Problem


class Embedding(nn.Module):
    """Coordinates (N, coordinates) → features (N, width), without trained weights.

    1. A coordinate that the problem calls periodic becomes sin and cos(2πkx/L), k = 1 … `modes`, so that every
       function of them is periodic; modes = 0 leaves it plain. Plain coordinates are scaled to [−1, 1] if `scale`.
    2. With `random` > 0 the result e becomes sin and cos(2πBe) with fixed B ~ N(0, scale²), `random` of each
       (Tancik et al. 2020).
    """

    def __init__(
        self, problem: Problem, modes: int = 0, random: int = 0, random_scale: float = 1.0, *, scale: bool = True
    ) -> None:
        super().__init__()
        wound = [c for c in problem.coordinates if modes and c in problem.periodic]
        if modes and not wound:
            raise InputError(
                f"{problem.where}: network.periodic_modes={modes}, but no coordinate is periodic (state "
                f'`periodic = {{"x": period}}` in the problem, or set periodic_modes to 0)'
            )
        plain = [c for c in problem.coordinates if c not in wound]
        d = len(problem.coordinates)

        waves = torch.zeros(len(wound) * modes, d, dtype=torch.float64)
        origin = torch.zeros(len(wound) * modes, dtype=torch.float64)
        for i, c in enumerate(wound):
            for k in range(modes):
                frequency = 2 * math.pi * (k + 1) / problem.periodic[c]
                waves[i * modes + k, problem.axis(c)] = frequency
                origin[i * modes + k] = -frequency * problem.domain[c][0]

        scales, shifts = torch.zeros(len(plain), d, dtype=torch.float64), torch.zeros(len(plain), dtype=torch.float64)
        for i, c in enumerate(plain):
            low, high = problem.domain[c] if scale else (-1.0, 1.0)
            scales[i, problem.axis(c)] = 2 / (high - low)
            shifts[i] = -(high + low) / (high - low)

        width = 2 * len(waves) + len(plain)
        self.width = 2 * random if random else width
        # Not buffers: these stay in float64, as 2π rounded to float32 is no period in a float64 stage.
        self._waves, self._scales = (waves, origin), (scales, shifts)
        self.random: Tensor | None
        self.register_buffer("random", 2 * math.pi * random_scale * torch.randn(random, width) if random else None)

    def forward(self, x: Tensor) -> Tensor:
        (scales, shifts), (waves, origin) = (
            [t.to(device=x.device, dtype=x.dtype) for t in pair] for pair in (self._scales, self._waves)
        )
        parts = [F.linear(x, scales, shifts)] if len(scales) else []  # (N, plain)
        if len(waves):
            angle = F.linear(x, waves, origin)  # (N, modes)
            parts += [torch.sin(angle), torch.cos(angle)]
        features = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if self.random is None:
            return features
        angle = F.linear(features, self.random)  # (N, random)
        return torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)
