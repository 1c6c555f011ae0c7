"""Activations by name, and from what PyTorch models already contain."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dcnn.activations.base import Activation
from dcnn.activations.elementary import ELU, SELU, Identity, LeakyReLU, ReLU, Sin
from dcnn.activations.gaussian import GELU, GELUTanh
from dcnn.activations.integrated import Integrated, IReLU
from dcnn.activations.logistic import ShiftedSoftplus, Sigmoid, SiLU, Softplus, Tanh
from dcnn.errors import InputError, unknown

_PLAIN: dict[str, type[Activation]] = {
    cls.name: cls
    for cls in (
        *(ReLU, LeakyReLU, ELU, SELU, SiLU, GELU, GELUTanh),
        *(Softplus, ShiftedSoftplus, Sigmoid, Tanh, Sin, Identity),
    )
}
_ALIASES = {
    "swish": "silu",
    "ssp": "shifted_softplus",
    "logistic": "sigmoid",
    "linear": "identity",
    "sine": "sin",
}

#: Every name that :func:`get` takes.
NAMES: tuple[str, ...] = (*_PLAIN, "irelu", *(f"integrated_{name}" for name in _PLAIN))


def get(activation: str | nn.Module) -> nn.Module:
    """The activation of that name (``NAMES``), or the module itself if one is given.

    >>> get("irelu"), get("integrated_silu").name
    (IReLU(), 'integrated_silu')
    """
    if isinstance(activation, nn.Module):
        return activation
    name = str(activation).lower()
    name = _ALIASES.get(name, name)
    if name == "irelu":
        return IReLU()
    if name in _PLAIN:
        return _PLAIN[name]()
    base = _ALIASES.get(name.removeprefix("integrated_"), name.removeprefix("integrated_"))
    if name.startswith("integrated_") and base in _PLAIN:
        return integrate(base)
    raise unknown("activation", activation, NAMES)


def integrate(activation: str | nn.Module | Callable[..., Any]) -> Integrated:
    """The activation x → ∫₀ˣ σ(t) dt, for σ given by name, as a module or as a function of torch.

    >>> integrate("sigmoid").derivative(torch.zeros(1), 1)
    tensor([0.5000])
    """
    base = get(activation) if isinstance(activation, str) else from_torch(activation)
    if base is None or isinstance(base, Integrated):
        raise InputError(f"cannot integrate {activation!r}; it can be one of {', '.join(_PLAIN)}")
    assert isinstance(base, Activation)
    return IReLU() if isinstance(base, ReLU) else Integrated(base)


_MODULES: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.ReLU: lambda m: ReLU(),
    nn.LeakyReLU: lambda m: LeakyReLU(m.negative_slope),
    nn.ELU: lambda m: ELU(m.alpha),
    nn.SELU: lambda m: SELU(),
    nn.SiLU: lambda m: SiLU(),
    nn.GELU: lambda m: _gelu(m.approximate),
    nn.Softplus: lambda m: Softplus(m.beta),
    nn.Sigmoid: lambda m: Sigmoid(),
    nn.Tanh: lambda m: Tanh(),
    nn.Identity: lambda m: Identity(),
}


def _gelu(approximate: str = "none") -> Activation:
    return GELUTanh() if approximate == "tanh" else GELU()


_FUNCTIONS: dict[Any, Callable[..., Activation]] = {
    **dict.fromkeys((F.relu, F.relu_, torch.relu, torch.relu_, Tensor.relu, Tensor.relu_), ReLU),
    **dict.fromkeys((F.leaky_relu, F.leaky_relu_), LeakyReLU),
    **dict.fromkeys((F.elu, F.elu_), ELU),
    **dict.fromkeys((F.selu, F.selu_, torch.selu, torch.selu_), SELU),
    F.silu: SiLU,
    F.gelu: _gelu,
    F.softplus: Softplus,
    **dict.fromkeys((F.sigmoid, torch.sigmoid, torch.special.expit, Tensor.sigmoid), Sigmoid),
    **dict.fromkeys((F.tanh, torch.tanh, Tensor.tanh), Tanh),
    **dict.fromkeys((torch.sin, Tensor.sin), Sin),
}

# what other packages define for themselves, known by name so that they need not be installed
_NAMED: dict[str, type[Activation]] = {
    "ShiftedSoftplus": ShiftedSoftplus,
    "shifted_softplus": ShiftedSoftplus,
    "swish": SiLU,
    "Swish": SiLU,
}


def from_torch(activation: nn.Module | Callable[..., Any]) -> Activation | None:
    """The member of the family that computes the same function, or ``None`` if there is none.

    Knows the modules of ``torch.nn``, the functions of ``torch`` and ``torch.nn.functional`` (also as a
    ``functools.partial`` with keywords), and the shifted softplus and swish of other packages.

    >>> from_torch(torch.nn.LeakyReLU(0.2)), from_torch(torch.tanh)
    (LeakyReLU(negative_slope=0.2), Tanh())
    """
    if isinstance(activation, Activation):
        return activation
    if isinstance(activation, partial):
        return _from_partial(activation)
    if isinstance(activation, nn.Module):
        if type(activation) in _MODULES:
            return _MODULES[type(activation)](activation)
        name = type(activation).__name__
    else:
        if isinstance(activation, Hashable) and activation in _FUNCTIONS:
            return _FUNCTIONS[activation]()
        name = getattr(activation, "__name__", "")
    return _NAMED[name]() if name in _NAMED else None


def _from_partial(call: partial[Any]) -> Activation | None:
    keywords = {k: v for k, v in call.keywords.items() if k not in ("inplace", "threshold")}
    if call.args or call.func not in _FUNCTIONS:
        return None
    return _FUNCTIONS[call.func](**keywords)
