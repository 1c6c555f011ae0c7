"""How value and derivative travel through the layers, measured with the model's own input."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from dcnn.auditing.activation_checks import _chain, _sinks, derivative, evaluate, spread_of
from dcnn.auditing.differentiable_sample import DifferentiableSample
from dcnn.auditing.findings import Finding, LayerSignal
from dcnn.auditing.op_recorder import Op, Record, recorded

TOO_SMALL, TOO_LARGE = 1e-4, 1e4  # of the signal of the first layer that depends on the input
_STEP = 1e-5  # of the scale of the input
_AFFINE = {"add", "sub", "rsub", "neg", "mul", "div"}


def measured_layers(
    model: nn.Module, sample: DifferentiableSample, here: Record, generator: torch.Generator
) -> tuple[LayerSignal, ...]:
    """One row per layer in the order of the forward pass; what does not depend on the input has a derivative of 0.

    The derivative along a random direction is a central difference of two passes, so that it needs nothing of the
    layers but their outputs.
    """
    direction = sample.direction(generator)
    step = _STEP if sample.x.dtype == torch.float64 else 1e-2
    ahead, behind = (recorded(model, sample.predict, sample.x + h * direction)[0].layers for h in (step, -step))
    consumers = here.consumers()
    rows: list[LayerSignal] = []
    for name, (value, number) in here.layers.items():
        slope = torch.zeros_like(value)
        if number is not None and all(name in side and side[name][0].shape == value.shape for side in (ahead, behind)):
            slope = ((ahead[name][0] - behind[name][0]) / (2 * step)).detach()
        ratio = None if number is None else _appendix_ratio(here, number, slope, consumers)
        rows.append(LayerSignal(name, _rms(value), _rms(slope), ratio, number is not None))
    return tuple(rows)


def signal_findings(layers: tuple[LayerSignal, ...]) -> Iterator[Finding]:
    """DC501 and DC502: the layer from which on the signal has died or exploded, up to the last one.

    Only layers that depend on the input count, from the first of them; a branch in which a signal is small does no harm
    as long as later layers have it.
    """
    layers = tuple(layer for layer in layers if layer.depends_on_input)
    fix = "dcnn.activations.init_(model, sample), or fewer layers with a growing activation (where='alternate')"
    for code, what, values in (
        ("DC501", "value", [layer.value_rms for layer in layers]),
        ("DC502", "derivative", [layer.derivative_rms for layer in layers]),
    ):
        shares = [value / values[0] if values[0] > 0 else 1.0 for value in values]
        for word, bad in (
            ("dies", [share < TOO_SMALL for share in shares]),
            ("explodes", [not share < TOO_LARGE for share in shares]),
        ):
            if not bad or not bad[-1]:
                continue
            since = len(bad) - next((i for i, is_bad in enumerate(reversed(bad)) if not is_bad), len(bad))
            slopes = [layers[i].derivative_rms for i in (0, since)]
            if slopes[1] > 0.1 * slopes[0] if word == "dies" else slopes[1] < 10 * slopes[0]:
                continue  # a large or small bias, not a signal
            layer = layers[since]
            yield Finding(
                code,
                "error",
                layer.name,
                f"The {what} {word}: its root mean square is {values[since]:.2g} here, {values[0]:.2g} in the first "
                f"layer that depends on the input ({layers[0].name}).",
                fix,
                {"first_rms": values[0], "here_rms": values[since]},
            )


def _appendix_ratio(record: Record, number: int, slope: Tensor, consumers: dict[int, list[Op]]) -> float | None:
    """mean |σ″(z)·∂z/∂x| / mean |σ′(z)| of the activation that the layer's output goes through."""
    chain = _chain(number, consumers)
    if not any(op.name not in _AFFINE and not op.is_shape for op in chain):
        return None
    z = record.values[number].detach()
    for sink in _sinks(number, chain, consumers, record):
        if record.values[sink].shape != z.shape:
            continue
        with torch.no_grad():
            scale = spread_of(z).clamp_min(1e-300)

            def function(value: Tensor, sink: int = sink) -> Tensor:
                return evaluate(record, chain, number, sink, value)

            first, second = (derivative(function, z, scale, n) / scale**n for n in (1, 2))
        return float((second * slope).abs().mean() / first.abs().mean().clamp_min(1e-300))
    return None


def _rms(value: Tensor) -> float:
    return float(value.detach().double().square().mean().sqrt()) if value.numel() else 0.0
