"""Periodic problems u_t = Lu + N(u): Fourier modes in space, ETDRK4 in time.

Scheme of Cox and Matthews (2002), coefficients by contour means as Kassam and Trefethen (2005).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dcnn.pde.solution import Array

Modes = NDArray[np.complexfloating]


def wave_numbers(n: int, length: float) -> Array:
    """k of the n//2 + 1 modes of a real periodic function."""
    return 2 * np.pi / length * np.arange(n // 2 + 1)


def etdrk4(
    modes: Modes, linear: Array, nonlinear: Callable[[Modes], Modes], times: Array, longest_step: float
) -> Modes:
    """Modes at all `times`, (modes, times), from those at times[0]; L is diagonal, `linear` its entries."""
    frames = [modes]
    step = 0.0
    for gap in np.diff(times):
        count = int(np.ceil(gap / longest_step - 1e-9))
        if not np.isclose(gap / count, step, rtol=1e-9):
            step = gap / count
            half, full, q, f1, f2, f3 = _coefficients(linear, step)
        for _ in range(count):
            n0 = nonlinear(modes)
            a = half * modes + q * n0
            na = nonlinear(a)
            b = half * modes + q * na
            nb = nonlinear(b)
            nc = nonlinear(half * a + q * (2 * nb - n0))
            modes = full * modes + f1 * n0 + 2 * f2 * (na + nb) + f3 * nc
        frames.append(modes)
    return np.stack(frames, axis=1)


def _coefficients(linear: Array, step: float) -> tuple[Array, ...]:
    """The φ-functions of ETDRK4, as means over a circle around each hL to avoid cancellation near zero."""
    z = step * linear[:, None] + np.exp(1j * np.pi * (np.arange(32) + 0.5) / 32)[None, :]
    e = np.exp(z)
    q = step * ((np.exp(z / 2) - 1) / z).mean(1).real
    f1 = step * ((-4 - z + e * (4 - 3 * z + z**2)) / z**3).mean(1).real
    f2 = step * ((2 + z + e * (z - 2)) / z**3).mean(1).real
    f3 = step * ((-4 - 3 * z - z**2 + e * (4 - z)) / z**3).mean(1).real
    return np.exp(step * linear / 2), np.exp(step * linear), q, f1, f2, f3


def evaluate(modes: Modes, x: Array, low: float, length: float, n: int) -> Array:
    """The trigonometric polynomial with these rfft modes of n samples, at any points x: [x, …]."""
    weight = np.full(len(modes), 2.0 / n)
    weight[0] = 1.0 / n
    if n % 2 == 0:
        weight[-1] = 1.0 / n
    waves = np.exp(1j * np.outer(x - low, wave_numbers(n, length)))  # (x, k)
    return np.real((waves * weight) @ modes)


def solve_allen_cahn(
    profile: Callable[[Array], Array],
    x: Array,
    times: Array,
    diffusion: float,
    reaction: float,
    low: float = -1.0,
    length: float = 2.0,
    n: int = 512,
    longest_step: float = 1e-3,
) -> Array:
    """u_t = D u_xx + R (u − u³), periodic: u on [x, times]."""

    def nonlinear(modes: Modes) -> Modes:
        u = np.fft.irfft(modes, n)
        return reaction * np.fft.rfft(u - u**3)

    start = np.fft.rfft(profile(low + length * np.arange(n) / n))
    k = wave_numbers(n, length)
    return evaluate(etdrk4(start, -diffusion * k**2, nonlinear, times, longest_step), x, low, length, n)
