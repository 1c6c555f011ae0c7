"""Two-component diffusion–reaction in the plane (FitzHugh–Nagumo): activator u, inhibitor v."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dcnn.errors import unknown
from dcnn.pde.boundary import Neumann
from dcnn.pde.conditions import Condition, Sampled
from dcnn.pde.diffused_field import DiffusedField, EvolvedField, linear_response
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Collocation, Hard, Problem
from dcnn.pde.problems._grids import cell_centres, file_sample, starting_points
from dcnn.pde.solution import Array, Solution
from dcnn.pde.solvers.fitzhugh_nagumo import solve_diffusion_reaction


class DiffusionReaction(Problem):
    """u_t = D_u Δu + u − u³ − k − v and v_t = D_v Δv + u − v on [−1, 1]², t ∈ [0, 5]; no flow outwards.

    Options: `initial` is "noise" (N(0, 1) in every cell, as PDEBench) or "smooth" (a few cosine waves,
    which a network can represent); `sample`, `seed`, `resolution` (cells a side) and `data` as for advection.

    What diffusion alone makes of the initial data is known. It can be the lift of a hard constraint, u = spread +
    (1 − e⁻ᵗ) · network, and an input of the network. Noise is small as soon as diffusion has smoothed it, so that for
    a while its linear evolution is close to the solution: that is the lift then, and a network's input.
    """

    name = "diffusion_reaction"
    coordinates = ("x", "y", "t")
    domain = {"x": (-1.0, 1.0), "y": (-1.0, 1.0), "t": (0.0, 5.0)}
    fields = ("u", "v")
    parameters = {"D_u": 1e-3, "D_v": 5e-3, "k": 5e-3}
    options = {"sample": 0, "seed": 0, "resolution": 128, "data": None, "initial": "noise"}
    reflecting = ("x", "y")
    expensive = True

    def residuals(self, u: Field, v: Field) -> dict[str, Tensor]:
        return {
            "activator": u.t - self.D_u * (u.xx + u.yy) - u + u**3 + self.k + v,
            "inhibitor": v.t - self.D_v * (v.xx + v.yy) - u + v,
        }

    def conditions(self) -> Sequence[Condition]:
        points, start = starting_points(self.start())
        return [Sampled(points, name="initial", **start), Neumann(u=0.0, v=0.0)]

    def hard_constraints(self) -> dict[str, Hard]:
        begin = self.domain["t"][0] + 5 * self.tau if self.fine_noise else None

        def factor(t: Tensor) -> Tensor:
            return 1 - torch.exp(-torch.relu(t - (begin or self.domain["t"][0])))

        lifts = self.evolved if self.fine_noise else {f: self.spread[f, f"D_{f}"] for f in self.fields}
        return {f: Hard(factor, lifts[f], (f"initial_{f}",), begin) for f in self.fields}

    @property
    def tau(self) -> float:
        """The time in which diffusion smooths a cell."""
        cell = (self.domain["x"][1] - self.domain["x"][0]) / len(self.start().grid["x"])
        return float(cell**2 / (6 * self.parameters["D_u"]))

    @property
    def fine_noise(self) -> bool:
        """Whether the start is noise that is soon smooth."""
        return bool(self.initial == "noise" and 50 * self.tau < self.domain["t"][1] - self.domain["t"][0])

    def features(self) -> dict[str, Callable[..., Tensor]]:
        if self.fine_noise:
            return {f"{field}_linear": function for field, function in self.evolved.items()}
        return {f"{field}_by_{D}": function for (field, D), function in self.spread.items()}

    @cached_property
    def evolved(self) -> dict[str, EvolvedField]:
        """What diffusion and the linear part of the reaction make of noise.

        Of the cubic part it has what is lost before diffusion has smoothed the cells: u′ = −u³ for a time τ.
        """
        ranges, (D_u, D_v) = (self.domain["x"], self.domain["y"]), (self.parameters["D_u"], self.parameters["D_v"])
        start = {field: values[..., 0] for field, values in self.start().fields.items()}
        damped = {**start, "u": start["u"] / np.sqrt(1 + 2 * self.tau * start["u"] ** 2)}
        D, c = linear_response(np.array([[1.0, -1.0], [1.0, -1.0]]), (D_u, D_v), self.domain["t"][1])
        spread = [[DiffusedField(damped[field], d, *ranges) for field in self.fields] for d in D]
        found = {
            field: EvolvedField([(spread[m][j], c[m, i, j]) for m in range(len(D)) for j in range(2)])
            for i, field in enumerate(self.fields)
        }
        found["u"].parts.append((DiffusedField(start["u"] - damped["u"], D_u, *ranges, decay=1 / self.tau), [1.0]))
        return found

    @cached_property
    def spread(self) -> dict[tuple[str, str], DiffusedField]:
        """What diffusion alone, with D_u, D_v or the mean of both, makes of the initial fields: {("u", "D_v"): …}.

        A wave exp(−D k² t) with any D in between is close to a sum of these three.
        """
        D_u, D_v = self.parameters["D_u"], self.parameters["D_v"]
        start, ranges = self.start(), (self.domain["x"], self.domain["y"])
        return {
            (field, name): DiffusedField(start.fields[field][..., 0], D, *ranges)
            for field in self.fields
            for name, D in (("D_u", D_u), ("D_v", D_v), ("D_mean", (D_u * D_v) ** 0.5))
        }

    def start(self) -> Solution:
        """The initial condition on the grid of the reference."""
        if self.data:
            return self.solution().at("t", slice(0, 1))
        axes = {axis: cell_centres(self, axis, self.resolution) for axis in "xy"}
        if self.initial == "noise":
            u, v = noise([self.sample, self.seed] if self.seed else self.sample, self.resolution)
        elif self.initial == "smooth":
            rng = np.random.default_rng([self.seed, self.sample])
            u, v = (cosine_waves(rng, axes["x"], axes["y"]) for _ in "uv")
        else:
            raise unknown("initial condition of diffusion_reaction", self.initial, ("noise", "smooth"))
        return Solution({**axes, "t": np.zeros(1)}, {"u": u[..., None], "v": v[..., None]}, self.initial)

    def solve(self) -> Solution:
        if self.data:
            return file_sample(self)
        start, t = self.start(), np.linspace(*self.domain["t"], 101)
        u0, v0 = (values[..., 0] for values in start.fields.values())
        u, v = solve_diffusion_reaction(u0, v0, (2.0, 2.0), t, *self.parameters.values())
        return Solution({**start.grid, "t": t}, {"u": u, "v": v}, "finite volumes, RK45")


def noise(seed: int | list[int], cells: int) -> tuple[Array, Array]:
    """Independent N(0, 1) values [x, y], the same as PDEBench's generator draws for this seed."""
    rng = np.random.default_rng(seed)
    u, v = (rng.standard_normal((cells, cells)).T for _ in "uv")  # drawn as [y, x]
    return u, v


