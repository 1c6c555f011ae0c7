"""A step length that satisfies the strong Wolfe conditions: enough decrease, and a slope that has become small."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

DECREASE, CURVATURE = 1e-4, 0.9
MOST = 25  # evaluations


class Trial(NamedTuple):
    """A step length with the value and the slope there."""

    length: float
    value: float
    slope: float


def strong_wolfe(evaluate: Callable[[float], tuple[float, float]], first: float, value: float, slope: float) -> Trial:
    """Step length t with f(t) ≤ f(0) + c₁ t f′(0) and |f′(t)| ≤ c₂ |f′(0)| (Nocedal and Wright, 3.5 and 3.6).

    `evaluate` gives f and f′. All tests are relative to f(0) and f′(0). If no such step is found, the best trial is
    returned, which is the start itself if nothing was lower.
    """
    start = Trial(0.0, value, slope)
    low, high = start, None  # the step lies beyond `low`, and before `high` if there is one
    best, length = start, first
    rounding = 4e-16 * abs(value)
    for _ in range(MOST):
        trial = Trial(length, *evaluate(length))
        if not math.isfinite(trial.value) or not math.isfinite(trial.slope):
            high, length = None, low.length + 0.1 * (length - low.length)
            continue
        if trial.value < best.value:
            best = trial
        enough = trial.value <= value + DECREASE * length * slope
        # Where the values differ by rounding alone, the slope decides (Hager and Zhang 2005).
        enough = enough or (trial.value <= value + rounding and trial.slope <= (2 * DECREASE - 1) * slope)
        if enough and abs(trial.slope) <= -CURVATURE * slope:
            return trial
        if not enough or (trial.value >= low.value and low.length > 0):
            high = trial
        elif trial.slope >= 0:
            high = trial if high is None or trial.length < high.length else high
        else:
            low = trial
        length = _between(low, high) if high is not None else 4 * length
    return best


def _between(low: Trial, high: Trial) -> float:
    """The minimum of the cubic through both trials, kept away from the ends."""
    a, b = low.length, high.length
    d1 = low.slope + high.slope - 3 * (low.value - high.value) / (a - b)
    square = d1 * d1 - low.slope * high.slope
    t = 0.5 * (a + b)
    if square >= 0:
        d2 = math.copysign(math.sqrt(square), b - a)
        below = high.slope - low.slope + 2 * d2
        if below != 0:
            t = b - (b - a) * (high.slope + d2 - d1) / below
    margin = 0.1 * abs(b - a)
    return min(max(t, min(a, b) + margin), max(a, b) - margin)
