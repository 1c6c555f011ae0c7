"""The exact solution of the Riemann problem of gas dynamics (Toro, *Riemann Solvers*, ch. 4)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from dcnn.pde.solution import Array

State = tuple[float, float, float]  # density, velocity, pressure

SOD: tuple[State, State] = ((1.0, 0.0, 1.0), (0.125, 0.0, 0.1))


def star_state(left: State, right: State, gamma: float) -> tuple[float, float]:
    """Pressure and velocity between the two outer waves."""

    def jump(p: float, state: State) -> float:
        """Change of velocity across the wave that joins `state` to pressure p: shock or rarefaction."""
        rho, _, p0 = state
        if p > p0:
            return (p - p0) * np.sqrt(2 / (rho * ((gamma + 1) * p + (gamma - 1) * p0)))
        sound = np.sqrt(gamma * p0 / rho)
        return 2 * sound / (gamma - 1) * ((p / p0) ** ((gamma - 1) / (2 * gamma)) - 1)

    def mismatch(p: float) -> float:
        return jump(p, left) + jump(p, right) + right[1] - left[1]

    highest = max(left[2], right[2])
    while mismatch(highest) < 0:
        highest *= 2
    p = brentq(mismatch, 1e-14 * highest, highest, xtol=1e-15, rtol=1e-14)
    return p, 0.5 * (left[1] + right[1] + jump(p, right) - jump(p, left))


def riemann(left: State, right: State, speed: Array, gamma: float = 1.4) -> tuple[Array, Array, Array]:
    """Density, velocity and pressure at x/t = `speed` of two states that met at x = 0, t = 0."""
    p, u = star_state(left, right, gamma)
    on_left = speed < u
    # The right half is the mirror image of the left half.
    from_left = _half(left, p, u, speed, gamma)
    mirrored = _half((right[0], -right[1], right[2]), p, -u, -speed, gamma)
    from_right = (mirrored[0], -mirrored[1], mirrored[2])
    rho, v, pressure = (np.where(on_left, a, b) for a, b in zip(from_left, from_right, strict=True))
    return rho, v, pressure


def _half(state: State, p: float, u: float, speed: Array, gamma: float) -> tuple[Array, Array, Array]:
    """The solution left of the contact."""
    rho, v, p0 = state
    sound = np.sqrt(gamma * p0 / rho)
    if p > p0:  # shock
        ratio, g = p / p0, (gamma - 1) / (gamma + 1)
        front = v - sound * np.sqrt((gamma + 1) / (2 * gamma) * ratio + (gamma - 1) / (2 * gamma))
        behind = rho * (ratio + g) / (g * ratio + 1)
        ahead = speed < front
        return np.where(ahead, rho, behind), np.where(ahead, v, u), np.where(ahead, p0, p)
    behind = rho * (p / p0) ** (1 / gamma)
    head, tail = v - sound, u - np.sqrt(gamma * p / behind)
    inside = np.clip(speed, head, tail)  # constant states on both sides of the fan continue its edges
    fan = 2 / (gamma + 1) + (gamma - 1) / ((gamma + 1) * sound) * (v - inside)
    return (
        rho * fan ** (2 / (gamma - 1)),
        2 / (gamma + 1) * (sound + (gamma - 1) / 2 * v + inside),
        p0 * fan ** (2 * gamma / (gamma - 1)),
    )
