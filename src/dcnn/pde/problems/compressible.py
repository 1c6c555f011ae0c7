"""Compressible flow in one dimension: density ρ, velocity v, pressure p."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from dcnn.pde.boundary import Outgoing
from dcnn.pde.conditions import Condition, Initial, Periodic, Sampled
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Collocation, Hard, Problem
from dcnn.pde.problems._grids import cell_centres, file_sample, starting_points
from dcnn.pde.solution import Solution
from dcnn.pde.solvers.euler import solve_euler
from dcnn.pde.waves import random_waves


class Compressible(Problem):
    """Conservation of mass, momentum and energy on x ∈ [−1, 1], t ∈ [0, 1].

    ρ_t + (ρv)_x = 0
    ρ (v_t + v v_x) + p_x = μ v_xx,                        μ = 4η/3 + ζ
    p_t + v p_x + γ p v_x = (γ−1) μ v_x²                   (energy, with the other two taken out of it)

    Options: `sample`, `seed`, `resolution`, `data` as for advection; `boundary` "periodic" or "outgoing".
    """

    name = "compressible"
    coordinates = ("x", "t")
    domain = {"x": (-1.0, 1.0), "t": (0.0, 1.0)}
    fields = ("rho", "v", "p")
    parameters = {"gamma": 5 / 3, "eta": 1e-8, "zeta": 1e-8}
    options = {"sample": 0, "seed": 0, "resolution": 1024, "data": None, "boundary": "periodic"}
    expensive = True

    @property
    def periodic(self) -> dict[str, float]:  # type: ignore[override]
        return {"x": 2.0} if self.boundary == "periodic" else {}

    def residuals(self, rho: Field, v: Field, p: Field) -> dict[str, Tensor]:
        mu = 4 / 3 * self.eta + self.zeta
        return {
            "mass": rho.t + rho * v.x + v * rho.x,
            "momentum": rho * (v.t + v * v.x) + p.x - mu * v.xx,
            "energy": p.t + v * p.x + self.gamma * p * v.x - (self.gamma - 1) * mu * v.x**2,
        }

    def conditions(self) -> Sequence[Condition]:
        edge = Periodic("x") if self.boundary == "periodic" else Outgoing(*self.fields, on="x")
        if self.data:
            points, start = starting_points(self.solution())
            return [Sampled(points, name="initial", **start), edge]
        return [Initial(**self.profiles), edge]

    def hard_constraints(self) -> dict[str, Hard]:
        if self.data:
            return {}
        return {
            field: Hard(factor=lambda t: t, lift=profile, satisfies=(f"initial_{field}",))
            for field, profile in self.profiles.items()
        }

    def scales(self) -> dict[str, tuple[float, float]]:
        x = cell_centres(self, "x", 1024)
        start = starting_points(self.solution())[1] if self.data else {f: w(x) for f, w in self.profiles.items()}
        mean = {field: float(values.mean()) for field, values in start.items()}
        unit = {field: float(values.std()) for field, values in start.items()}
        # Sound turns a difference of pressure into differences of density and velocity, and back.
        gamma = self.parameters["gamma"]
        c = (gamma * mean["p"] / mean["rho"]) ** 0.5
        wave = max(unit["p"], mean["rho"] * c * unit["v"])
        acoustic = {"rho": wave / c**2, "v": wave / (mean["rho"] * c), "p": wave}
        return {field: (mean[field], max(unit[field], acoustic[field])) for field in self.fields}

    @cached_property
    def profiles(self) -> dict[str, Any]:
        """The initial conditions: density within [1, 20], pressure within [10, 200], velocity of order 1."""
        rng = np.random.default_rng([self.seed, self.sample])
        waves = {field: random_waves(rng, length=2.0, highest=3) for field in self.fields}
        for field, low, high in (("rho", 1.0, 10.0), ("p", 10.0, 100.0)):
            height, base = np.exp(rng.uniform(np.log(low), np.log(high), 2))
            waves[field] = waves[field].between(base, base + height)
        return waves

    def solve(self) -> Solution:
        if self.data:
            return file_sample(self)
        x, t = cell_centres(self, "x", self.resolution), np.linspace(*self.domain["t"], 101)
        start = np.stack([profile(x) for profile in self.profiles.values()])
        rho, v, p = solve_euler(start, 2.0, t, **self.parameters, boundary=self.boundary)
        return Solution({"x": x, "t": t}, {"rho": rho, "v": v, "p": p}, "finite volumes, MUSCL + HLLC")


class CompressibleAsPublished(Compressible):
    """The set-up of the paper's scripts, mistakes included.

    The three residuals are added up; momentum has −p_x; viscosity is left out; the energy flux is a product
    of all points with all points; all three periodic conditions act on the density; collocation points fill
    [0, 1] while the data live on [−1, 1].
    """

    domain = {"x": (0.0, 1.0), "t": (0.0, 1.0)}
    parameters = {"gamma": 1.6666666667, "eta": 1e-8, "zeta": 1e-8}
    periodic = {}
    confined = False
    collocation = Collocation(domain=1000, boundary=1000, initial=5000, distribution="hammersley", shared=True)
    expensive = False  # it takes the reference of the right problem

    def residuals(  # type: ignore[override]  # arguments are passed by name
        self, rho: Field, v: Field, p: Field, everywhere: Any
    ) -> dict[str, Tensor]:
        g = self.gamma - 1
        energy_x = p.x / g + 0.5 * rho.x * v**2 + rho * v * v.x
        energy_t = p.t / g + 0.5 * rho.t * v**2 + rho * v * v.t
        # The scripts build F[i, j] = v_j (E_i + p_j) over all pairs of rows and differentiate its sum with
        # respect to x_k. Written out, that is O(N):  v_x Σ E + E_x Σ v + N (v p)_x.
        all_rho, all_v, all_p = (getattr(everywhere, field) for field in self.fields)
        total_energy = (all_p / g + 0.5 * all_rho * all_v**2).sum()
        flux_x = v.x * total_energy + energy_x * all_v.sum() + len(all_v) * (v.x * p + v * p.x)
        mass = rho.t + rho * v.x + v * rho.x
        momentum = rho * (v.t + v * v.x) - p.x
        return {"f": mass + momentum + energy_t + flux_x}

    def conditions(self) -> Sequence[Condition]:
        points, start = starting_points(self.solution())
        return [
            *(
                Sampled(points, term=f"ic_data_{letter}", **{field: start[field]})
                for letter, field in zip("dvp", self.fields, strict=True)
            ),
            *(Periodic("x", fields=("rho",), term=f"bc_{letter}") for letter in "DVP"),
        ]

    def hard_constraints(self) -> dict[str, Hard]:
        return {}

    def solve(self) -> Solution:
        right = Compressible(**{**self.parameters, **self.settings})
        return right.solution()
