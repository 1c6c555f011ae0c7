"""Poisson's equation on a square: −Δu = f, u = 0 on the boundary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dcnn.pde.boundary import Dirichlet
from dcnn.pde.conditions import Condition
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Hard, Problem
from dcnn.pde.problems._grids import cell_centres
from dcnn.pde.solution import Array, Solution


class Poisson(Problem):
    """u_xx + u_yy + f = 0 on [0, 1]² with f = π² Σ (m² + n²) a_mn sin(mπx) sin(nπy).

    Sample 0 has a₁₁ = 1 only, so u = sin(πx) sin(πy); other samples have random a_mn with m, n ≤ 3.
    """

    name = "poisson"
    coordinates = ("x", "y")
    domain = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
    fields = ("u",)
    options = {"sample": 0, "seed": 0, "resolution": 128}

    def residuals(self, u: Field, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"poisson": u.xx + u.yy + self.series(x, y, power=1)}

    def conditions(self) -> Sequence[Condition]:
        return [Dirichlet(u=0.0)]

    def hard_constraints(self) -> dict[str, Hard]:
        def factor(x: Tensor, y: Tensor) -> Tensor:
            return x * (1 - x) * y * (1 - y)

        return {"u": Hard(factor=factor, lift=lambda x: 0 * x, satisfies=("dirichlet_u",))}

    @cached_property
    def coefficients(self) -> Array:
        """a_mn, m and n from 1."""
        rng = np.random.default_rng([self.seed, self.sample])
        return rng.normal(size=(3, 3)) / np.add.outer(range(3), range(1, 4)) if self.sample else np.ones((1, 1))

    def series(self, x: Any, y: Any, power: int = 0) -> Any:
        """Σ (π² (m² + n²))^power a_mn sin(mπx) sin(nπy): the solution for 0, the source f for 1."""
        sin = torch.sin if isinstance(x, Tensor) else np.sin
        return sum(
            float(a) * (math.pi**2 * (m * m + n * n)) ** power * sin(m * math.pi * x) * sin(n * math.pi * y)
            for m, row in enumerate(self.coefficients, 1)
            for n, a in enumerate(row, 1)
        )

    def solve(self) -> Solution:
        x, y = (cell_centres(self, axis, self.resolution) for axis in "xy")
        return Solution({"x": x, "y": y}, {"u": self.series(x[:, None], y[None, :])}, "double sine series")
