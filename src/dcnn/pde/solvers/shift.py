"""Linear advection u_t + c u_x = 0 on a periodic interval: the initial profile moves, nothing else."""

from __future__ import annotations

from collections.abc import Callable

from dcnn.pde.solution import Array


def shifted(profile: Callable[[Array], Array], x: Array, t: Array, speed: float) -> Array:
    """u(x, t) = profile(x − speed · t) on the grid [x, t]; the profile must be periodic."""
    return profile(x[:, None] - speed * t[None, :])
