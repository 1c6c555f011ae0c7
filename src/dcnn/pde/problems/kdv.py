"""The equation of Korteweg and de Vries: a fast soliton overtakes a slow one, and both come out as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dcnn.derivatives import partials
from dcnn.pde.boundary import Dirichlet
from dcnn.pde.conditions import Condition, Initial
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Hard, Problem
from dcnn.pde.problems._grids import cell_centres
from dcnn.pde.solution import Solution


class KdV(Problem):
    """u_t + 6 u u_x + u_xxx = 0 on x ∈ [−12, 12], t ∈ [0, 5]: two solitons of heights k²/2 and speeds k².

    The exact solution of Hirota (1971) is the initial condition and, as little of it as the equation needs, the value
    at both ends and the slope at the right one.
    """

    name = "kdv"
    coordinates = ("x", "t")
    domain = {"x": (-12.0, 12.0), "t": (0.0, 5.0)}
    fields = ("u",)
    parameters = {"k1": 1.0, "k2": 1.5, "x1": -2.0, "x2": -6.0}
    options = {"resolution": 256}

    def residuals(self, u: Field) -> dict[str, Tensor]:
        return {"kdv": u.t + 6 * u * u.x + u.xxx}

    def conditions(self) -> Sequence[Condition]:
        return [
            Initial(u=self.solitons),
            Dirichlet(u=self.solitons),
            Dirichlet(u_x=self.slope, on="x+", name="outflow"),
        ]

    def hard_constraints(self) -> dict[str, Hard]:
        return {"u": Hard(factor=lambda t: t, lift=lambda x: self.solitons(x, 0 * x), satisfies=("initial_u",))}

    def scales(self) -> dict[str, tuple[float, float]]:
        return {"u": (0.0, 0.5)}

    def solitons(self, x: Any, t: Any) -> Any:
        """u = 2 ∂²/∂x² log(1 + e₁ + e₂ + A e₁e₂), eᵢ = exp(ηᵢ), as a quotient of positive terms, both over e₁e₂.

        For arrays and tensors alike. Nothing cancels, and nothing overflows in float32.
        """
        k, p = self.parameters["k1"], self.parameters["k2"]
        exp = torch.exp if isinstance(x, Tensor) else np.exp
        a, b = k * (x - self.parameters["x1"] - k**2 * t), p * (x - self.parameters["x2"] - p**2 * t)
        A = ((k - p) / (k + p)) ** 2
        above = k**2 * exp(-b) + p**2 * exp(-a) + 2 * (k - p) ** 2 + A * (p**2 * exp(a) + k**2 * exp(b))
        root = exp(-(a + b) / 2) + exp((a - b) / 2) + exp((b - a) / 2) + A * exp((a + b) / 2)
        return 2 * (above / root) / root

    def slope(self, x: Tensor, t: Tensor) -> Tensor:
        """u_x of the same."""

        def column(points: Tensor) -> Tensor:
            found: Tensor = self.solitons(points[:, 0], points[:, 1])
            return found[:, None]

        return partials(column, torch.stack([x, t], 1), ["x"], ("x", "t"), "nested")["x"][:, 0].detach()

    def solve(self) -> Solution:
        x, t = cell_centres(self, "x", self.resolution), np.linspace(*self.domain["t"], 101)
        return Solution({"x": x, "t": t}, {"u": self.solitons(x[:, None], t[None, :])}, "Hirota's two solitons")
