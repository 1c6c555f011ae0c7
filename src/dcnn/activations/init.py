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

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize

from dcnn.errors import InputError, first_line
from dcnn.torch_internals import uncompiled

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

    ``sample`` is what the model is called with: a tensor, a list of arguments or a dictionary (of keywords, or the one
    argument of a model that takes a dictionary); all floating-point tensors in it count as inputs. Returns
    :func:`moments` afterwards.
    """
    model = uncompiled(model)
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
        # drawn in float32 at least, since a QR decomposition needs it
        weight = torch.empty_like(layer.weight, dtype=torch.promote_types(layer.weight.dtype, torch.float32))
        nn.init.orthogonal_(weight)
        weight = weight.to(h.dtype)
        gain = last if name == last_name else 1.0
        mean = h.mean(0)  # (in,)
        slope = _square(dh @ weight.T)
        varying = _square((h - mean) @ weight.T)
        whole = _square(h @ weight.T)
        if not (whole > 0 and whole < float("inf")):
            raise InputError(f"the input of layer {name!r} is zero or not finite over the whole sample: {whole}")
        if layer.bias is None or slope == 0 or varying == 0:
            _set_weight(name, layer, weight * (gain * (value / whole) ** 0.5))
            if layer.bias is not None:
                layer.bias.zero_()
            return
        if reference is None:
            reference = share * value * slope / varying
        scale = min(reference / slope, value / varying) ** 0.5
        weight = weight * (gain * scale)
        _set_weight(name, layer, weight)
        layer.bias.copy_(-weight @ mean)
        if name != last_name:
            spread = torch.randn_like(layer.bias).abs_()
            layer.bias.add_(spread, alpha=((value - scale**2 * varying) / _square(spread)) ** 0.5)

    _visit(model, sample, draw)


def _set_weight(name: str, layer: nn.Linear, weight: Tensor) -> None:
    if "weight" in layer._parameters:
        layer.weight.copy_(weight)
        return
    if parametrize.is_parametrized(layer, "weight"):
        with suppress(NotImplementedError, RuntimeError):  # a parametrization need not have an inverse
            layer.weight = weight
            if torch.allclose(layer.weight, weight, rtol=1e-3):
                return
    raise InputError(
        f"the weight of layer {name!r} is computed from other tensors and cannot be set; take that away first "
        f"(torch.nn.utils.parametrize.remove_parametrizations, remove_weight_norm) or leave this layer out"
    )


def _square(t: Tensor) -> float:
    return float(t.square().mean())


def _visit(model: nn.Module, sample: Any, see: Callable[[str, nn.Linear, Tensor, Tensor], None]) -> None:
    """Run the model once, calling ``see(name, layer, h, ∂h)`` before the first use of every linear layer."""
    model = uncompiled(model)
    seen: set[nn.Module] = set()

    def watch(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def before(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if layer in seen:
                return
            seen.add(layer)
            h, dh = forward_ad.unpack_dual(inputs[0])
            assert isinstance(layer, nn.Linear)
            dh = torch.zeros_like(h) if dh is None else dh
            with torch.no_grad():  # a forward may have switched gradients on
                see(name, layer, h.reshape(-1, h.shape[-1]), dh.reshape(-1, h.shape[-1]))

        return before

    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    handles = [layer.register_forward_pre_hook(watch(name)) for name, layer in layers]
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # the fused attention has no forward derivative
    try:
        with torch.no_grad(), evaluating(model), sdpa_kernel(SDPBackend.MATH), forward_ad.dual_level():
            args, kwargs = _call_with(model, _with_directions(sample))
            model(*args, **kwargs)
    except InputError:
        raise
    except Exception as error:  # the user's model on the user's sample may fail in any way
        reason, name = f"{type(error).__name__}: {first_line(error)}", type(model).__name__
        if isinstance(error, NotImplementedError):
            raise InputError(f"the derivative of {name} cannot be followed: {reason}") from error
        raise InputError(f"{name} cannot be called with this sample: {reason}") from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for handle in handles:
            handle.remove()


def _call_with(model: nn.Module, sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) of the call; a dictionary is keywords if the forward has parameters of these names."""
    if isinstance(sample, dict) and set(sample) <= set(inspect.signature(model.forward).parameters):
        return (), sample
    return (tuple(sample), {}) if isinstance(sample, (tuple, list)) else ((sample,), {})


def _with_directions(sample: Any) -> Any:
    if isinstance(sample, dict):
        return {name: _with_directions(value) for name, value in sample.items()}
    if type(sample) in (tuple, list):
        return type(sample)(_with_directions(value) for value in sample)
    if isinstance(sample, Tensor) and sample.is_floating_point():
        direction = torch.randint_like(sample, 2).mul_(2).sub_(1)
        return forward_ad.make_dual(sample.detach(), direction)
    return sample


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, then every module's own mode again: dropout off, running statistics untouched."""
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        module.training = False  # exported modules refuse .eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
