"""What the first layer sees of a point: scaled coordinates, exactly periodic waves, random Fourier features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dcnn.errors import InputError
from dcnn.pde.problem import Problem


class CoordinateEmbedding(nn.Module):
    """Coordinates (N, coordinates) → features (N, width), without trained weights.

    1. A coordinate that the problem calls periodic becomes sin and cos(2πkx/L), k = 1 … `modes`, so that every
       function of them is periodic; one between reflecting walls becomes cos(πkx/L), so that no function of them has
       a slope at the walls; modes = 0 leaves both plain. Plain coordinates are scaled to [−1, 1] if `scale`; with
       `transient` τ time is log(1 + (t − t₀)/τ), scaled so, which resolves a start that is τ short.
    2. With `random` > 0 the result e becomes sin and cos(2πBe) with fixed B ~ N(0, scale²), `random` of each
       (Tancik et al. 2020).
    """

    def __init__(
        self,
        problem: Problem,
        modes: int = 0,
        random: int = 0,
        random_scale: float = 1.0,
        *,
        scale: bool = True,
        transient: float | None = None,
    ) -> None:
        super().__init__()
        wound = [c for c in problem.coordinates if modes and c in problem.periodic]
        mirrored = [c for c in problem.coordinates if modes and c in problem.reflecting]
        if modes and not (wound or mirrored):
            raise InputError(
                f"{problem.where}: network.modes={modes}, but no coordinate is periodic or reflecting (state "
                f'`periodic = {{"x": period}}` in the problem, or set modes to 0)'
            )
        logged = ["t"] if transient is not None and "t" in problem.coordinates else []
        plain = [c for c in problem.coordinates if c not in (*wound, *mirrored, *logged)]
        periods = {c: problem.periodic[c] for c in wound}
        periods |= {c: 2 * (problem.domain[c][1] - problem.domain[c][0]) for c in mirrored}

        def angles(names: list[str]) -> tuple[Tensor, Tensor]:
            """Matrix (names · modes, coordinates) and offset of 2πk(x − low)/period."""
            matrix = torch.zeros(len(names), modes, len(problem.coordinates), dtype=torch.float64)
            offset = torch.zeros(len(names), modes, dtype=torch.float64)
            for i, c in enumerate(names):
                frequency = 2 * math.pi / periods[c] * torch.arange(1, modes + 1, dtype=torch.float64)
                matrix[i, :, problem.axis(c)] = frequency
                offset[i] = -frequency * problem.domain[c][0]
            return matrix.flatten(0, 1), offset.flatten()

        scales = torch.zeros(len(plain), len(problem.coordinates), dtype=torch.float64)
        shifts = torch.zeros(len(plain), dtype=torch.float64)
        for i, c in enumerate(plain):
            low, high = problem.domain[c] if scale else (-1.0, 1.0)
            scales[i, problem.axis(c)] = 2 / (high - low)
            shifts[i] = -(high + low) / (high - low)

        self._transient: tuple[int, float, float, float] | None = None
        if logged:
            assert transient is not None
            begin, end = problem.domain["t"]
            self._transient = problem.axis("t"), begin, transient, 2 / math.log1p((end - begin) / transient)
        width = modes * (2 * len(wound) + len(mirrored)) + len(plain) + len(logged)
        self.width = 2 * random if random else width
        # Not buffers: these stay in float64, as 2π rounded to float32 is no period in a float64 stage.
        self._linear, self._sines, self._cosines = (scales, shifts), angles(wound), angles([*wound, *mirrored])
        self.random: Tensor | None
        self.register_buffer("random", 2 * math.pi * random_scale * torch.randn(random, width) if random else None)

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for (matrix, offset), wave in ((self._linear, None), (self._sines, torch.sin), (self._cosines, torch.cos)):
            if len(matrix):
                matrix, offset = (m.to(device=x.device, dtype=x.dtype) for m in (matrix, offset))
                angle = F.linear(x, matrix, offset)  # (N, len(matrix))
                parts.append(angle if wave is None else wave(angle))
        if self._transient is not None:
            axis, begin, tau, unit = self._transient
            parts.append(torch.log((x[:, axis : axis + 1] - begin) * (1 / tau) + 1) * unit - 1)  # (N, 1)
        features = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if self.random is None:
            return features
        angle = F.linear(features, self.random)  # (N, random)
        return torch.cat([torch.sin(angle), torch.cos(angle)], dim=1)
