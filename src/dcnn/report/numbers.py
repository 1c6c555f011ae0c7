"""How numbers and the names of errors are written on the page."""

from __future__ import annotations

import math

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def short(value: float, digits: int = 3) -> str:
    """A number in few characters, with a power of ten where it is very small or large.

    >>> short(0.01234), short(-5046.0), short(3.1e-7), short(1e6)
    ('0.0123', '−5046', '3.1×10⁻⁷', '10⁶')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -4 < exponent < 5:
        decimals = max(digits - 1 - exponent, 0)
        text = f"{value:.{decimals}f}"
        if "." in text and exponent >= 0:
            text = text.rstrip("0").rstrip(".")
        return text.replace("-", "−")
    mantissa = f"{value / 10.0**exponent:.{max(digits - 1, 0)}f}".rstrip("0").rstrip(".").replace("-", "−")
    power = "10" + str(exponent).translate(SUPERSCRIPT)
    return {"1": power, "−1": f"−{power}"}.get(mantissa, f"{mantissa}×{power}")


def with_spread(mean: float, spread: float | None) -> str:
    """A mean to the digits that its spread leaves meaningful.

    >>> with_spread(0.13512, 0.0123), with_spread(66.31, None), with_spread(5046.2, 310.0), with_spread(2.0e-7, 1e-8)
    ('0.135 ± 0.012', '66.3', '5050 ± 310', '2×10⁻⁷ ± 10⁻⁸')
    """
    if spread is None or not math.isfinite(spread) or not math.isfinite(mean):
        return short(mean)
    if spread == 0:
        return f"{short(mean)} ± 0"
    place = math.floor(math.log10(spread)) - 1
    if place < -6 or abs(mean) >= 1e5:
        return f"{short(mean, 2)} ± {short(spread, 2)}"
    decimals = max(-place, 0)
    rounded = [round(value, -place) for value in (mean, spread)]
    return " ± ".join(f"{value:.{decimals}f}" for value in rounded).replace("-", "−")


def duration(seconds: float) -> str:
    """
    >>> duration(42.4), duration(600), duration(9000)
    ('42 s', '10 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
