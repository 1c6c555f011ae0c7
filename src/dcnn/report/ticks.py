"""Where an axis has its ticks, and how a time is written."""

from __future__ import annotations

import math

from dcnn.results.metrics import SUPERSCRIPT, short


def ticks(low: float, high: float, log: bool) -> list[tuple[float, str]]:
    """(value, text) of about five round numbers between low and high.

    >>> [text for _, text in ticks(0.0, 10.0, log=False)]
    ['0', '2', '4', '6', '8', '10']
    >>> [text for _, text in ticks(1e-3, 50.0, log=True)]
    ['0.001', '0.01', '0.1', '1', '10']
    >>> [text for _, text in ticks(0.5, 2e5, log=True)]
    ['1', '10', '10²', '10³', '10⁴', '10⁵']
    """
    return _log(low, high) if log else _linear(low, high)


def _linear(low: float, high: float) -> list[tuple[float, str]]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    largest = max(abs(low), abs(high))
    # As many decimals as the step needs, the same for every tick; powers of ten only where numbers get long.
    decimals = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if abs(step / power - 2.5) < 1e-9 else 0))
    plain = 1e-3 <= largest < 1e5 and decimals <= 8
    return [
        (n * step, f"{n * step:.{decimals}f}".replace("-", "−") if plain else short(n * step))
        for n in range(first, last + 1)
    ]


def _log(low: float, high: float) -> list[tuple[float, str]]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    decades = math.log10(high / low)
    if decades < 0.7:
        return _linear(low, high)
    every = max(1, math.ceil((last - first + 1) / 6))
    multiples = (1, 2, 5) if decades < 2 else (1,)
    found = [m * 10.0**n for n in range(first - 1, last + 1) for m in multiples if (n - first) % every == 0]
    shown = [value for value in found if low * 0.999 <= value <= high * 1.001]
    wide = bool(shown) and multiples == (1,) and (shown[0] < 1e-4 or shown[-1] > 1e4)
    return [(value, _power(value) if wide else short(value, 1)) for value in shown]


def _power(value: float) -> str:
    exponent = round(math.log10(value))
    return {0: "1", 1: "10"}.get(exponent, "10" + str(exponent).translate(SUPERSCRIPT))


def duration(seconds: float) -> str:
    """
    >>> duration(42.4), duration(600), duration(9000)
    ('42 s', '10 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
