"""Initial data on a grid, spread by diffusion alone: what u_t = D Δu makes of them between walls, in closed form."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
import torch
from scipy.fft import dctn
from torch import Tensor

from dcnn.pde.solution import Array


class _Diffused:
    """u(x, …, t) = Σ a_m … cos(p_m (x − x₀)) … exp(−D (p_m² + …) t), p_m = mπ/L_x, for one or two space axes.

    At t = 0 it takes the values `start` [x, …] at the middles of equal cells; nothing flows through the walls.
    """

    def __init__(self, start: Array, diffusion: float, *ranges: tuple[float, float]) -> None:
        size = [np.sqrt(np.where(np.arange(n) == 0, 1, 2) / n) for n in start.shape]
        self.coefficients = torch.as_tensor(dctn(start, norm="ortho") * reduce(np.multiply.outer, size))  # (m, …)
        self.diffusion, self.ranges = diffusion, ranges

    def partials(self, *columns_and_letters: Any) -> dict[str, Tensor]:
        """{"xxt": ∂³u/∂x²∂t (N,), …} in closed form; autograd would keep every wave of every derivative."""
        *columns, letters = columns_and_letters
        names = "xyt" if len(columns) == 3 else "xt"
        return {word: self._term(columns, [word.count(c) for c in names]) for word in letters}

    def _term(self, columns: Any, order: list[int]) -> Tensor:
        """The derivative (N,) of these orders: d cos = cos(· + π/2), and a wave's d/dt is −D (p² + …)."""
        *space, t = columns
        waves, numbers = [], []
        shape = self.coefficients.shape
        for position, (low, high), n, times in zip(space, self.ranges, shape, order, strict=False):
            unit = math.pi / (high - low)
            # Later on most waves are gone: those below e⁻⁴⁰ at the earliest time are left out.
            rate = self.diffusion * unit**2 * float(t.detach().min())
            kept = n if rate * n**2 < 40 else math.ceil(math.sqrt(40 / rate))
            k = torch.arange(kept, dtype=t.dtype, device=t.device) * unit
            angle = (position - low)[:, None] * k + times * math.pi / 2  # (N, kept)
            waves.append(torch.cos(angle) * torch.exp(-self.diffusion * t[:, None] * k**2) * k**times)
            numbers.append(k)
        a = self.coefficients[tuple(slice(len(k)) for k in numbers)].to(t)  # (m, …)
        squares = reduce(lambda p, q: p[:, None] + q, [k**2 for k in numbers])
        a = a * (-self.diffusion * squares) ** order[-1]
        return waves[0] @ a if len(waves) == 1 else ((waves[0] @ a) * waves[1]).sum(1)  # (N,)


class DiffusedField(_Diffused):
    """Data [x, y] in the plane."""

    def __call__(self, x: Tensor, y: Tensor, t: Tensor) -> Tensor:
        return self._term((x, y, t), [0, 0, 0])


class DiffusedProfile(_Diffused):
    """Data [x] on a line; of a profile that is even about both ends this is also its periodic diffusion."""

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        return self._term((x, t), [0, 0])
