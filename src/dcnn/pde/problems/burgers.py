"""Burgers' equation: u_t + u u_x = ν u_xx, a wave that steepens into a shock."""

from __future__ import annotations

import math
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
from dcnn.pde.solvers.cole_hopf import solve_burgers


class Burgers(Problem):
    """u_t + u u_x = ν u_xx on x ∈ [−1, 1], t ∈ [0, 1]; u = 0 at both ends.

    Sample 0 starts from −sin(πx), the classic test; other samples from random odd sine waves.
    """

    name = "burgers"
    coordinates = ("x", "t")
    domain = {"x": (-1.0, 1.0), "t": (0.0, 1.0)}
    fields = ("u",)
    parameters = {"nu": 0.01 / math.pi}
    options = {"sample": 0, "seed": 0, "resolution": 256}
    expensive = True

    def residuals(self, u: Field) -> dict[str, Tensor]:
        return {"burgers": u.t + u * u.x - self.nu * u.xx}

    def conditions(self) -> Sequence[Condition]:
        return [Initial(u=self.profile), Dirichlet(u=0.0)]

    def hard_constraints(self) -> dict[str, Hard]:
        satisfied = ("initial_u", "dirichlet_u")
        return {"u": Hard(factor=lambda x, t: t * (1 - x**2), lift=self.profile, satisfies=satisfied)}

    @cached_property
    def profile(self) -> SineSeries:
        """The initial condition u(x, 0), odd about 0, so that it is periodic and zero at both ends."""
        return SineSeries(random_coefficients(self.seed, self.sample, 3) if self.sample else (-1.0,), low=0.0)

    def solve(self) -> Solution:
        x, t = cell_centres(self, "x", self.resolution), np.linspace(*self.domain["t"], 101)
        u = solve_burgers(self.profile, self.profile.potential, x, t, self.parameters["nu"])
        return Solution({"x": x, "t": t}, {"u": u}, "Cole–Hopf, quadrature")
