"""Checks of the prediction as a function: its gradient, whether it can be trained, whether it is constant or jumps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from dcnn.auditing.activation_checks import FEW, derivative
from dcnn.auditing.differentiable_sample import DifferentiableSample
from dcnn.auditing.findings import Finding
from dcnn.auditing.op_recorder import Record, recorded
from dcnn.errors import InputError, first_line

NOT_THE_GRADIENT = {torch.float64: 1e-4, torch.float32: 0.05}  # relative to the derivative along the same direction
STEPS = {torch.float64: (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7), torch.float32: (0.1, 3e-2, 1e-2, 3e-3, 1e-3)}
CONSTANT = 1e-6  # spread of predictions relative to that of the labels, or of hidden values relative to their size


def gradient_findings(
    model: nn.Module, sample: DifferentiableSample, claimed: Callable[[Any, Any], Any] | None, skipped: dict[str, str]
) -> Iterator[Finding]:
    """DC301/DC302: the derivative in use against central differences of the prediction along random directions.

    Steps follow the scale of the input and shrink until the two agree, so that neither fast oscillations nor kinks
    count. The point is moved a little first: at a kink itself autograd has to choose a side.
    """
    generator = torch.Generator().manual_seed(1)
    start = sample.x + 1e-4 * sample.direction(generator)
    slope = _claimed(model, sample, start, claimed) if claimed is not None else input_gradient(model, sample, start)
    if slope is None:
        yield _no_gradient("The prediction does not depend on the input through the autograd graph.")
        return
    if not slope.isfinite().all():
        bad = float((~slope.isfinite()).double().mean())
        weights = [name for name, p in model.named_parameters() if not p.isfinite().all()]
        why = f"the weights {', '.join(weights[:3])} are" if weights else "sqrt or norm at zero, or an overflow"
        yield _no_gradient(f"The derivative is NaN or infinite in {bad:.0%} of its components ({why}).")
        return
    dtype = sample.x.dtype
    tolerance = NOT_THE_GRADIENT[dtype]
    worst = size = 0.0
    for _ in range(3):
        v = sample.direction(generator)
        known = float((slope * v).sum())
        found: list[tuple[float, float, float]] = []
        for step in STEPS[dtype]:
            with torch.no_grad():
                ahead, here_, behind = (sample.predict(model, start + h * v).double() for h in (step, 0.0, -step))
            rounding = 4 * torch.finfo(dtype).eps * float(ahead.abs().max()) * ahead.numel() ** 0.5 / step
            slope_here = float((ahead - behind).sum()) / (2 * step)
            off = abs(slope_here - known)
            if dtype != torch.float64:  # steps are so wide that bends and kinks between the sides must be allowed for
                off -= float((ahead - 2 * here_ + behind).abs().sum()) / (2 * step)
            found.append((off, abs(slope_here), rounding))
        here = max(abs(known), min(f[1] for f in found))
        exact = [f for f in found if f[2] < 0.1 * tolerance * max(here, size)]
        if exact:
            worst, size = max(worst, min(f[0] for f in exact)), max(size, here)
    if not bool(slope.any()) and claimed is None and _varies(model, sample):
        yield _no_gradient(
            "The derivative is zero at every point although the prediction differs from point to point: values are "
            "rounded or compared on the way, or all activations are saturated."
        )
    elif size == 0:
        skipped["derivative against finite differences"] = "the prediction changes less than rounding along the input"
    elif worst / size > tolerance:
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


def _varies(model: nn.Module, sample: DifferentiableSample) -> bool:
    with torch.no_grad():
        y = sample.predict(model)
    return len(y) > 1 and bool((y != y[:1]).any())


def input_gradient(model: nn.Module, sample: DifferentiableSample, start: Tensor) -> Tensor | None:
    x = start.clone().requires_grad_()
    with torch.enable_grad():
        y = sample.predict(model, x)
        if not y.requires_grad:
            return None
        return torch.autograd.grad(y.sum(), x, allow_unused=True)[0]


def _claimed(
    model: nn.Module, sample: DifferentiableSample, start: Tensor, claimed: Callable[[Any, Any], Any]
) -> Tensor:
    with torch.enable_grad():
        slope = claimed(model, sample.rebuild(start.clone().requires_grad_()))
    if not isinstance(slope, Tensor) or slope.shape != start.shape:
        got = tuple(slope.shape) if isinstance(slope, Tensor) else type(slope).__name__
        raise InputError(f"audit: derivative= must return a tensor like the input, {tuple(start.shape)}; it gave {got}")
    return slope.detach().to(start)


def _no_gradient(message: str) -> Finding:
    fix = "remove .detach(), .item(), numpy(), rounding and torch.no_grad() from the forward pass"
    return Finding("DC302", "error", "prediction", message, fix)


def trainable_findings(model: nn.Module, sample: DifferentiableSample, order: int) -> Iterator[Finding]:
    """DC303: the gradient of derivatives of this order with respect to the weights must exist."""

    def attempt() -> str | None:
        x = sample.x.clone().requires_grad_()
        try:
            with torch.enable_grad():
                g = sample.predict(model, x).sum()
                for _ in range(order):
                    (g,) = torch.autograd.grad(g.sum(), x, create_graph=True, allow_unused=True)
                    if g is None or not g.requires_grad:
                        return None
                if _has_dead_end(g.grad_fn):
                    return (
                        "a function on the way can be differentiated once only, so that no weight before it is trained"
                    )
                weights = [p for p in model.parameters() if p.requires_grad and p.is_floating_point()]
                torch.autograd.grad(g.square().sum(), [*weights, x], allow_unused=True)
        except RuntimeError as error:
            return first_line(error)
        return None

    failure = attempt() if order >= 1 else None
    if failure is None:
        return
    with sdpa_kernel(SDPBackend.MATH):
        kernel = attempt() is None
    yield Finding(
        "DC303",
        "warning" if kernel else "error",
        "prediction",
        f"A loss with derivatives of order {order} cannot be differentiated with respect to the weights: {failure}.",
        "train inside `with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`, the only attention "
        "kernel with second derivatives"
        if kernel
        else "write the operation that is named with elementary ones, or give it a differentiable backward",
    )


def _has_dead_end(node: Any) -> bool:
    """Does the graph hold the node that torch leaves in the place of a missing second derivative?"""
    waiting, seen = [node], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name().endswith("Error"):
            return True
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
    return False


def outside_findings(model: nn.Module, sample: DifferentiableSample, order: int) -> Iterator[Finding]:
    """DC101 for code that cannot be read: the prediction bends nowhere, although its slope changes."""
    if order < 1 or sample.x.dtype != torch.float64:
        return
    v = sample.direction(torch.Generator().manual_seed(2))

    def along(t: Tensor) -> Tensor:
        with torch.no_grad():
            return sample.predict(model, sample.x + float(t) * v)

    one = torch.ones((), dtype=torch.float64)
    slopes = [derivative(along, one * t, one, 1) for t in (-0.5, 0.0, 0.5)]
    size = max(float(s.abs().max()) for s in slopes)
    bend = torch.stack([derivative(along, one * t, 1e-2 * one, 2) * 1e4 for t in (-0.5, 0.0, 0.5)]).abs()
    differs = max(float((s - slopes[1]).abs().max()) for s in slopes)
    share = float((bend > 1e-4 * size).double().mean())
    if size > 0 and differs > 1e-5 * size and share < max(FEW[2], 0.2):
        yield Finding(
            "DC101",
            "error",
            "prediction",
            f"Seen from outside, the prediction is a straight line piece by piece: its second derivative is zero at "
            f"{1 - share:.0%} of the points. A loss with derivatives trains through slopes alone.",
            "use activations with a second derivative (silu, tanh, softplus, dcnn.activations.IReLU)",
            {"order": order, "vanishing_order": 2},
        )


def selection_findings(
    model: nn.Module, sample: DifferentiableSample, record: Record, y: Tensor, order: int
) -> Iterator[Finding]:
    """DC102 for maxima over several values (max-pooling, top-k): the derivative jumps when another one wins."""
    seen: set[str] = set()
    for op in record.ops:
        if order < 1 or not op.selecting or op.module in seen or not record.values[op.out].is_floating_point():
            continue
        _, nudged = recorded(model, sample.predict, sample.x, nudge=op.call)
        if float((nudged - y).abs().max()) <= 1e-9 * float(y.abs().max()):
            continue  # a maximum that cancels, as in a softmax
        seen.add(op.module)
        where = op.module or f"model.forward: {op.name}()"
        yield Finding(
            "DC102",
            "warning",
            where,
            f"{op.name} takes the largest or smallest of several values: the derivative of the prediction jumps where "
            "another one takes its place.",
            "average pooling, a sum, or a smooth maximum (torch.logsumexp)",
            {"order": order},
        )


def constant_findings(
    model: nn.Module, sample: DifferentiableSample, labels: Mapping[str, Any] | None, skipped: dict[str, str]
) -> Iterator[Finding]:
    """DC901: the spread of the predictions over the sample, against that of the labels.

    Without labels a small spread around a large mean may be right (energies), so the values inside must have lost their
    spread as well.
    """
    record, y = recorded(model, sample.predict, sample.x)
    same = len(y) == len(sample.x) and not bool((sample.x != sample.x[:1]).any())
    if len(y) < 2 or same:
        skipped["constant prediction"] = "give a sample of at least two different points"
        return
    spread, size = float(y.reshape(len(y), -1).std(0).max()), float(y.abs().max())
    first = None if not labels else np.asarray(_array(next(iter(labels.values()))), dtype=np.float64)
    wanted = 0.0 if first is None or first.size < 2 else float(first.std())
    if wanted > 0:
        constant = spread <= CONSTANT * wanted
    else:
        inside = [value.detach() for value, number in record.layers.values() if number is not None][:-1] or [sample.x]
        lost = [v.dim() > 0 and float(v.std(0).max()) <= CONSTANT * float(v.abs().max()) for v in inside if len(v) > 1]
        constant = spread <= 1e-10 * size or (spread <= CONSTANT * size and bool(lost) and lost[-1])
    if constant:
        yield Finding(
            "DC901",
            "error",
            "prediction",
            f"Over {len(y)} samples the prediction has a standard deviation of {spread:.2g} around "
            f"{float(y.mean()):.3g}: it is one constant. Its derivatives are zero, and so is many a PDE's residual.",
            "dcnn.activations.init_(model, sample) before training; compare with the error of the mean predictor",
            {"standard_deviation": spread, "mean": float(y.mean())},
        )


def _array(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value
