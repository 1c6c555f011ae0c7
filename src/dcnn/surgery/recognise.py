"""What counts as an activation, and what as a normalization: modules, stored callables and functions."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dcnn.activations import Activation, Scaled, from_torch
from dcnn.torch_internals import BatchNorm, InstanceNorm

#: The kinds of normalization that :func:`dcnn.surgery.denormalize` knows.
KINDS = ("batch", "layer", "group", "instance", "rms")

TORCHSCRIPT = "TorchScript code cannot be changed; change the model before torch.jit.script"
_ELEMENTWISE = (
    *(
        nn.ReLU,
        nn.ReLU6,
        nn.RReLU,
        nn.LeakyReLU,
        nn.PReLU,
        nn.ELU,
        nn.SELU,
        nn.CELU,
        nn.SiLU,
        nn.Mish,
        nn.GELU,
    ),
    *(
        nn.Softplus,
        nn.Softsign,
        nn.Sigmoid,
        nn.LogSigmoid,
        nn.Tanh,
        nn.Tanhshrink,
        nn.Softshrink,
        nn.Hardshrink,
    ),
    *(nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Threshold),
)
_FUNCTION_NAMES = (
    *(
        "relu",
        "relu6",
        "rrelu",
        "leaky_relu",
        "prelu",
        "elu",
        "selu",
        "celu",
        "silu",
        "mish",
        "gelu",
        "softplus",
    ),
    *(
        "softsign",
        "sigmoid",
        "expit",
        "logsigmoid",
        "tanh",
        "tanhshrink",
        "softshrink",
        "hardshrink",
        "hardtanh",
    ),
    *("hardswish", "hardsigmoid", "threshold"),
)
_NAMESPACES = (F, torch, torch.special, Tensor)
# a sine may be a Fourier feature, a Bessel basis or a position code as well as an activation
_SINE = ("sin", "sin_")
_NORM_FUNCTIONS = {f"{kind}_norm": kind for kind in KINDS}

_ATTRIBUTE = re.compile(r"(^|_)(acts?|activations?|act_?fn|act_?func|nonlin\w*|non_lin\w*)(_|\d|$)", re.IGNORECASE)
_CLASS = re.compile(r"relu|elu$|silu|swish|mish|softplus|softsign|tanh|sigmoid|^sine?$|activation$", re.IGNORECASE)

_NORM_CLASS = re.compile(rf"({'|'.join(KINDS)})norm(1d|2d|3d)?$")
# PyG's norms over the nodes of one graph, each channel alone; and its norm of soft groups
_GRAPH_NORMS = {
    "graphnorm": "instance",
    "pairnorm": "instance",
    "meansubtractionnorm": "instance",
    "diffgroupnorm": "group",
}


def _functions() -> dict[Any, tuple[str, str]]:
    known: dict[Any, tuple[str, str]] = {}
    for namespace in _NAMESPACES:
        for name in (*_FUNCTION_NAMES, *(f"{name}_" for name in _FUNCTION_NAMES)):
            if hasattr(namespace, name):
                known[getattr(namespace, name)] = (name.rstrip("_"), "activation")
        for name in _SINE:
            if hasattr(namespace, name):
                known[getattr(namespace, name)] = ("sin", "sine")
        for name, kind in _NORM_FUNCTIONS.items():
            if hasattr(namespace, name):
                known[getattr(namespace, name)] = (name, kind)
    return known


_FUNCTIONS = _functions()


def function(target: object) -> tuple[str, str] | None:
    """(name, kind) of a function or tensor method; the kind is ``activation``, ``sine`` or a kind of norm."""
    if isinstance(target, str):
        target = getattr(Tensor, target, None)
    return _FUNCTIONS.get(target) if isinstance(target, Hashable) else None


def activation(value: object, attribute: str) -> bool | str:
    """Is this an elementwise nonlinearity? ``True``, ``False``, or the reason why it cannot be replaced."""
    if isinstance(value, torch.jit.ScriptModule):
        return TORCHSCRIPT
    if isinstance(value, (nn.RNNBase, nn.RNNCellBase)):
        return f"{type(value).__name__} computes its nonlinearities inside one fused kernel"
    if isinstance(value, nn.GLU):
        return "GLU is a gate that halves the features, not an elementwise function"
    if isinstance(value, Activation):
        return value.name not in ("identity", "scaled_identity")
    if isinstance(value, _ELEMENTWISE):
        return True
    if not callable(value) or isinstance(value, type) or not isinstance(value, Hashable):
        return False
    known = function(value)
    if known is not None:
        return known[1] == "activation" or (known[1] == "sine" and _ATTRIBUTE.search(attribute) is not None)
    if isinstance(value, nn.Module):  # one that is not an activation as a whole may still call some
        return named_activation(value, attribute) and _elementwise(copy.deepcopy(value)) is True
    partial_of_known = isinstance(value, partial) and from_torch(value) is not None
    return partial_of_known or (_ATTRIBUTE.search(attribute) is not None and _elementwise(value))


def named_activation(module: nn.Module, attribute: str) -> bool:
    """Is it called an activation, by its class or its attribute, and without parameters and children?"""
    named = _ATTRIBUTE.search(attribute) or _CLASS.search(type(module).__name__)
    return bool(named) and not [*module.children(), *module.parameters()]


def factor(value: Any) -> float:
    """The constant c of an activation c·σ with a known σ, such as e3nn's ``normalize2mom`` makes; else 1."""
    member = from_torch(value)
    return member.factor if isinstance(member, Scaled) else 1.0


def _elementwise(function: Callable[[Tensor], Tensor]) -> bool | str:
    """Called on nine numbers: does it act on each alone, and is it not a straight line?"""
    x = torch.linspace(-2.0, 2.0, 9)  # (9,)
    shuffled = torch.tensor([4, 0, 8, 2, 6, 1, 7, 3, 5])
    try:
        with torch.no_grad():
            y = function(x)
            if y.shape != x.shape:
                return "it is not an elementwise function"
            same = bool(torch.allclose(function(x[shuffled]), y[shuffled]) and torch.allclose(function(x[:3]), y[:3]))
    except Exception as error:  # any callable of the user's may stand behind an attribute called `act`
        return f"called on a vector it raised {type(error).__name__}: {error}"
    if not same:
        return "it is not an elementwise function"
    return bool((y[2:] - 2 * y[1:-1] + y[:-2]).abs().max() > 1e-4)


def normalization(value: object) -> str | None:
    """The kind of normalization of a module, ``"unknown"`` for a norm of no such kind, else ``None``."""
    if isinstance(value, BatchNorm):
        return "batch"
    if isinstance(value, InstanceNorm):
        return "instance"
    if not isinstance(value, nn.Module) or isinstance(value, nn.Identity):
        return None
    for name in (cls.__name__.lower().replace("_", "") for cls in type(value).__mro__):
        if name in _GRAPH_NORMS:
            return _GRAPH_NORMS[name]
        found = _NORM_CLASS.search(name)
        if found and all(normalization(child) for child in value.children()):  # else a block with a norm in it
            return found[1]
    alone = not any(True for _ in value.children()) and not type(value).__module__.startswith("torch.nn.utils")
    return "unknown" if alone and type(value).__name__.lower().endswith("norm") else None
