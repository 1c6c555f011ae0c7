"""Networks of DeepXDE as ours and back, with exactly the same weights (DeepXDE's PyTorch backend)."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import torch
from torch import Tensor, nn

from dcnn import activations
from dcnn.activations import Activation
from dcnn.errors import InputError
from dcnn.pde.network import PdeNetwork
from dcnn.pde.problem import Problem

NAMED = ("elu", "gelu", "relu", "selu", "sigmoid", "silu", "sin", "tanh")


def from_deepxde(net: Any, problem: Problem | None = None) -> nn.Module:
    """A DeepXDE `FNN` (or the `Model` it is in) as a network of ours.

    With a `problem` the result is a :class:`PdeNetwork` that can be trained on it, otherwise a plain `nn.Sequential` of
    `Linear` layers and :class:`Activation` modules, for `partials`, `audit`, `swap_activations` and the rest.
    """
    dde = load_deepxde()
    net = getattr(net, "net", net)  # of a Model
    if not isinstance(net, dde.nn.FNN):
        raise InputError(f"from_deepxde takes a deepxde FNN (or a Model of one), not {type(net).__name__}")
    for transform in ("_input_transform", "_output_transform"):
        if getattr(net, transform) is not None:
            what = transform.strip("_").replace("_", " ")
            raise InputError(f"the FNN has an {what}, which is code and no layer: state it in the problem instead")
    linears = list(net.linears)
    found = [_activation(dde, net, i) for i in range(len(linears) - 1)]
    if problem is None:
        layers = [layer for pair in zip(linears, found, strict=False) for layer in pair]
        twin: nn.Module = nn.Sequential(*(_copied(layer) for layer in (*layers, linears[-1])))
        return twin
    widths = [layer.out_features for layer in linears[:-1]]
    inputs, fields = linears[0].in_features, linears[-1].out_features
    if (inputs, fields) != (len(problem.coordinates), len(problem.fields)) or len(set(widths)) != 1:
        raise InputError(
            f"the FNN has {inputs} inputs, hidden layers {widths} and {fields} outputs; {problem.where} needs "
            f"{len(problem.coordinates)} inputs, hidden layers of one width and {len(problem.fields)} outputs"
        )
    network = PdeNetwork(problem, width=widths[0], depth=len(widths)).to(linears[0].weight.dtype)
    network.activations = nn.ModuleList(found)
    _copy_weights(linears, [*network.layers, network.head])
    return network


def to_deepxde(network: nn.Module) -> Any:
    """A DeepXDE `FNN` that computes the same function as a :class:`PdeNetwork` or a `from_deepxde` network of ours.

    Embedded inputs become the FNN's feature transform; units of fields and hard constraints its output transform.
    """
    dde = load_deepxde()
    if isinstance(network, PdeNetwork):
        return _from_pde_network(dde, network)
    if not isinstance(network, nn.Sequential):
        raise InputError(f"to_deepxde takes a PdeNetwork or an nn.Sequential, not {type(network).__name__}")
    layers = list(network)
    for i, module in enumerate(layers):
        last = i == len(layers) - 1
        if not isinstance(module, Activation if i % 2 else nn.Linear) or (last and i % 2):
            raise InputError(f"to_deepxde: layer {i} is {module}; an FNN alternates Linear and activation layers")
    return _fnn(dde, layers[0::2], layers[1::2])


def _from_pde_network(dde: Any, network: PdeNetwork) -> Any:
    adaptive = any(not isinstance(f, Activation) for f in network.activations)
    for option, used in (("batch_norm", network.batch_norm), ("residual", network.residual), ("adaptive", adaptive)):
        if used:
            raise InputError(f"to_deepxde: a network with {option} has no counterpart in DeepXDE's FNN")
    net = _fnn(dde, [*network.layers, network.head], list(network.activations))
    known = bool(network.hard or network.features)

    def embedded(x: Tensor) -> Tensor:
        features = network.embedding(x)
        return torch.cat([features, network.split(network.known(x))[0]], dim=1) if known else features

    def in_units(x: Tensor, y: Tensor) -> Tensor:
        fields = y * network.unit + network.offset
        _, lift, factor = network.split(network.known(x)) if known else (None, 0.0, 1.0)
        return lift + factor * fields

    point = network.problem.stretch(torch.rand(1, len(network.problem.coordinates))).to(network.unit)
    if known or not torch.equal(network.embedding(point), point):
        net.apply_feature_transform(embedded)
    if known or bool((network.unit != 1).any() | (network.offset != 0).any()):
        net.apply_output_transform(in_units)
    return net


def _fnn(dde: Any, linears: list[Any], found: list[nn.Module]) -> Any:
    sizes = [linears[0].in_features, *(layer.out_features for layer in linears)]
    net = dde.nn.FNN(sizes, [*found, "tanh"], "zeros")  # it asks for an activation of the output, and uses none
    net.to(linears[0].weight.dtype)
    _copy_weights(linears, net.linears)
    return net


def _activation(dde: Any, net: Any, layer: int) -> Activation:
    function = net.activation[layer] if isinstance(net.activation, list) else net.activation
    own = {dde.nn.activations.get(name): name for name in NAMED}  # functions of DeepXDE that call torch's
    found = activations.get(own[function]) if function in own else activations.from_torch(function)
    if not isinstance(found, Activation):
        name = getattr(function, "__name__", type(function).__name__)
        raise InputError(
            f"the activation {name} of layer {layer} is not known here; {', '.join(NAMED)} are, functions and modules "
            f"of torch, and dcnn.activations"
        )
    return found


def _copied(layer: nn.Module) -> nn.Module:
    if not isinstance(layer, nn.Linear):
        return layer
    twin = nn.Linear(layer.in_features, layer.out_features, dtype=layer.weight.dtype)
    _copy_weights([layer], [twin])
    return twin


@torch.no_grad()
def _copy_weights(source: Any, target: Any) -> None:
    for old, new in zip(source, target, strict=True):
        new.weight.copy_(old.weight)
        new.bias.copy_(old.bias)


def load_deepxde() -> Any:
    """The package deepxde with its PyTorch backend; what it prints when it is imported goes to stderr."""
    if "deepxde" not in sys.modules:
        os.environ.setdefault("DDE_BACKEND", "pytorch")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            import deepxde as dde
    except ImportError:
        raise InputError("DeepXDE is not installed; `pip install 'dcnn[compare]'`") from None
    if dde.backend.backend_name != "pytorch":
        raise InputError(f"DeepXDE runs on {dde.backend.backend_name}; set DDE_BACKEND=pytorch before it is imported")
    return dde
