"""Initial data on a grid, spread by diffusion alone: what u_t = D Δu makes of them between walls, in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from scipy.fft import dctn
from torch import Tensor

from dcnn.pde.solution import Array


class _Diffused:
    """u(x, …, t) = Σ a_m … cos(p_m (x − x₀)) … exp(−D (p_m² + …) t − λt), p_m = mπ/L_x, for one or two space axes.

    At t = 0 it takes the values `start` [x, …] at the middles of equal cells; nothing flows through the walls. λ is
    the rate of a `decay`, if there is one besides diffusion.
    """

    def __init__(self, start: Array, diffusion: float, *ranges: tuple[float, float], decay: float = 0.0) -> None:
        size = [np.sqrt(np.where(np.arange(n) == 0, 1, 2) / n) for n in start.shape]
        self.coefficients = torch.as_tensor(dctn(start, norm="ortho") * reduce(np.multiply.outer, size))  # (m, …)
        self.diffusion, self.ranges, self.decay = diffusion, ranges, decay

    def partials(self, *columns_and_letters: Any) -> dict[str, Tensor]:
        """{"xxt": ∂³u/∂x²∂t (N,), …} in closed form; autograd would keep every wave of every derivative."""
        *columns, letters = columns_and_letters
        *space, t = columns
        orders = {word: [word.count(c) for c in ("xyt" if len(space) == 2 else "xt")] for word in letters}
        axes = [self._waves(i, x, t, {order[i] for order in orders.values()}) for i, x in enumerate(space)]
        a = self.coefficients[tuple(slice(len(k)) for k, _ in axes)].to(t)  # (m, …)
        rate = self.diffusion * reduce(lambda p, q: p[:, None] + q, [k**2 for k, _ in axes]) + self.decay
        found = {}
        for word, (*along, times) in orders.items():
            first, *second = (waves[n] for (_, waves), n in zip(axes, along, strict=True))
            total = first @ (a * (-rate) ** times)  # (N,), or (N, n) along the second axis
            found[word] = (total * second[0]).sum(1) if second else total
        return {word: u * torch.exp(-self.decay * t) for word, u in found.items()} if self.decay else found

    def _waves(self, axis: int, x: Tensor, t: Tensor, orders: set[int]) -> tuple[Tensor, dict[int, Tensor]]:
        """k (m,), and the derivatives of cos(k x) exp(−D k² t) of these orders, (N, m): d cos = cos(· + π/2)."""
        (low, high), n = self.ranges[axis], self.coefficients.shape[axis]
        # Later on most waves are gone: those below e⁻⁴⁰ at the earliest time are left out.
        rate = self.diffusion * (math.pi / (high - low)) ** 2 * float(t.detach().min())
        kept = n if rate * n**2 < 40 else math.ceil(math.sqrt(40 / rate))
        k = torch.arange(kept, dtype=t.dtype, device=t.device) * (math.pi / (high - low))
        angle, size = (x - low)[:, None] * k, torch.exp(-self.diffusion * t[:, None] * k**2)
        return k, {order: torch.cos(angle + order * math.pi / 2) * size * k**order for order in orders}


class DiffusedField(_Diffused):
    """Data [x, y] in the plane."""

    def __call__(self, x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        return self.partials(x, y, t, [""])[""]


class DiffusedProfile(_Diffused):
    """Data [x] on a line; of a profile that is even about both ends this is also its periodic diffusion."""

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        return self.partials(x, t, [""])[""]


class EvolvedField:
    """Σ p(t) · field over (field, coefficients of p, lowest power first): diffusion with a linear reaction."""

    def __init__(self, parts: list[tuple[DiffusedField, Any]]) -> None:
        self.parts = parts

    def __call__(self, x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        return self.partials(x, y, t, [""])[""]

    def partials(self, x: Tensor, y: Tensor, t: Tensor, letters: Sequence[str]) -> dict[str, Tensor]:
        """As those of a diffused field, by the product rule in t."""
        found = {word: torch.zeros_like(t) for word in letters}
        split = {word: (word.replace("t", ""), word.count("t")) for word in letters}
        words = dict.fromkeys(space + "t" * n for space, times in split.values() for n in range(times + 1))
        for field, coefficients in self.parts:
            values = field.partials(x, y, t, words)
            for word, (space, times) in split.items():
                for n in range(times + 1):
                    slope = np.polynomial.polynomial.polyder(coefficients, times - n)
                    p = reduce(lambda sum, c: sum * t + float(c), slope[::-1], torch.zeros_like(t))
                    found[word] += math.comb(times, n) * p * values[space + "t" * n]
        return found


def linear_response(reaction: Array, diffusion: tuple[float, float], end: float) -> tuple[Array, Array]:
    """D (4,) and c (4, 2, 2, 5): exp((R − k² diag(diffusion)) t) ≈ Σ c tᵖ exp(−D k² t) for all waves k and t ≤ end.

    What two fields with a linear reaction R become is a sum of diffused fields, to about 1 %, by least squares over all
    waves of white noise. At t = 0 it is exact.
    """
    D = np.geomspace(diffusion[0], diffusion[1], 4)
    times = np.linspace(0, end, 101)[1:]
    squares = np.concatenate([np.linspace(0, 400, 60), np.geomspace(420, 4e4, 40)])  # k²
    t, k2 = np.meshgrid(times, squares, indexing="ij")
    generator = reaction - k2[..., None, None] * np.diag(diffusion)
    exact = torch.matrix_exp(torch.as_tensor(generator * t[..., None, None])).numpy()  # (t, k², 2, 2)
    powers = [t**p * np.exp(-d * k2 * t) for d in D for p in range(1, 5)]
    c = np.zeros((4, 2, 2, 5))
    for i, j in np.ndindex(2, 2):
        own = -i  # the first and the last D are those of the fields
        rest = exact[..., i, j] - (i == j) * np.exp(-D[own] * k2 * t)
        weight = np.sqrt(np.gradient(squares)) * np.ones_like(t)  # waves in the plane are as many as k² is long
        weight = weight / np.linalg.norm(weight * exact[..., i, j], axis=1, keepdims=True)
        rows = np.stack([(weight * p).ravel() for p in powers], 1)
        c[:, i, j, 1:] = np.linalg.lstsq(rows, (weight * rest).ravel(), rcond=1e-10)[0].reshape(4, 4)
        c[own, i, j, 0] = i == j
    return D, c
