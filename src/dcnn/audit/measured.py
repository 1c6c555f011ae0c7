"""What must be measured by running the model: one function a check, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dcnn.audit.find import find_normalizations
from dcnn.audit.findings import Finding
from dcnn.audit.subject import Subject, in_double

COUPLING = 1e-6  # share of another sample's derivative that is more than rounding
NOT_THE_GRADIENT = 1e-4  # relative to the derivative along the same direction
JUMP = 1e-3  # at the cutoff, relative to the spread of predictions or the size of derivatives
ROTATION = 1e-6  # relative to the spread of predictions
ONE_TERM = 0.999  # share of the summed gradient norms
CONFLICT = -0.3  # cosine between the gradients of two terms
CONSTANT = 1e-6  # spread of predictions relative to labels, or to their mean


def normalization(model: nn.Module, subject: Subject) -> Iterator[Finding]:
    """DC201 for every layer; DC202 with the measured share of ∂y_a/∂x_b, a ≠ b, that batch statistics bring."""
    found = list(find_normalizations(model))
    for name, kind in found:
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
    batch = [name for name, kind in found if kind == "batch"]
    if not batch:
        return
    share = coupling(in_double(model, training=True), subject)
    if share > COUPLING:
        yield Finding(
            "DC202",
            "error",
            ", ".join(batch),
            f"In training mode other samples supply {share:.2g} times the derivative of a sample's own prediction; in "
            "evaluation mode they supply none. The function that is trained is not the function that is tested.",
            "dcnn.denormalize(model, kinds='batch')",
            {"cross_sample_share": share},
        )


def coupling(model: nn.Module, subject: Subject) -> float:
    """‖Σ_{b≠a} ∂y_b/∂x_a‖ / ‖∂y_a/∂x_a‖ over a few samples a, in the mode the model is in."""
    x = subject.x.clone().requires_grad_()
    y = subject.predict(model, x)
    y = y.reshape(len(y), -1).sum(1)  # (B,)
    (total,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    own, other = 0.0, 0.0
    for sample in range(min(len(y), 4)):
        (mine,) = torch.autograd.grad(y[sample], x, retain_graph=True)
        rows = subject.group == sample
        own += float(mine[rows].square().sum())
        other += float((total - mine)[rows].square().sum())
    return (other / own) ** 0.5 if own > 0 else 0.0


def true_gradient(
    model: nn.Module, subject: Subject, derivative: Callable[[nn.Module, Any], Tensor] | None, sample: Any
) -> Iterator[Finding]:
    """DC301/DC302: the derivative in use against central differences of the prediction along random directions."""
    step = 1e-5
    if derivative is not None:
        with torch.enable_grad():
            slope = derivative(in_double(model), sample).detach().double()
    else:
        x = subject.x.clone().requires_grad_()
        y = subject.predict(model, x)
        if not y.requires_grad:
            yield _no_gradient()
            return
        (found,) = torch.autograd.grad(y.sum(), x, allow_unused=True)
        if found is None:
            yield _no_gradient()
            return
        slope = found
    generator = torch.Generator().manual_seed(0)
    worst, size = 0.0, 0.0
    for _ in range(3):
        v = torch.randn(subject.x.shape, generator=generator, dtype=torch.float64).to(slope.device)
        with torch.no_grad():
            ahead, behind = (subject.predict(model, subject.x + h * v).sum() for h in (step, -step))
        measured = float((ahead - behind) / (2 * step))
        rounding = 1e-15 * float(ahead.abs()) / step
        worst = max(worst, abs(float((slope * v).sum()) - measured) - rounding)
        size = max(size, abs(measured), abs(float((slope * v).sum())))
    if size > 0 and worst / size > NOT_THE_GRADIENT:
        yield Finding(
            "DC301",
            "error",
            "prediction",
            f"Along random directions the derivative differs from the prediction's own slope by {worst / size:.1%} "
            "(central differences): part of the path from input to output is detached, or the derivative is a separate "
            "output. Energy is not conserved by such forces.",
            "remove .detach(), .data and torch.no_grad() between input and output, and use dcnn.derivatives.gradient",
            {"relative_difference": worst / size},
        )


def _no_gradient() -> Finding:
    return Finding(
        "DC302",
        "error",
        "prediction",
        "The prediction does not depend on the input through the autograd graph.",
        "remove .detach(), .item(), numpy() and torch.no_grad() from the forward pass",
    )


def cutoff(model: nn.Module, subject: Subject) -> Iterator[Finding]:
    """DC601: prediction and derivative a hair's breadth inside and outside the cutoff."""
    assert subject.crossings is not None
    worst: dict[str, float] = {}
    for inside, outside in subject.crossings():
        (y_in, slope_in), (y_out, slope_out) = (
            _value_and_slope(model, inside),
            _value_and_slope(model, outside),
        )
        size = float(slope_in.norm()) + 1e-300
        for what, jump in (
            ("value", (y_in - y_out).abs().max()),
            ("derivative", (slope_in - slope_out).norm()),
        ):
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


