"""The errors of a result: name, unit, which way is better, what knows nothing has; and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Metric:
    """An error: its key in result.json, what to call it, its unit, and which way is better.

    baseline: the key of the same error of what has learnt nothing, and what that is.
    """

    name: str
    title: str
    unit: str = ""
    lower_is_better: bool = True
    baseline: tuple[str, str] | None = None
    compared: bool = True

    @property
    def label(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def baseline_of(self, tests: Iterable[Mapping[str, Any]]) -> float | None:
        """The error of what has learnt nothing, if one of these results holds it."""
        found = (test.get(self.baseline[0]) for test in tests) if self.baseline else iter(())
        return next((value for value in found if value is not None), None)


FORCES, ENERGY = "force_mae_kcal_mol_A", "energy_mae_kcal_mol"

#: The errors that tables compare, most telling first: the first one that a run has is the one it is ranked by.
METRICS = (
    Metric(FORCES, "force MAE", "kcal/mol/Å", baseline=("zero_force_mae_kcal_mol_A", "zero forces")),
    Metric(ENERGY, "energy MAE", "kcal/mol", baseline=("mean_energy_mae_kcal_mol", "the mean energy")),
    Metric("efwt", "EFwT", lower_is_better=False),
    Metric("nrmse", "nRMSE", baseline=("constant_nrmse", "best constant fields")),
    Metric("nrmse_domain", "nRMSE, all times"),
    Metric("mse", "MSE"),
    Metric("constant_nrmse", "nRMSE of the constant", compared=False),
)
BY_NAME = {metric.name: metric for metric in METRICS}


def shown_metrics(tests: Iterable[Mapping[str, Any]]) -> list[Metric]:
    """The errors that at least one of these results has."""
    names = {name for test in tests for name in test}
    return [metric for metric in METRICS if metric.name in names]


def short(value: float | None, digits: int = 3) -> str:
    """A number in few characters, with a power of ten where it is very small or large; a dash for none.

    >>> short(0.01234), short(-5046.0), short(3.1e-7), short(1e6), short(None)
    ('0.0123', '−5046', '3.1×10⁻⁷', '10⁶', '–')
    """
    if value is None or not math.isfinite(value):
        return "–" if value is None or math.isnan(value) else ("∞" if value > 0 else "−∞")
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
