"""Where residuals are taken: points of the unit cube, in several ways of spreading them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from dcnn.errors import unknown


def generator(seed: int, *stream: int) -> torch.Generator:
    """Random numbers of their own for every seed and stream of numbers, the same on every machine."""
    state = np.random.SeedSequence([seed, *stream]).generate_state(2, np.uint32)
    return torch.Generator().manual_seed(int(state[0]) + (int(state[1]) << 31))


def uniform(n: int, d: int, random: torch.Generator) -> Tensor:
    """Independent points."""
    return torch.rand(n, d, generator=random, dtype=torch.float64)


def latin_hypercube(n: int, d: int, random: torch.Generator) -> Tensor:
    """One point in each of n equal slices of every axis."""
    slices = torch.stack([torch.randperm(n, generator=random) for _ in range(d)], dim=1)
    return (slices + uniform(n, d, random)) / n


def sobol(n: int, d: int, random: torch.Generator) -> Tensor:
    """Scrambled Sobol points: evenly spread in all projections, best for powers of two."""
    seed = int(torch.randint(2**31 - 1, (1,), generator=random))
    return SobolEngine(d, scramble=True, seed=seed).draw(n, dtype=torch.float64)


def grid(n: int, d: int, random: torch.Generator) -> Tensor:
    """Middles of equal cells, as many a side as n points allow."""
    side = max(1, int(round(n ** (1 / d), 9)))
    middles = (torch.arange(side, dtype=torch.float64) + 0.5) / side
    return torch.cartesian_prod(*[middles] * d).reshape(-1, d)


def hammersley(n: int, d: int, random: torch.Generator) -> Tensor:
    """i/n on the first axis, the digits of i mirrored in base 2, 3, 5 … on the others; the same at every call."""
    axes = [torch.arange(n, dtype=torch.float64) / n]
    axes += [
        torch.tensor([_mirrored(i, base) for i in range(n)], dtype=torch.float64) for base in (2, 3, 5, 7)[: d - 1]
    ]
    return torch.stack(axes, dim=1)


def _mirrored(number: int, base: int) -> float:
    value, digit = 0.0, 1.0
    while number:
        digit /= base
        number, remainder = divmod(number, base)
        value += digit * remainder
    return value


SAMPLERS: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    f.__name__: f for f in (uniform, latin_hypercube, sobol, grid, hammersley)
}


def unit_points(sampler: str, n: int, d: int, random: torch.Generator) -> Tensor:
    """n points (n, d) of the unit cube in float64; a grid has as many as fit.

    >>> unit_points("grid", 4, 2, generator(0)).tolist()
    [[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]]
    """
    if sampler not in SAMPLERS:
        raise unknown("sampler", sampler, SAMPLERS)
    return SAMPLERS[sampler](n, d, random)


def where_large(candidates: Tensor, size: Tensor, n: int, random: torch.Generator, floor: float = 1.0) -> Tensor:
    """n different rows of `candidates` (M, d), drawn with density size/mean(size) + floor (Wu et al. 2023).

    `size` (M,) is how large the residual is there; a floor of 0 leaves points of zero residual out.
    """
    density = size.detach().double().cpu() / size.double().mean().clamp_min(1e-300).cpu() + floor
    chosen = torch.multinomial(density, n, replacement=False, generator=random)
    return candidates[chosen.to(candidates.device)]
