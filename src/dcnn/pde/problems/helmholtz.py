"""Helmholtz' equation on a square: waves of different length along the two axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dcnn.pde.boundary import Dirichlet
from dcnn.pde.conditions import Condition
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Hard, Problem
from dcnn.pde.problems._grids import cell_centres
from dcnn.pde.solution import Solution


class Helmholtz(Problem):
    """u_xx + u_yy + k² u = q on [−1, 1]², u = 0 on the boundary, with q such that u = sin(a₁πx) sin(a₂πy)."""

    name = "helmholtz"
    coordinates = ("x", "y")
    domain = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}
    fields = ("u",)
    parameters = {"k": 1.0, "a1": 1.0, "a2": 4.0}
    options = {"resolution": 128}

    def residuals(self, u: Field, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        q = (self.k**2 - math.pi**2 * (self.a1**2 + self.a2**2)) * self.wave(x, y)
        return {"helmholtz": u.xx + u.yy + self.k**2 * u - q}

    def wave(self, x: Any, y: Any) -> Any:
        """The solution, for arrays and tensors alike."""
        sin = torch.sin if isinstance(x, Tensor) else np.sin
        return sin(self.a1 * math.pi * x) * sin(self.a2 * math.pi * y)

    def conditions(self) -> Sequence[Condition]:
        return [Dirichlet(u=0.0)]

    def hard_constraints(self) -> dict[str, Hard]:
        def factor(x: Tensor, y: Tensor) -> Tensor:
            return (1 - x**2) * (1 - y**2)

        return {"u": Hard(factor=factor, lift=lambda x: 0 * x, satisfies=("dirichlet_u",))}

    def solve(self) -> Solution:
        x, y = (cell_centres(self, axis, self.resolution) for axis in "xy")
        return Solution({"x": x, "y": y}, {"u": self.wave(x[:, None], y[None, :])}, "exact")
