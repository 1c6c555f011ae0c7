"""DC401 and DC402: labels that float32 cannot resolve, and labels of very different size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from torch import Tensor

from dcnn.auditing.findings import Finding
from dcnn.errors import InputError

IMBALANCE = 100.0  # ratio of label sizes


def label_findings(values: Mapping[str, Any], target_error: float | Mapping[str, float] | None) -> Iterator[Finding]:
    """DC401: float32 spacing against the error aimed at; DC402: sizes of the labels against each other."""
    if not isinstance(values, Mapping):
        raise InputError(f"audit: labels= must be a dictionary of name → labels, got {type(values).__name__}")
    sizes: dict[str, float] = {}
    for name, value in values.items():
        array = _numbers(name, value)
        bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1))
        if len(bad):
            raise InputError(f"labels {name!r}: rows {bad[:5].tolist()} hold NaN or inf ({len(bad)} rows in all)")
        sizes[name] = float(np.sqrt(np.mean(array**2)))
        spacing = float(np.spacing(np.float32(np.abs(array).max())))
        target = target_error.get(name) if isinstance(target_error, Mapping) else target_error
        if target is None:
            target = 1e-3 * float(array.std())
        if 0 < target < spacing:
            yield Finding(
                "DC401",
                "warning",
                f"labels {name!r}",
                f"float32 numbers of this size lie {spacing:.2g} apart, but the error aimed at is {target:.2g}. "
                "Dividing by a constant does not help; subtracting a reference in float64 does.",
                "dcnn.LabelScale.fit(dataset, references='elements'), or subtract the mean in float64 before the cast",
                {"float32_spacing": spacing, "target_error": float(target)},
            )
    for (a, size_a), (b, size_b) in combinations(sizes.items(), 2):
        ratio = max(size_a, size_b) / max(min(size_a, size_b), 1e-300)
        if ratio > IMBALANCE:
            yield Finding(
                "DC402",
                "warning",
                f"labels {a!r} and {b!r}",
                f"Their root mean squares are {size_a:.2g} and {size_b:.2g}, a factor of {ratio:.0f}: one term of the "
                "loss hides the other.",
                "dcnn.LabelScale.fit(dataset, references='elements', unit='force_rms'): references remove the offset, "
                "one unit serves values and derivatives",
                {"ratio": ratio},
            )


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        array = np.atleast_1d(np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"labels {name!r} are not numbers: {error}") from None
    if array.size == 0:
        raise InputError(f"labels {name!r} are empty")
    return array
