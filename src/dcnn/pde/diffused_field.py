"""Initial data on a grid, spread by diffusion alone: what u_t = D Δu makes of them between walls, in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.fft import dctn
from torch import Tensor

from dcnn.pde.solution import Array


class DiffusedField:
    """u(x, y, t) = Σ a_mn cos(p_m (x − x₀)) cos(q_n (y − y₀)) exp(−D (p_m² + q_n²) t), p_m = mπ/L_x, q_n = nπ/L_y.

    At t = 0 it takes the values `start` [x, y] at the middles of equal cells; nothing flows through the walls.
    """

    def __init__(self, start: Array, diffusion: float, x: tuple[float, float], y: tuple[float, float]) -> None:
        size = [np.sqrt(np.where(np.arange(n) == 0, 1, 2) / n) for n in start.shape]
        self.coefficients = torch.as_tensor(dctn(start, norm="ortho") * np.multiply.outer(*size))  # (m, n)
        self.diffusion, self.ranges = diffusion, (x, y)

    def __call__(self, x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        return self._term(x, y, t, (0, 0, 0))

    def partials(self, x: Tensor, y: Tensor, t: Tensor, letters: Sequence[str]) -> dict[str, Tensor]:
        """{"xxt": ∂³u/∂x²∂t (N,), …} in closed form; autograd would keep every wave of every derivative."""
        return {word: self._term(x, y, t, tuple(word.count(c) for c in "xyt")) for word in letters}

    def _term(self, x: Tensor, y: Tensor, t: Tensor, order: tuple[int, ...]) -> Tensor:
        """∂ˣ∂ʸ∂ᵗ u (N,) of these orders: d cos = cos(· + π/2), and a wave's d/dt is −D (p² + q²)."""
        waves, numbers = [], []
        for position, (low, high), n, times in zip((x, y), self.ranges, self.coefficients.shape, order, strict=False):
            unit = math.pi / (high - low)
            # Later on most waves are gone: those below e⁻⁴⁰ at the earliest time are left out.
            rate = self.diffusion * unit**2 * float(t.detach().min())
            kept = n if rate * n**2 < 40 else math.ceil(math.sqrt(40 / rate))
            k = torch.arange(kept, dtype=x.dtype, device=x.device) * unit
            angle = (position - low)[:, None] * k + times * math.pi / 2  # (N, kept)
            waves.append(torch.cos(angle) * torch.exp(-self.diffusion * t[:, None] * k**2) * k**times)
            numbers.append(k)
        p, q = numbers
        a = self.coefficients[: len(p), : len(q)].to(x)  # (m, n)
        a = a * (-self.diffusion * (p[:, None] ** 2 + q**2)) ** order[2]
        return ((waves[0] @ a) * waves[1]).sum(1)  # (N,)
