"""Ordinary differential equations: hunters and hunted, and Lorenz' three equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from torch import Tensor

from dcnn.pde.conditions import Condition, Initial
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Hard, Problem
from dcnn.pde.solution import Solution


class _Ordinary(Problem):
    """A system du/dt = slopes(u) from values that are parameters named after the fields, with a zero: x0, y0, …"""

    coordinates = ("t",)
    options = {"resolution": 601}

    def slopes(self, *values: Any) -> tuple[Any, ...]:
        """The right-hand sides, for numbers and tensors alike."""
        raise NotImplementedError

    def start(self) -> dict[str, Any]:
        def of(field: str) -> Callable[..., Tensor]:
            return lambda t: 0 * t + self.parameters[f"{field}0"]

        return {field: of(field) for field in self.fields}

    def conditions(self) -> Sequence[Condition]:
        return [Initial(**self.start())]

    def hard_constraints(self) -> dict[str, Hard]:
        begin, end = self.domain["t"]

        def factor(t: Tensor) -> Tensor:  # soon 1, so that the network is of one size
            return (t - begin) / (t - begin + (end - begin) / 20)

        return {field: Hard(factor, value, (f"initial_{field}",)) for field, value in self.start().items()}

    def solve(self) -> Solution:
        t = np.linspace(*self.domain["t"], self.resolution)
        known = self.settled()
        span, start = self.domain["t"], [self.parameters[f"{field}0"] for field in self.fields]
        found = solve_ivp(lambda _, u: known.slopes(*u), span, start, "DOP853", t, rtol=1e-11, atol=1e-11)
        return Solution({"t": t}, dict(zip(self.fields, found.y, strict=True)), "Runge–Kutta of order 8, rtol 1e-11")


class LotkaVolterra(_Ordinary):
    """x′ = αx − βxy, y′ = δxy − γy on t ∈ [0, 10]: prey x and predators y, both in cycles."""

    name = "lotka_volterra"
    domain = {"t": (0.0, 10.0)}
    fields = ("x", "y")
    parameters = {"alpha": 1.5, "beta": 1.0, "gamma": 3.0, "delta": 1.0, "x0": 2.0, "y0": 1.0}

    def slopes(self, x: Any, y: Any) -> tuple[Any, ...]:
        return self.alpha * x - self.beta * x * y, self.delta * x * y - self.gamma * y

    def residuals(self, x: Field, y: Field) -> dict[str, Tensor]:
        prey, predators = self.slopes(x.value, y.value)
        return {"prey": x.t - prey, "predators": y.t - predators}

    def scales(self) -> dict[str, tuple[float, float]]:
        return {"x": (3.0, 2.0), "y": (1.5, 1.5)}


class Lorenz(_Ordinary):
    """x′ = σ(y − x), y′ = x(ρ − z) − y, z′ = xy − βz on t ∈ [0, 3]: chaotic, so that errors grow with time."""

    name = "lorenz"
    domain = {"t": (0.0, 3.0)}
    fields = ("x", "y", "z")
    parameters = {"sigma": 10.0, "rho": 15.0, "beta": 8 / 3, "x0": -8.0, "y0": 7.0, "z0": 27.0}

    def slopes(self, x: Any, y: Any, z: Any) -> tuple[Any, ...]:
        return self.sigma * (y - x), x * (self.rho - z) - y, x * y - self.beta * z

    def residuals(self, x: Field, y: Field, z: Field) -> dict[str, Tensor]:
        slopes = self.slopes(x.value, y.value, z.value)
        return {f"{n}_t": u.t - slope for n, u, slope in zip("xyz", (x, y, z), slopes, strict=True)}

    def scales(self) -> dict[str, tuple[float, float]]:
        return {"x": (0.0, 10.0), "y": (0.0, 10.0), "z": (15.0, 10.0)}
