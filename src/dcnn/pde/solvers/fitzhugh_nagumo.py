"""Two-component diffusion–reaction in two dimensions: finite volumes, no flow through the walls.

u_t = D_u Δu + u − u³ − k − v,   v_t = D_v Δv + u − v
"""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

from dcnn.pde.solution import Array


def laplacian(field: Array, dx: float, dy: float) -> Array:
    """Five-point Laplacian of cell means [x, y]; nothing flows through the walls."""
    out = np.zeros_like(field)
    flow_x, flow_y = np.diff(field, axis=0) / dx**2, np.diff(field, axis=1) / dy**2
    out[:-1] += flow_x
    out[1:] -= flow_x
    out[:, :-1] += flow_y
    out[:, 1:] -= flow_y
    return out


def solve_diffusion_reaction(
    u0: Array,
    v0: Array,
    size: tuple[float, float],
    times: Array,
    D_u: float = 1e-3,
    D_v: float = 5e-3,
    k: float = 5e-3,
    tolerance: float = 1e-6,
) -> tuple[Array, Array]:
    """u and v on [x, y, times] from cell means [x, y] at times[0], by RK45 with adaptive steps."""
    shape, cells = u0.shape, u0.size
    dx, dy = size[0] / shape[0], size[1] / shape[1]

    def change(_: float, state: Array) -> Array:
        u, v = state[:cells].reshape(shape), state[cells:].reshape(shape)
        u_t = D_u * laplacian(u, dx, dy) + u - u * u * u - k - v
        v_t = D_v * laplacian(v, dx, dy) + u - v
        return np.concatenate([u_t.ravel(), v_t.ravel()])

    start = np.concatenate([np.asarray(u0, dtype=float).ravel(), np.asarray(v0, dtype=float).ravel()])
    found = solve_ivp(
        change, (times[0], times[-1]), start, t_eval=times, rtol=tolerance, atol=tolerance, first_step=1e-4
    )
    if not found.success:
        raise ArithmeticError(f"diffusion-reaction: {found.message}")
    return found.y[:cells].reshape(*shape, -1), found.y[cells:].reshape(*shape, -1)
