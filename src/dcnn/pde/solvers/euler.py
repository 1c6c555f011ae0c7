"""Compressible flow in one dimension: finite volumes, MUSCL reconstruction, HLLC fluxes, SSP Runge–Kutta.

ρ_t + (ρv)_x = 0,   (ρv)_t + (ρv² + p)_x = σ_x,   E_t + (v(E + p))_x = (vσ)_x,
E = p/(γ−1) + ρv²/2,   σ = (4η/3 + ζ) v_x
"""

from __future__ import annotations

import numpy as np

from dcnn.pde.solution import Array


def conserved(primitive: Array, gamma: float) -> Array:
    """(ρ, v, p) → (ρ, ρv, E) along axis 0."""
    rho, v, p = primitive
    return np.stack([rho, rho * v, p / (gamma - 1) + 0.5 * rho * v * v])


def primitive(state: Array, gamma: float) -> Array:
    """(ρ, ρv, E) → (ρ, v, p) along axis 0."""
    rho, momentum, energy = state
    v = momentum / rho
    return np.stack([rho, v, (gamma - 1) * (energy - 0.5 * momentum * v)])


def solve_euler(
    start: Array,
    length: float,
    times: Array,
    gamma: float = 5 / 3,
    eta: float = 0.0,
    zeta: float = 0.0,
    boundary: str = "periodic",
    courant: float = 0.4,
) -> Array:
    """(3, cells, times): density, velocity and pressure at `times` from `start` (3, cells) at times[0].

    `boundary` is "periodic" or "outgoing" (values continue constantly beyond the ends).
    """
    state, dx, now = (
        conserved(np.asarray(start, dtype=float), gamma),
        length / start.shape[1],
        float(times[0]),
    )
    viscosity = 4 / 3 * eta + zeta
    frames = [np.asarray(start, dtype=float)]
    for end in times[1:]:
        while now < end:
            step = min(_stable_step(state, dx, gamma, viscosity, courant), float(end) - now)
            # Third-order strong-stability-preserving Runge–Kutta (Shu and Osher).
            one = state + step * _change(state, dx, gamma, viscosity, boundary)
            two = 0.75 * state + 0.25 * (one + step * _change(one, dx, gamma, viscosity, boundary))
            state = state / 3 + 2 / 3 * (two + step * _change(two, dx, gamma, viscosity, boundary))
            now = now + step if now + step < end else float(end)
        frames.append(primitive(state, gamma))
    return np.stack(frames, axis=2)


def _stable_step(state: Array, dx: float, gamma: float, viscosity: float, courant: float) -> float:
    rho, v, p = primitive(state, gamma)
    fastest = (np.abs(v) + np.sqrt(gamma * p / rho)).max()
    diffusive = 0.5 * dx * dx * rho.min() / viscosity if viscosity > 0 else np.inf
    return courant * min(dx / fastest, diffusive)


def _change(state: Array, dx: float, gamma: float, viscosity: float, boundary: str) -> Array:
    """∂(ρ, ρv, E)/∂t of each cell."""
    w = np.pad(primitive(state, gamma), ((0, 0), (2, 2)), mode="wrap" if boundary == "periodic" else "edge")
    half = 0.5 * _limited_slope(w)  # (3, cells + 2)
    flux = hllc(w[:, 1:-2] + half[:, :-1], w[:, 2:-1] - half[:, 1:], gamma)  # (3, cells + 1)
    if viscosity > 0:
        stress = viscosity * np.diff(w[1, 1:-1]) / dx
        flux[1] -= stress
        flux[2] -= stress * 0.5 * (w[1, 1:-2] + w[1, 2:-1])
    return -np.diff(flux) / dx


def _limited_slope(w: Array) -> Array:
    """Differences of the cells but the outermost, limited (monotonised central)."""
    d = np.diff(w)
    back, ahead = d[:, :-1], d[:, 1:]
    size = np.minimum(np.minimum(2 * np.abs(back), 2 * np.abs(ahead)), 0.5 * np.abs(back + ahead))
    return np.where(back * ahead > 0, np.sign(back) * size, 0.0)


def hllc(left: Array, right: Array, gamma: float) -> Array:
    """The HLLC flux (3, …) between states (ρ, v, p) on both sides of a face."""
    rho_l, v_l, p_l = left
    rho_r, v_r, p_r = right
    c_l, c_r = np.sqrt(gamma * p_l / rho_l), np.sqrt(gamma * p_r / rho_r)
    slow, fast = np.minimum(v_l - c_l, v_r - c_r), np.maximum(v_l + c_l, v_r + c_r)
    mass_l, mass_r = rho_l * (slow - v_l), rho_r * (fast - v_r)
    contact = (p_r - p_l + mass_l * v_l - mass_r * v_r) / (mass_l - mass_r)
    from_left = contact >= 0
    rho, v, p = np.where(from_left, left, right)
    wave = np.where(from_left, slow, fast)
    mass = np.where(from_left, mass_l, mass_r)

    energy = p / (gamma - 1) + 0.5 * rho * v * v
    flux = np.stack([rho * v, rho * v * v + p, v * (energy + p)])
    star = mass / (wave - contact)  # density between the outer wave and the contact
    star_state = np.stack([star, star * contact, star * (energy / rho + (contact - v) * (contact + p / mass))])
    subsonic = np.where(from_left, slow < 0, fast > 0)
    return flux + np.where(subsonic, wave * (star_state - np.stack([rho, rho * v, energy])), 0.0)
