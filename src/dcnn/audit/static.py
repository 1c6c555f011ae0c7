"""What can be read off a model and its labels without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
from torch import Tensor, nn

from dcnn.activations import from_torch
from dcnn.audit.find import find_activations
from dcnn.audit.findings import Finding
from dcnn.errors import InputError

IMBALANCE = 100.0  # ratio of label sizes


def activations(model: nn.Module, order: int) -> Iterator[Finding]:
    """DC101–DC103: a loss with k-th input derivatives trains through the (k+1)-th derivative of σ."""
    for name, value in find_activations(model):
        activation = from_torch(value)
        if activation is None:
            yield Finding(
                "DC103",
                "info",
                name,
                f"{getattr(value, '__name__', type(value).__name__)} is not an activation that dcnn knows, so its "
                "derivatives cannot be judged.",
                "dcnn.swap_activations(model, 'silu', where=[...]) with an activation that is known",
            )
            continue
        vanishing = activation.vanishing_order
        if vanishing is not None and vanishing <= order + 1:
            yield Finding(
                "DC101",
                "error",
                name,
                f"The loss holds derivatives of order {order}, so its gradient runs through derivative {order + 1} of "
                f"{activation.name}, which is zero almost everywhere (from order {vanishing} on): the derivative "
                "constraint trains through this layer's slope alone.",
                f"dcnn.swap_activations(model, {'silu' if order > 1 else 'irelu'!r}); silu, tanh and softplus have all "
                "derivatives",
                {"order": order, "vanishing_order": vanishing},
            )
        elif activation.smoothness < order:
            yield Finding(
                "DC102",
                "warning",
                name,
                f"Derivative {order} of {activation.name} jumps (it is C^{activation.smoothness:.0f}); so does the "
                "model's derivative, for instance the force.",
                "dcnn.swap_activations(model, 'silu')",
                {"order": order, "smoothness": activation.smoothness},
            )


def labels(values: Mapping[str, Any], target_error: float | Mapping[str, float] | None) -> Iterator[Finding]:
    """DC401: float32 spacing against the error aimed at; DC402: sizes of the labels against each other."""
    sizes: dict[str, float] = {}
    for name, value in values.items():
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
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
