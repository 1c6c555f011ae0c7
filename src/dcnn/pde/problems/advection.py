"""Linear advection of a periodic profile: u_t + β u_x = 0."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from torch import Tensor

from dcnn.pde.conditions import Condition, Initial, Periodic, Sampled
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Collocation, Hard, Problem
from dcnn.pde.problems._grids import cell_centres, file_sample, starting_points
from dcnn.pde.solution import Solution
from dcnn.pde.waves import Waves, random_waves


class Advection(Problem):
    """u_t + β u_x = 0 on x ∈ [0, 1], t ∈ [0, 2], periodic; two superposed sine waves at the start.

    Options: `sample` and `seed` choose the initial profile, `resolution` the cells of the reference,
    `data` a PDEBench file to take sample `sample` from instead.
    """

    name = "advection"
    coordinates = ("x", "t")
    domain = {"x": (0.0, 1.0), "t": (0.0, 2.0)}
    fields = ("u",)
    parameters = {"beta": 0.1}
    options = {"sample": 0, "seed": 0, "resolution": 1024, "data": None}
    periodic = {"x": 1.0}

    def residuals(self, u: Field) -> dict[str, Tensor]:
        return {"advection": u.t + self.beta * u.x}

    def conditions(self) -> Sequence[Condition]:
        if self.data:
            points, start = starting_points(self.solution())
            return [Sampled(points, name="initial", u=start["u"]), Periodic("x")]
        return [Initial(u=self.profile), Periodic("x")]

    def hard_constraints(self) -> dict[str, Hard]:
        if self.data:
            return {}
        return {"u": Hard(factor=lambda t: t, lift=self.profile, satisfies=("initial_u",))}

    @cached_property
    def profile(self) -> Waves:
        """The initial condition u(x, 0)."""
        return random_waves(np.random.default_rng([self.seed, self.sample]), length=1.0, highest=4)

    def solve(self) -> Solution:
        if self.data:
            return file_sample(self)
        return moved_profile(self, self.parameters["beta"])


class AdvectionAsPublished(Advection):
    """The set-up of the paper's scripts: 7,000 shared points, 1,024 initial data, and test data that move
    at 2β, as those of the file that could be downloaded then did (PDEBench replaced it later).
    """

    collocation = Collocation(domain=1000, boundary=1000, initial=5000, distribution="hammersley", shared=True)

    def residuals(self, u: Field) -> dict[str, Tensor]:
        return {"f": u.t + self.beta * u.x}

    def conditions(self) -> Sequence[Condition]:
        points, start = starting_points(self.solution())
        return [Sampled(points, term="ic", u=start["u"]), Periodic("x", term="bc")]

    def hard_constraints(self) -> dict[str, Hard]:
        return {}

    def solve(self) -> Solution:
        return super().solve() if self.data else moved_profile(self, 2 * self.parameters["beta"])


def moved_profile(problem: Advection, speed: float) -> Solution:
    """The exact solution on PDEBench's grid: cell centres, 201 times."""
    x, t = cell_centres(problem, "x", problem.resolution), np.linspace(*problem.domain["t"], 201)
    return Solution({"x": x, "t": t}, {"u": problem.profile(x[:, None] - speed * t[None, :])}, "exact shift")
