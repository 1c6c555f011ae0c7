"""The wave equation: u_tt = c² u_xx, a string held at both ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from torch import Tensor

from dcnn.pde.boundary import Dirichlet
from dcnn.pde.conditions import Condition, Initial
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Hard, Problem
from dcnn.pde.problems._grids import cell_centres
from dcnn.pde.sine_series import SineSeries, random_coefficients
from dcnn.pde.solution import Solution


class Wave(Problem):
    """u_tt = c² u_xx on x ∈ [0, 1], t ∈ [0, 2]; u = 0 at both ends, at rest at the start.

    Sample 0 starts from sin(πx) + ½ sin(4πx), other samples from four random sine waves.
    """

    name = "wave"
    coordinates = ("x", "t")
    domain = {"x": (0.0, 1.0), "t": (0.0, 2.0)}
    fields = ("u",)
    parameters = {"c": 1.0}
    options = {"sample": 0, "seed": 0, "resolution": 256}

    def residuals(self, u: Field) -> dict[str, Tensor]:
        return {"wave": u.tt - self.c**2 * u.xx}

    def conditions(self) -> Sequence[Condition]:
        return [Initial(u=self.profile, u_t=0.0), Dirichlet(u=0.0)]

    def hard_constraints(self) -> dict[str, Hard]:
        """t² at the start, but no larger than 1: with t² itself the network is a hundred times larger early than late.

        By t = τ waves have changed as much as they are large, τ² = |u| / |c² u_xx|.
        """
        k, a = self.profile.wave_numbers(), np.array(self.profile.coefficients)
        tau2 = float(np.linalg.norm(a) / np.linalg.norm(a * k**2)) / self.parameters["c"] ** 2

        def factor(x: Tensor, t: Tensor) -> Tensor:
            return t**2 / (t**2 + tau2) * 4 * x * (1 - x)

        return {"u": Hard(factor, lift=self.profile, satisfies=("initial_u", "initial_u_t", "dirichlet_u"))}

    @cached_property
    def profile(self) -> SineSeries:
        """The initial condition u(x, 0)."""
        return SineSeries(random_coefficients(self.seed, self.sample) if self.sample else (1.0, 0.0, 0.0, 0.5))

    def solve(self) -> Solution:
        x, t = cell_centres(self, "x", self.resolution), np.linspace(*self.domain["t"], 101)
        swing = np.cos(self.parameters["c"] * np.outer(self.profile.wave_numbers(), t))  # (n, t)
        return Solution({"x": x, "t": t}, {"u": self.profile.evolve(x, swing)}, "sine series")
