"""Errors of a network against a reference, beside those of the trivial solution."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dcnn.pde.network import PdeNetwork
from dcnn.pde.solution import Array, Solution
from dcnn.pde.windows import Windows

LAST_TIMES = 20  # what the published scripts test on
CHUNK = 16384  # points evaluated at once
DOMAIN = 200_000  # points for the errors of the whole domain
COARSE = 20_000  # points of a validation


def errors(network: PdeNetwork | Windows, reference: Solution, coarse: bool = False) -> dict[str, float]:
    """mse, nrmse (last 20 times), nrmse_domain and constant_nrmse, and nrmse of every field if there are several.

    nRMSE is the mean over fields and times of rms_x(error) / rms_x(reference), as PDEBench has it. The constant
    predictor knows the mean of every field over the whole domain. The last 20 times are taken on the whole grid (with
    `coarse` on part of it), mse and nrmse_domain on about 200,000 points of it.
    """
    timed = "t" in reference.grid and len(reference.grid) > 1  # ordinary equations: over all times, as one
    late = reference.at("t", slice(-LAST_TIMES, None)) if timed else reference
    late = thinned(late, COARSE) if coarse else late
    whole = thinned(reference, COARSE if coarse else DOMAIN)
    found, truth = on_grid(network, late)
    means = [np.nanmean(values) for values in reference.fields.values()]
    constant = np.broadcast_to(np.reshape(means, (-1, *[1] * (truth.ndim - 1))), truth.shape)
    by_field = nrmse(found, truth, timed)
    everywhere = (found, truth) if whole.shape == late.shape else on_grid(network, whole)
    result = {
        "mse": float(_mean_square(everywhere[0] - everywhere[1], ~np.isnan(everywhere[1]))),
        "nrmse": float(by_field.mean()),
        "nrmse_domain": float(nrmse(*everywhere, timed).mean()),
        "constant_nrmse": float(nrmse(constant, truth, timed).mean()),
    }
    if len(by_field) > 1:
        result |= {f"nrmse_{name}": float(e) for name, e in zip(reference.fields, by_field, strict=True)}
    return result


def errors_over(
    network: PdeNetwork | Windows, reference: Solution, ranges: Iterable[str], coarse: bool = False
) -> dict[str, Any]:
    """The mean of :func:`errors` over the values of parameters that have a range, and the nrmse at each of them."""
    parts = {"": reference}
    for name in ranges:
        parts = {
            f"{label} {name}={value:.6g}".strip(): part.at(name, slice(n, n + 1))
            for label, part in parts.items()
            for n, value in enumerate(reference.grid[name])
        }
    found = {label: errors(network, part, coarse) for label, part in parts.items()}
    if "" in found:
        return found[""]
    names = next(iter(found.values()))
    mean = {name: float(np.mean([each[name] for each in found.values()])) for name in names}
    return mean if coarse else {**mean, "by_parameter": {label: each["nrmse"] for label, each in found.items()}}


def on_grid(network: PdeNetwork | Windows, reference: Solution) -> tuple[Array, Array]:
    """(fields, x, …, t) of the network and of the reference, for the fields that the reference knows."""
    columns = [network.problem.fields.index(name) for name in reference.fields]
    found = predict(network, reference.points())[:, columns].T  # (fields, N)
    return found.reshape(-1, *reference.shape), np.stack(list(reference.fields.values()))


def nrmse(found: Array, truth: Array, timed: bool) -> Array:
    """rms(found − truth)/rms(truth) over space, averaged over times (last axis) if `timed`; one number a field.

    Outside the shape of a domain the truth is NaN, and does not count.
    """
    rows = (len(truth), -1, truth.shape[-1] if timed else 1)
    known = ~np.isnan(truth).reshape(rows)
    error, size = (
        np.sqrt(_mean_square(a.reshape(rows), known, axis=1)) for a in (found - truth, truth)
    )  # (fields, times)
    return np.asarray((error / np.maximum(size, 1e-300)).mean(1))


def _mean_square(values: Array, known: Array, axis: int | None = None) -> Array:
    """The mean over what is `known`; a NaN of the network is no hole in the reference, and stays."""
    return np.asarray((np.where(known, values, 0.0) ** 2).sum(axis) / known.sum(axis))


def predict(network: nn.Module, points: Array | Tensor) -> Array:
    """The fields (N, fields) in float64 at many points, a part at a time."""
    first = next(network.parameters())
    rows = torch.as_tensor(np.asarray(points)).to(first)
    with torch.no_grad():
        return torch.cat([network(part) for part in rows.split(CHUNK)]).double().cpu().numpy()


def thinned(reference: Solution, most: int) -> Solution:
    """About `most` of the points: whole times are kept, space is taken at equal strides."""
    space = [axis for axis in reference.grid if axis != "t"]
    stride = max(1, round((np.prod(reference.shape) / most) ** (1 / max(1, len(space)))))
    for axis in space:
        reference = reference.at(axis, slice(None, None, stride))
    return reference
