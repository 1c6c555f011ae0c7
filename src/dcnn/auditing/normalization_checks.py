"""DC201 and DC202: normalizations, and how much of a derivative the other samples of a batch supply."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from dcnn.auditing.differentiable_sample import DifferentiableSample
from dcnn.auditing.findings import Finding
from dcnn.auditing.measured_copy import every_module
from dcnn.auditing.op_recorder import Record
from dcnn.surgery import recognise

COUPLING = 1e-6  # share of another sample's derivative that is more than rounding


def normalizations(model: nn.Module, record: Record) -> dict[str, str]:
    """Place → kind, of modules that are norms and of norms called in a forward."""
    found = {name: kind for name, m in every_module(model) if (kind := recognise.normalization(m)) in recognise.KINDS}
    for name, kind in record.norms.items():
        if not any(name == known or name.startswith(f"{known}.") for known in found if known):
            found.setdefault(f"{name or 'model'}.forward: {kind}_norm()", kind)
    return {name: str(kind) for name, kind in found.items()}


def normalization_findings(
    model: nn.Module, training: nn.Module, sample: DifferentiableSample, record: Record, skipped: dict[str, str]
) -> Iterator[Finding]:
    """DC201 for every layer; DC202 with the measured share of ∂y_a/∂x_b, a ≠ b, that training mode brings."""
    found = normalizations(model, record)
    for name, kind in found.items():
        yield Finding(
            "DC201",
            "info" if kind in ("layer", "rms") else "warning",
            name,
            f"A {kind} normalization: its output has no unit, so the derivative of the prediction depends on the "
            "statistics it divides by.",
            f"dcnn.denormalize(model, kinds={kind!r}), with fold=True to keep a trained network's outputs"
            if kind == "batch"
            else f"dcnn.denormalize(model, kinds={kind!r})",
        )
    batch = [name for name, kind in found.items() if kind == "batch"]
    trained, tested = (coupling(each, sample) for each in (training, model))
    if trained is None or tested is None:
        skipped["samples that depend on each other"] = "the rows of the prediction are not those of the sample"
        return
    if trained <= COUPLING:
        return
    if tested > COUPLING and not batch:
        skipped["samples that depend on each other"] = (
            f"other samples supply {tested:.2g} times the derivative of a sample's own prediction in evaluation mode "
            "too, without batch normalization: taken as meant (attention, a graph)"
        )
        return
    mode = "none" if tested <= COUPLING else f"{tested:.2g} times"
    yield Finding(
        "DC202",
        "error",
        ", ".join(batch) or "prediction",
        f"In training mode other samples supply {trained:.2g} times the derivative of a sample's own prediction; in "
        f"evaluation mode they supply {mode}. The function that is trained is not the function that is tested.",
        "dcnn.denormalize(model, kinds='batch')",
        {"cross_sample_share": trained},
    )


def coupling(model: nn.Module, sample: DifferentiableSample) -> float | None:
    """‖Σ_{b≠a} ∂y_b/∂x_a‖ / ‖∂y_a/∂x_a‖ over a few samples a, in the mode of the model; None if it has no meaning."""
    x = sample.x.clone().requires_grad_()
    with torch.enable_grad():
        y = sample.predict(model, x)
        if len(y) != int(sample.group.max()) + 1 or not y.requires_grad:
            return None
        y = y.reshape(len(y), -1).sum(1)  # (B,)
        (total,) = torch.autograd.grad(y.sum(), x, retain_graph=True, allow_unused=True)
        if total is None:
            return None
        own, other = 0.0, 0.0
        for number in range(min(len(y), 4)):
            (mine,) = torch.autograd.grad(y[number], x, retain_graph=True)
            rows = sample.group == number
            own += float(mine[rows].square().sum())
            other += float((total - mine)[rows].square().sum())
    return (other / own) ** 0.5 if own > 0 else 0.0
