"""How value and derivative travel through the layers, measured with the model's own input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dcnn.activations import from_torch
from dcnn.audit.findings import Finding, LayerSignal
from dcnn.audit.subject import Subject

TOO_SMALL, TOO_LARGE = 1e-4, 1e4  # of the first layer's signal
_STEP = 1e-5


def measure(model: nn.Module, subject: Subject, generator: torch.Generator) -> tuple[LayerSignal, ...]:
    """One row per linear layer in the order of the forward pass.

    The derivative along a random direction is a central difference of two passes in float64, so that it needs
    nothing of the layers but their outputs.
    """
    direction = torch.randn(subject.x.shape, generator=generator, dtype=subject.x.dtype).to(subject.x.device)
    seen: list[dict[str, tuple[Tensor, bool]]] = []
    for shift in (0.0, _STEP, -_STEP):
        with torch.no_grad(), _recorded(model) as record:
            subject.predict(model, subject.x + shift * direction)
        seen.append(record)
    here, ahead, behind = seen
    rows: list[LayerSignal] = []
    for name, (value, is_activation) in here.items():
        slope = (ahead[name][0] - behind[name][0]) / (2 * _STEP)
        if not is_activation:
            rows.append(LayerSignal(name, _rms(value), _rms(slope)))
        elif rows:
            ratio = _appendix_ratio(model.get_submodule(name.split("#")[0]), value, slope)
            rows[-1] = LayerSignal(rows[-1].name, rows[-1].value_rms, rows[-1].derivative_rms, ratio)
    return tuple(rows)


def judge(layers: tuple[LayerSignal, ...]) -> Iterator[Finding]:
    """DC501 and DC502: the layer where the signal has most clearly died or exploded."""
    fix = "dcnn.activations.init_(model, sample), or fewer layers with a growing activation (where='alternate')"
    for code, what, values in (
        ("DC501", "value", [layer.value_rms for layer in layers]),
        ("DC502", "derivative", [layer.derivative_rms for layer in layers]),
    ):
        if not values or values[0] == 0:
            continue
        shares = [value / values[0] for value in values]
        for word, bad in (
            ("dies", [i for i, share in enumerate(shares) if share < TOO_SMALL]),
            ("explodes", [i for i, share in enumerate(shares) if not share < TOO_LARGE]),
        ):
            if bad:
                layer = layers[bad[0]]
                yield Finding(
                    code,
                    "error",
                    layer.name,
                    f"The {what} {word}: its root mean square is {values[bad[0]]:.2g} here, "
                    f"{values[0]:.2g} in the first layer ({layers[0].name}).",
                    fix,
                    {"first_rms": values[0], "here_rms": values[bad[0]]},
                )


def _appendix_ratio(module: nn.Module, z: Tensor, slope: Tensor) -> float | None:
    """mean |σ″(z)·∂z/∂x| / mean |σ′(z)|."""
    activation = from_torch(module)
    if activation is None:
        return None
    first, second = activation.derivative(z, 1), activation.derivative(z, 2)
    return float((second * slope).abs().mean() / first.abs().mean().clamp_min(1e-300))


def _rms(value: Tensor) -> float:
    return float(value.double().square().mean().sqrt()) if value.numel() else 0.0


@contextmanager
def _recorded(model: nn.Module) -> Iterator[dict[str, tuple[Tensor, bool]]]:
    """Outputs of linear and convolutional layers, inputs of activations; `#n` marks the n-th call of a module.

    A layer whose weights are all zero (a read-out that starts at zero on purpose) says nothing and is left out.
    """
    record: dict[str, tuple[Tensor, bool]] = {}
    handles = []

    def keep(name: str, value: Tensor, is_activation: bool) -> None:
        calls = sum(1 for key in record if key.split("#")[0] == name)
        record[name if calls == 0 else f"{name}#{calls + 1}"] = (value.detach(), is_activation)

    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)) and bool(module.weight.any()):
            handles.append(module.register_forward_hook(lambda m, i, o, name=name: keep(name, o, False)))
        elif name and from_torch(module) is not None:
            handles.append(module.register_forward_hook(lambda m, i, o, name=name: keep(name, i[0], True)))
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()
