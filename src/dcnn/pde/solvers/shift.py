"""Linear advection u_t + c u_x = 0 on a periodic interval: the initial profile moves, nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dcnn.pde.solution import Array


def shifted(profile: Callable[[Array], Array], x: Array, t: Array, speed: float) -> Array:
    """u(x, t) = profile(x − speed · t) on the grid [x, t]; the profile must be periodic."""
    return profile(x[:, None] - speed * t[None, :])


def shifted_samples(values: Array, distance: Array, length: float) -> Array:
    """The trigonometric interpolant of equidistant periodic samples moved by each `distance`, [x, distances].

    Exact for profiles with fewer than len(values)/2 waves in `length`.
    """
    modes = np.fft.rfft(values)[:, None]  # (k, 1)
    wave_numbers = 2j * np.pi / length * np.arange(len(modes))[:, None]
    return np.fft.irfft(modes * np.exp(-wave_numbers * np.asarray(distance)[None, :]), n=len(values), axis=0)
