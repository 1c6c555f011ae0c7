"""The heat equation: u_t = α u_xx between two cold walls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from torch import Tensor

from dcnn.pde.boundary import Dirichlet
from dcnn.pde.conditions import Condition, Initial, Sampled
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Hard, Problem
from dcnn.pde.problems._grids import cell_centres
from dcnn.pde.sine_series import SineSeries, random_coefficients
from dcnn.pde.solution import Solution


class Heat(Problem):
    """u_t = α u_xx on x ∈ [0, 1], t ∈ [0, 1]; u = 0 at both ends.

    Sample 0 starts from sin(πx) + ½ sin(3πx), other samples from four random sine waves. Option `measured`: values at
    so many random points of the solution for α = 0.05, with noise of `noise` times their rms, to learn α from.
    """

    name = "heat"
    coordinates = ("x", "t")
    domain = {"x": (0.0, 1.0), "t": (0.0, 1.0)}
    fields = ("u",)
    parameters = {"alpha": 0.05}
    options = {"sample": 0, "seed": 0, "resolution": 256, "measured": 0, "noise": 0.02}

    def residuals(self, u: Field) -> dict[str, Tensor]:
        return {"heat": u.t - self.alpha * u.xx}

    def conditions(self) -> Sequence[Condition]:
        return [Initial(u=self.profile), Dirichlet(u=0.0), *([self.measurement()] if self.measured else [])]

    def measurement(self) -> Sampled:
        """Noisy values of the solution for the class's own α."""
        rng = np.random.default_rng([self.seed, self.sample, self.measured])
        x, t = rng.uniform(size=(2, self.measured))
        decay = np.exp(-type(self).parameters["alpha"] * np.outer(self.profile.wave_numbers() ** 2, t))
        u = np.diagonal(self.profile.evolve(x, decay))
        noise = self.noise * np.sqrt(np.mean(u**2)) * rng.normal(size=self.measured)
        return Sampled(np.stack([x, t], 1), u=u + noise)

    def hard_constraints(self) -> dict[str, Hard]:
        satisfied = ("initial_u", "dirichlet_u")
        return {"u": Hard(factor=lambda x, t: t * x * (1 - x), lift=self.profile, satisfies=satisfied)}

    @cached_property
    def profile(self) -> SineSeries:
        """The initial condition u(x, 0)."""
        return SineSeries(random_coefficients(self.seed, self.sample) if self.sample else (1.0, 0.0, 0.5))

    def solve(self) -> Solution:
        x, t = cell_centres(self, "x", self.resolution), np.linspace(*self.domain["t"], 101)
        decay = np.exp(-self.parameters["alpha"] * np.outer(self.profile.wave_numbers() ** 2, t))  # (n, t)
        return Solution({"x": x, "t": t}, {"u": self.profile.evolve(x, decay)}, "sine series")