def cosine_waves(rng: np.random.Generator, x: Array, y: Array) -> Array:
    """Σ a_mn cos(mπ(x+1)/2) cos(nπ(y+1)/2) for m, n ≤ 2, of unit variance; no flow through the walls."""
    waves = [np.cos(0.5 * np.pi * m * (axis + 1)) for axis in (x, y) for m in range(3)]
    total = np.einsum("mn,mx,ny->xy", rng.normal(size=(3, 3)), waves[:3], waves[3:])
    return (total - total.mean()) / total.std()


class DiffusionReactionAsPublished(DiffusionReaction):
    """The set-up of the paper's scripts, mistakes included.

    Residuals are added up; no-flow holds for u only; x and y are exchanged between initial and test data;
    the "30 %" of the data are 38 of the first 128 rows, all in one corner.
    """

    collocation = Collocation(domain=1000, boundary=1000, initial=5000, distribution="hammersley", shared=True)
    expensive = False  # it takes the reference of the right problem

    def residuals(self, u: Field, v: Field) -> dict[str, Tensor]:
        activator = u.t - (u - u**3 - self.k - v) - self.D_u * (u.xx + u.yy)
        inhibitor = v.t - (u - v) - self.D_v * (v.xx + v.yy)
        return {"f": activator + inhibitor}

    def conditions(self) -> Sequence[Condition]:
        test = self.solution()
        first = test.at("t", slice(0, 1))
        start: dict[str, Any] = {f: values[..., 0].T.ravel() for f, values in first.fields.items()}
        n = len(test.grid["x"])
        rows = torch.randperm(n, generator=torch.Generator().manual_seed(42))[: int(0.3 * n)].numpy()
        points, values = test.points()[rows], test.values()[rows]
        return [
            Neumann(u=0.0, term="bc"),
            *(Sampled(first.points(), term=f"ic_data_{f}", **{f: start[f]}) for f in self.fields),
            *(Sampled(points, term=f"bc_data_{f}", **{f: values[:, i]}) for i, f in enumerate(self.fields)),
        ]

    def hard_constraints(self) -> dict[str, Hard]:
        return {}

    def features(self) -> dict[str, Callable[..., Tensor]]:
        return {}

    def solve(self) -> Solution:
        found = DiffusionReaction(**{**self.parameters, **self.settings}).solution()
        exchanged = {f: np.swapaxes(values, 0, 1) for f, values in found.fields.items()}
        return Solution(found.grid, exchanged, f"{found.source}, x and y exchanged")
