"""The Allen–Cahn equation: phases separate, fronts stay sharp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dcnn.pde.conditions import Condition, Initial, Periodic
from dcnn.pde.diffused_field import DiffusedProfile
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Hard, Problem
from dcnn.pde.problems._grids import cell_centres
from dcnn.pde.solution import Solution
from dcnn.pde.solvers.spectral import solve_allen_cahn
from dcnn.pde.waves import random_waves


class AllenCahn(Problem):
    """u_t = D u_xx + R (u − u³) on x ∈ [−1, 1], t ∈ [0, 1], periodic.

    Sample 0 starts from x² cos(πx), the classic test; other samples from superposed sine waves.
    """

    name = "allen_cahn"
    coordinates = ("x", "t")
    domain = {"x": (-1.0, 1.0), "t": (0.0, 1.0)}
    fields = ("u",)
    parameters = {"D": 1e-4, "R": 5.0}
    options = {"sample": 0, "seed": 0, "resolution": 256}
    periodic = {"x": 2.0}
    expensive = True

    def residuals(self, u: Field) -> dict[str, Tensor]:
        return {"allen_cahn": u.t - self.D * u.xx - self.R * (u - u**3)}

    def conditions(self) -> Sequence[Condition]:
        return [Initial(u=self.profile), Periodic("x", derivatives=1)]

    def hard_constraints(self) -> dict[str, Hard]:
        return {"u": Hard(factor=lambda t: t, lift=self.lift, satisfies=("initial_u",))}

    @cached_property
    def lift(self) -> Any:
        """A periodic function that starts from the profile.

        x² cos(πx) has a kink where the ends meet. As u must not keep it, diffusion smooths it, as in the solution.
        """
        if self.sample:
            return self.profile
        return DiffusedProfile(bump(cell_centres(self, "x", 2048)), self.parameters["D"], self.domain["x"])

    @cached_property
    def profile(self) -> Any:
        """The initial condition u(x, 0)."""
        if self.sample:
            return random_waves(np.random.default_rng([self.seed, self.sample]), length=2.0, highest=4)
        return bump

    def solve(self) -> Solution:
        x, t = cell_centres(self, "x", self.resolution), np.linspace(*self.domain["t"], 101)
        u = solve_allen_cahn(self.profile, x, t, self.parameters["D"], self.parameters["R"])
        return Solution({"x": x, "t": t}, {"u": u}, "Fourier, ETDRK4")


def bump(x: Any) -> Any:
    """x² cos(πx)."""
    return x**2 * (torch.cos if isinstance(x, Tensor) else np.cos)(math.pi * x)
