"""Initialisation from data: value and input derivative keep their size through depth, for any activation.

Write z = W·h + b for a layer with input h, and ∂ for the derivative along the network's inputs. If the weights have
the scale s and the bias moves the mean of unit i to mᵢ,

    mean |∂z|² = s²·mean |∂h|²,      mean z² = s²·var h + mean m².

One scale cannot hold both. For z ~ N(0, 1) and IReLU, the s that keeps the value (s² = 8/3) multiplies the squared
derivative by 4/3 in every layer; the s that keeps the derivative (s² = 2) multiplies the squared value by 3/4. So s
is taken from the derivative, and the biases make up for the value. They can: var σ(z) ≤ var z · mean σ′(z)² for
Gaussian z (Poincaré's inequality), so the part of z that varies with the data never grows, and what it loses goes
into m. Positive mᵢ keep one-sided activations switched on.

What remains is that activations that grow like x² enlarge differences between inputs: the mean over the sample would
be held by a few extreme rows. The less of z varies, the closer to linear a layer is, so the varying share of the
first layer is halved until no such rows are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from dcnn.errors import InputError

_CONCENTRATION = 10.0  # 2 to 8 is usual for tanh, SiLU and ReLU, 20 layers deep
_HALVINGS = 12


class LayerMoments(NamedTuple):
    """Second moments of one linear layer's output z over a sample, averaged over its units."""

    name: str
    value: float  # mean z²
    variance: float  # the part of it that varies over the sample
    derivative: float  # mean Σⱼ (∂z/∂xⱼ)²
    concentration: float  # of the squared derivative d over the rows: mean d²/(mean d)², 1 if all rows are alike


def moments(model: nn.Module, sample: Any) -> list[LayerMoments]:
    """Second moments of value and input derivative after every linear layer, in the order of the forward pass.

    The derivative is measured along one random direction of ±1 a row, which is right on average. A layer that is
    used several times is measured the first time.
    """
    found: list[LayerMoments] = []

    def measure(name: str, layer: nn.Linear, h: Tensor, dh: Tensor) -> None:
        z = nn.functional.linear(h, layer.weight, layer.bias)  # (N, out)
        rows = (dh @ layer.weight.T).square().mean(1)  # (N,)
        slope = float(rows.mean())
        concentration = float((rows / slope).square().mean()) if slope > 0 else 1.0
        found.append(LayerMoments(name, _square(z), _square(z - z.mean(0)), slope, concentration))

    _visit(model, sample, measure)
    return found


def init_(model: nn.Module, sample: Any, value: float = 1.0, last: float = 1.0) -> list[LayerMoments]:
    """Draw all linear layers of ``model`` anew, in forward order, fitted to ``sample``.

    Every layer gets orthogonal weights, scaled so that the second moment of the input derivative is that of the
    first layer, and biases that bring the second moment of its output to ``value``. The last layer's output has
    mean zero, and its deviation and derivative are multiplied by ``last``. A layer without a bias, or one that
    does not depend on the inputs, keeps the value alone.

    ``sample`` is what the model is called with: a tensor, or a list of arguments of which all floating-point
    tensors count as inputs; with anything else, only the value is kept. Returns :func:`moments` afterwards.
    """
    found = moments(model, sample)
    if not found:
        raise InputError("the model calls no torch.nn.Linear on this sample, so there is nothing to initialise")
    for halving in range(1, _HALVINGS + 1):
        _draw(model, sample, value, last, share=0.5**halving, last_name=found[-1].name)
        found = moments(model, sample)
        limit = _CONCENTRATION * found[0].concentration
        if all(layer.concentration <= limit for layer in found):
            break
    return found


def _draw(model: nn.Module, sample: Any, value: float, last: float, share: float, last_name: str) -> None:
    """One pass of the initialisation; ``share`` of the first layer's ``value`` varies over the sample."""
    reference: float | None = None  # the first layer's derivative

    def draw(name: str, layer: nn.Linear, h: Tensor, dh: Tensor) -> None:
        nonlocal reference
        nn.init.orthogonal_(layer.weight)
        gain = last if name == last_name else 1.0
        mean = h.mean(0)  # (in,)
        slope = _square(dh @ layer.weight.T)
        varying = _square((h - mean) @ layer.weight.T)
        whole = _square(h @ layer.weight.T)
        if not (whole > 0 and whole < float("inf")):
            raise InputError(f"the input of layer {name!r} is zero or not finite over the whole sample: {whole}")
        if layer.bias is None or slope == 0 or varying == 0:
            layer.weight.mul_(gain * (value / whole) ** 0.5)
            if layer.bias is not None:
                layer.bias.zero_()
            return
        if reference is None:
            reference = share * value * slope / varying
        scale = min(reference / slope, value / varying) ** 0.5
        layer.weight.mul_(gain * scale)
        layer.bias.copy_(-layer.weight @ mean)
        if name != last_name:
            spread = torch.randn_like(layer.bias).abs_()
            layer.bias.add_(spread, alpha=((value - scale**2 * varying) / _square(spread)) ** 0.5)

    _visit(model, sample, draw)


def _square(t: Tensor) -> float:
    return float(t.square().mean())


def _visit(model: nn.Module, sample: Any, see: Callable[[str, nn.Linear, Tensor, Tensor], None]) -> None:
    """Run the model once, calling ``see(name, layer, h, ∂h)`` before the first use of every linear layer."""
    arguments = tuple(sample) if isinstance(sample, (tuple, list)) else (sample,)
    seen: set[nn.Module] = set()

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def before(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if layer in seen:
                return
            seen.add(layer)
            h, dh = forward_ad.unpack_dual(inputs[0])
            assert isinstance(layer, nn.Linear)
            dh = torch.zeros_like(h) if dh is None else dh
            see(name, layer, h.reshape(-1, h.shape[-1]), dh.reshape(-1, h.shape[-1]))

        return before

    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    handles = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers]
    try:
        with torch.no_grad(), _evaluating(model), forward_ad.dual_level():
            model(*(_with_direction(a) for a in arguments))
    finally:
        for handle in handles:
            handle.remove()


def _with_direction(argument: Any) -> Any:
    if isinstance(argument, Tensor) and argument.is_floating_point():
        direction = torch.randint_like(argument, 2).mul_(2).sub_(1)
        return forward_ad.make_dual(argument.detach(), direction)
    return argument


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, then every module's own mode again: dropout off, running statistics untouched."""
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
