"""Problems on domains that are no box: an L, a ring, a channel around a cylinder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dcnn.pde.boundary import Dirichlet, General, Neumann, Robin
from dcnn.pde.conditions import Condition
from dcnn.pde.geometry import Ball, Box, Polygon
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Problem
from dcnn.pde.problems._grids import cell_centres
from dcnn.pde.solution import Solution


class LShape(Problem):
    """Δu = 0 on an L, u = r^(2/3) sin(2φ/3) on its boundary and inside: the slope is infinite at the inner corner."""

    name = "l_shape"
    coordinates, fields = ("x", "y"), ("u",)
    shape = Polygon([(0, 0), (1, 0), (1, 1), (-1, 1), (-1, -1), (0, -1)])
    options = {"resolution": 128}

    def residuals(self, u: Field) -> dict[str, Tensor]:
        return {"laplace": u.xx + u.yy}

    def conditions(self) -> Sequence[Condition]:
        return [Dirichlet(u=self.exact)]

    def exact(self, x: Any, y: Any) -> Any:
        """For arrays and tensors alike; φ is counted from the edge to the right of the inner corner."""
        X, Y = (x, y) if isinstance(x, Tensor) else (torch.tensor(c) for c in np.broadcast_arrays(x, y))
        angle = torch.atan2(Y, X)
        angle = torch.where(angle < -1e-12, angle + 2 * math.pi, angle)
        found = (X**2 + Y**2) ** (1 / 3) * torch.sin(2 * angle / 3)
        return found if isinstance(x, Tensor) else found.numpy()

    def solve(self) -> Solution:
        x, y = (cell_centres(self, axis, self.resolution) for axis in "xy")
        return Solution({"x": x, "y": y}, {"u": self.exact(x[:, None], y[None, :])}, "exact")


class Annulus(Problem):
    """Δu = 0 in a ring ½ < r < 1: warm inside (u = 1), giving off heat outside (a u + ∂u/∂n = 0). u = 1 − b log 2r."""

    name = "annulus"
    coordinates, fields = ("x", "y"), ("u",)
    shape = Ball([0, 0], 1.0, name="outside") - Ball([0, 0], 0.5, name="inside")
    parameters = {"a": 2.0}
    options = {"resolution": 128}

    def residuals(self, u: Field) -> dict[str, Tensor]:
        return {"laplace": u.xx + u.yy}

    def conditions(self) -> Sequence[Condition]:
        return [Dirichlet(u=1.0, on="inside"), Robin(u=0.0, a=lambda: self.parameters["a"], on="outside")]

    def solve(self) -> Solution:
        x, y = (cell_centres(self, axis, self.resolution) for axis in "xy")
        a = self.parameters["a"]
        b = a / (1 + a * math.log(2))  # a (1 − b log 2) = b
        u = 1 - b * np.log(2 * np.hypot(x[:, None], y[None, :]))
        return Solution({"x": x, "y": y}, {"u": u}, "exact")


class Channel(Problem):
    """Slow flow (Stokes) past a cylinder: Δu = ∇p, ∇·u = 0 in a channel of height 1 with a parabolic inflow.

    There is no closed solution, and so no reference; the tests compare it with finite elements.
    """

    name = "channel"
    coordinates, fields = ("x", "y"), ("u", "v", "p")
    shape = Box([0, 0], [2.5, 1], name="channel") - Ball([0.8, 0.5], 0.2, name="cylinder")

    def residuals(self, u: Field, v: Field, p: Field) -> dict[str, Tensor]:
        return {"mass": u.x + v.y, "momentum_x": u.xx + u.yy - p.x, "momentum_y": v.xx + v.yy - p.y}

    def conditions(self) -> Sequence[Condition]:
        return [
            Dirichlet(u=lambda y: 4 * y * (1 - y), v=0.0, on="x-", name="inflow"),
            Dirichlet(u=0.0, v=0.0, on=("y-", "y+", "cylinder"), name="wall"),
            Neumann(v=0.0, on="x+", name="outflow"),
            General(lambda u, p: u.x - p, on="x+", name="free"),
        ]

    def scales(self) -> dict[str, tuple[float, float]]:
        return {"u": (0.5, 0.5), "v": (0.0, 0.3), "p": (20.0, 20.0)}