def _value_and_slope(model: nn.Module, subject: Subject) -> tuple[Tensor, Tensor]:
    x = subject.x.clone().requires_grad_()
    y = subject.predict(model, x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), slope


def rotation(model: nn.Module, subject: Subject, generator: torch.Generator) -> Iterator[Finding]:
    """DC701: predictions before and after a random rotation, relative to their spread."""
    assert subject.rotated is not None
    d = subject.x.shape[-1]
    matrix = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    matrix = matrix * torch.sign(torch.det(matrix))
    with torch.no_grad():
        before, after = subject(model), subject.rotated(matrix.to(subject.x.device))(model)
    spread = float(before.std()) if len(before) > 1 else 0.0
    size = max(spread, 1e-9 * float(before.abs().max()), 1e-300)
    change = float((after - before).abs().max())
    if change / size > ROTATION:
        yield Finding(
            "DC701",
            "warning",
            "prediction",
            f"A rotation of the input changes the prediction by {change:.2g}, {change / size:.2g} times its spread "
            "over the sample: the network knows the lab frame.",
            "use an invariant network (schnet, dimenet_plus_plus, gemnet), or train on randomly rotated frames",
            {"change": change, "spread": spread},
        )


def terms(model: nn.Module, sample: Any, losses: Callable[[nn.Module, Any], Mapping[str, Tensor]]) -> Iterator[Finding]:
    """DC801/DC802: norms and angles of the terms' gradients with respect to the weights."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = {}
    for name in losses(model, sample):
        value = losses(model, sample)[name]  # a fresh graph for each term
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        gradients[name] = torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten()
                                     for p, g in zip(parameters, found, strict=True)]).double()  # fmt: skip
    norms = {name: float(gradient.norm()) for name, gradient in gradients.items()}
    total = sum(norms.values())
    for name, norm in norms.items():
        if len(norms) > 1 and total > 0 and norm / total > ONE_TERM:
            rest = ", ".join(f"{other} {value / total:.1e}" for other, value in norms.items() if other != name)
            yield Finding(
                "DC801",
                "warning",
                f"term {name!r}",
                f"It supplies {norm / total:.2%} of the gradient (the others: {rest}); they are not being trained.",
                "dcnn.LabelScale to give all labels one unit, or losses.weighting.get('gradnorm', terms)",
                {"share": norm / total},
            )
    for (a, g), (b, h) in combinations(gradients.items(), 2):
        if norms[a] == 0 or norms[b] == 0:
            continue
        cosine = float(g @ h) / (norms[a] * norms[b])
        if cosine < CONFLICT:
            yield Finding(
                "DC802",
                "warning",
                f"terms {a!r} and {b!r}",
                f"The cosine between their gradients is {cosine:.2f}: a step for one undoes the other.",
                "losses.weighting.get('config', terms) makes a step that lowers both",
                {"cosine": cosine},
            )


def collapsed(model: nn.Module, subject: Subject, values: Mapping[str, Any] | None) -> Iterator[Finding]:
    """DC901: the spread of the predictions over the sample, against that of the labels or their own mean."""
    with torch.no_grad():
        y = subject(model)
    if len(y) < 2:
        return
    spread = float(y.reshape(len(y), -1).std(0).max())
    size = float(y.abs().max())
    if values:
        first = next(iter(values.values()))
        size = max(size, float(np.std(np.asarray(first.detach().cpu() if isinstance(first, Tensor) else first))))
    if spread <= CONSTANT * max(size, 1e-12):
        yield Finding(
            "DC901",
            "error",
            "prediction",
            f"Over {len(y)} samples the prediction has a standard deviation of {spread:.2g} around "
            f"{float(y.mean()):.3g}: it is one constant. Its derivatives are zero, and so is many a PDE's residual.",
            "dcnn.activations.init_(model, sample) before training; compare with the error of the mean predictor",
            {"standard_deviation": spread, "mean": float(y.mean())},
        )
