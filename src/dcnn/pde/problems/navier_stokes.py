"""Steady incompressible flow in a square cavity with a sliding lid."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dcnn.pde.boundary import Dirichlet
from dcnn.pde.conditions import Condition, Sampled
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Problem
from dcnn.pde.solution import Solution
from dcnn.pde.solvers.cavity import solve_cavity


class NavierStokes(Problem):
    """u·∇u + ∇p = Δu / Re, ∇·u = 0 on [0, 1]²; the lid y = 1 moves at u = 1, all other walls rest.

    The pressure is fixed by p(0, 0) = 0. The reference has the velocities only.
    """

    name = "navier_stokes"
    coordinates = ("x", "y")
    domain = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
    fields = ("u", "v", "p")
    parameters = {"Re": 100.0}
    options = {"resolution": 128}
    expensive = True

    def residuals(self, u: Field, v: Field, p: Field) -> dict[str, Tensor]:
        return {
            "mass": u.x + v.y,
            "momentum_x": u * u.x + v * u.y + p.x - (u.xx + u.yy) / self.Re,
            "momentum_y": u * v.x + v * v.y + p.y - (v.xx + v.yy) / self.Re,
        }

    def conditions(self) -> Sequence[Condition]:
        return [
            Dirichlet(u=1.0, v=0.0, on="y+", name="lid"),
            Dirichlet(u=0.0, v=0.0, on=("x", "y-"), name="wall"),
            Sampled([[0.0, 0.0]], p=[0.0], name="pressure"),
        ]

    def solve(self) -> Solution:
        x, u, v = solve_cavity(self.parameters["Re"], self.resolution)
        return Solution({"x": x, "y": x}, {"u": u, "v": v}, "finite differences, stream function")
