"""DC601 and DC701: what a potential must not do, jump at its cutoff and change with the frame of reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.auditing.differentiable_sample import DifferentiableSample
from dcnn.auditing.findings import Finding
from dcnn.auditing.prediction_checks import input_gradient

JUMP = 1e-3  # at the cutoff, relative to the size of the derivative
ROTATION = 1e-6  # relative to the spread of predictions


def cutoff_findings(
    model: nn.Module, sample: DifferentiableSample, original: Any, skipped: dict[str, str]
) -> Iterator[Finding]:
    """DC601: prediction and derivative just inside and just outside the cutoff."""
    assert sample.crossings is not None
    worst: dict[str, float] = {}
    pairs = sample.crossings(original)
    if not pairs:
        skipped["cutoff"] = "the first system has no pair that could cross it"
    for inside, outside in pairs:
        (y_in, slope_in), (y_out, slope_out) = (_value_and_slope(model, side) for side in (inside, outside))
        size = float(slope_in.norm()) + 1e-300
        for what, jump in (("value", (y_in - y_out).abs().max()), ("derivative", (slope_in - slope_out).norm())):
            worst[what] = max(worst.get(what, 0.0), float(jump) / size)
    jumps = {what: share for what, share in worst.items() if share > JUMP}
    if jumps:
        text = " and ".join(f"the {what} by {share:.2g}" for what, share in jumps.items())
        yield Finding(
            "DC601",
            "error",
            "cutoff",
            f"When an atom crosses the cutoff, {text} of the size of the derivative jumps. MD heats up and "
            "optimisers stall.",
            "multiply messages by a smooth envelope (dcnn.atoms.build(..., fidelity='text') does)",
            jumps,
        )


def _value_and_slope(model: nn.Module, sample: DifferentiableSample) -> tuple[Tensor, Tensor]:
    slope = input_gradient(model, sample, sample.x)
    with torch.no_grad():
        return sample.predict(model), torch.zeros_like(sample.x) if slope is None else slope


def rotation_findings(model: nn.Module, sample: DifferentiableSample, generator: torch.Generator) -> Iterator[Finding]:
    """DC701: predictions before and after a random rotation, relative to their spread, beyond rounding."""
    assert sample.rotated is not None
    d = sample.x.shape[-1]
    matrix = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    matrix = matrix * torch.sign(torch.det(matrix))
    before, slope = _value_and_slope(model, sample)
    with torch.no_grad():
        after = sample.rotated(matrix.to(sample.x.device)).predict(model)
    spread = float(before.std()) if len(before) > 1 else 0.0
    reach = float((slope * sample.scale).abs().max())  # by how much a move of the size of the input changes it
    eps = torch.finfo(sample.x.dtype).eps
    rounding = 1e5 * eps * (float(before.abs().max()) + float((slope * sample.x).abs().max()))
    change = float((after - before).abs().max())
    if change > max(ROTATION * max(spread, reach), rounding):
        yield Finding(
            "DC701",
            "warning",
            "prediction",
            f"A rotation of the input changes the prediction by {change:.2g} (its spread over the sample is "
            f"{spread:.2g}): the network knows the lab frame.",
            "use an invariant network (schnet, dimenet_plus_plus, gemnet), or train on randomly rotated frames",
            {"change": change, "spread": spread},
        )
