"""Folding: (x − mean) / √(var + ε) · γ + β = s · x + t goes into the linear layer before or after it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from dcnn.activations import Activation
from dcnn.surgery import recognise
from dcnn.surgery.functional import CallPlace
from dcnn.surgery.places import Slot, held
from dcnn.surgery.read import read
from dcnn.surgery.trace import UntraceableError, arguments, evaluating, is_builtin, trace

_CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_IDLE = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)  # in eval mode


class CannotFoldError(Exception):
    """Why a norm cannot go into a neighbouring layer."""


class Folder:
    """Folds the norms of one model, which is traced once (or module by module where the whole cannot be)."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._verdicts: dict[nn.Module, str | None] = {}
        self._graphs: dict[nn.Module, fx.Graph | str] = {}

    def fold(self, place: Slot | CallPlace) -> str | None:
        """Fold the norm at this place into its neighbour; returns the reason if that is impossible."""
        if isinstance(place, CallPlace):
            return "it is a functional call, not a layer"
        norm = place.value
        if norm not in self._verdicts:  # one instance may sit in several places
            try:
                self._fold(place, *_affine(norm))
                self._verdicts[norm] = None
            except CannotFoldError as error:
                self._verdicts[norm] = str(error)
        return self._verdicts[norm]

    def _fold(self, place: Slot, scale: Tensor, shift: Tensor) -> None:
        root, graph = self._graph_around(place)
        norms = {node for node in graph.nodes if _module(root, node) is place.value}
        if not norms:
            raise CannotFoldError("the traced forward does not call it")
        before = {_back(root, _input(norm)) for norm in norms}
        layer = _one_layer(root, before)
        if layer is not None and _all_uses(root, layer, before) and _ahead(root, before) == norms:
            self._check(layer, root)
            return _into_previous(layer, scale, shift)
        after = _ahead(root, norms)
        layer = _one_layer(root, after)
        if layer is not None and _all_uses(root, layer, after) and {_back(root, _input(n)) for n in after} == norms:
            self._check(layer, root)
            return _into_next(layer, scale, shift)
        raise CannotFoldError("no linear or convolution layer is directly before or after it")

    def _graph_around(self, place: Slot) -> tuple[nn.Module, fx.Graph]:
        """The largest part of the model that holds the norm and can be traced, and its graph."""
        norm, whys = place.value, []
        for part in [module for module in self.model.modules() if any(norm is inner for inner in module.modules())]:
            if part is norm or type(part).forward is nn.Module.forward:
                continue
            if part not in self._graphs:
                self._graphs[part] = _graph(part)
            graph = self._graphs[part]
            if isinstance(graph, fx.Graph):
                if part is not self.model and self._uses(norm) > 1:
                    break
                return part, graph
            whys.append(f"{type(part).__name__}: {graph}")
        else:
            raise CannotFoldError(f"what is before and after it is unknown ({'; '.join(whys)})")
        raise CannotFoldError("it is used in several places of a model that torch.fx cannot trace as a whole")

    def _check(self, layer: nn.Module, root: nn.Module) -> None:
        weight = layer._parameters.get("weight")
        if parametrize.is_parametrized(layer) or weight is None or is_lazy(weight):
            raise CannotFoldError(f"the neighbouring {type(layer).__name__} has no plain, initialised weight")
        if root is not self.model and self._uses(layer) > 1:
            raise CannotFoldError(f"the neighbouring {type(layer).__name__} is used elsewhere too")
        owners = {id(m) for m in self.model.modules() for p in m._parameters.values() if p is weight}
        if len(owners) > 1:
            raise CannotFoldError(f"the neighbouring {type(layer).__name__} shares its weight with another layer")

    def _uses(self, module: nn.Module) -> int:
        return sum(value is module for owner in self.model.modules() for _, _, value in held(owner))


def _is_leaf(module: nn.Module) -> bool:
    builtin = is_builtin(module) and not isinstance(module, nn.Sequential)
    return (
        builtin or isinstance(module, Activation) or _is_linear(module) or recognise.normalization(module) is not None
    )


def _graph(part: nn.Module) -> fx.Graph | str:
    """The graph of a part in eval mode, or the reason why there is none."""
    for module in part.modules():
        if not _is_leaf(module) and not is_builtin(module) and read(module).objections:
            return read(module).objections[0]
    try:
        with evaluating(part):
            return trace(part, part.forward, arguments(part)[0], _is_leaf, exact=False)
    except UntraceableError as error:
        return str(error)


def _module(root: nn.Module, node: Any) -> nn.Module | None:
    is_call = isinstance(node, fx.Node) and node.op == "call_module"
    return root.get_submodule(str(node.target)) if is_call else None


def _input(node: fx.Node) -> Any:
    return node.args[0] if node.args else next(iter(node.kwargs.values()))


def _is_idle(root: nn.Module, node: Any) -> bool:
    return isinstance(_module(root, node), _IDLE) or (isinstance(node, fx.Node) and node.target is F.dropout)


def _back(root: nn.Module, node: Any) -> Any:
    """The node that computed this value, past dropouts and identities."""
    while _is_idle(root, node):
        node = _input(node)
    return node


def _ahead(root: nn.Module, nodes: set[Any]) -> set[Any]:
    """Every node that uses these values, past dropouts and identities."""
    users: set[Any] = set()
    for node in nodes:
        for user in node.users:
            users |= _ahead(root, {user}) if _is_idle(root, user) else {user}
    return users


def _all_uses(root: nn.Module, layer: nn.Module, nodes: set[Any]) -> bool:
    graph = next(iter(nodes)).graph
    return nodes == {node for node in graph.nodes if _module(root, node) is layer}


def _one_layer(root: nn.Module, nodes: set[Any]) -> nn.Module | None:
    layers = [_module(root, node) for node in nodes]
    first = layers[0] if layers else None
    return first if first is not None and _is_linear(first) and all(layer is first for layer in layers) else None


def _is_linear(module: nn.Module) -> bool:
    if isinstance(module, (nn.Linear, *_CONV, *_TRANSPOSED)):
        return True
    weight = module._parameters.get("weight")  # other packages have a Linear of their own, x ↦ x Wᵀ + b
    return type(module).__name__ == "Linear" and weight is not None and weight.ndim == 2


def _affine(norm: Any) -> tuple[Tensor, Tensor]:
    """s = γ / √(var + ε) and t = β − mean · s in float64, each (channels,)."""
    inner = norm if hasattr(norm, "running_mean") else getattr(norm, "module", None)  # PyG wraps the norm
    mean, var = getattr(inner, "running_mean", None), getattr(inner, "running_var", None)
    if inner is None or mean is None or var is None or not hasattr(inner, "eps"):
        raise CannotFoldError(f"{type(norm).__name__} has no running statistics, it uses those of its input")
    if is_lazy(mean):
        raise CannotFoldError(f"{type(norm).__name__} has not seen any data yet")
    gamma, beta = getattr(inner, "weight", None), getattr(inner, "bias", None)
    scale = torch.rsqrt(var.double() + inner.eps)
    scale = scale if gamma is None else scale * gamma.detach().double()
    return scale, (0.0 if beta is None else beta.detach().double()) - mean.double() * scale


def _into_previous(layer: Any, scale: Tensor, shift: Tensor) -> None:
    """s · (W x + b) + t: rows of W by s, b → s · b + t."""
    weight = layer.weight.detach().double()
    if isinstance(layer, _TRANSPOSED):
        blocks = weight.unflatten(0, (layer.groups, -1))  # (groups, in / groups, out / groups, *kernel)
        rows = scale.view(layer.groups, 1, -1, *(1,) * (blocks.ndim - 3))
        _fits(blocks.shape[0] * blocks.shape[2], scale, layer)
        new = (blocks * rows).flatten(0, 1)
    else:
        _fits(weight.shape[0], scale, layer)
        new = weight * scale.view(-1, *(1,) * (weight.ndim - 1))
    old = 0.0 if layer.bias is None else layer.bias.detach().double()
    _write(layer, new, old * scale + shift)


def _into_next(layer: Any, scale: Tensor, shift: Tensor) -> None:
    """W (s · x + t) + b: columns of W by s, b → b + W t."""
    if isinstance(layer, _TRANSPOSED):
        raise CannotFoldError("the transposed convolution after it sees the shift less often at its borders")
    pads = getattr(layer, "padding_mode", "none") == "zeros" and not _no_padding(layer)
    if pads and bool(shift.any()):
        raise CannotFoldError("the convolution after it pads with zeros, which a shift would change")
    weight = layer.weight.detach().double()
    blocks = weight.unflatten(0, (getattr(layer, "groups", 1), -1))  # (groups, out / groups, in / groups, *kernel)
    _fits(blocks.shape[0] * blocks.shape[2], scale, layer)
    shape = (blocks.shape[0], 1, -1, *(1,) * (blocks.ndim - 3))
    added = (blocks * shift.view(shape)).flatten(2).sum(-1).flatten()  # (out,)
    old = 0.0 if layer.bias is None else layer.bias.detach().double()
    _write(layer, (blocks * scale.view(shape)).flatten(0, 1), old + added)


def _no_padding(layer: Any) -> bool:
    if isinstance(layer.padding, str):
        return layer.padding == "valid" or all(size == 1 for size in layer.kernel_size)
    return not any(layer.padding)


def _fits(channels: int, scale: Tensor, layer: nn.Module) -> None:
    if channels != len(scale):
        raise CannotFoldError(f"it has {len(scale)} channels, the neighbouring {type(layer).__name__} {channels}")


def _write(layer: Any, weight: Tensor, bias: Tensor) -> None:
    """The new numbers into the same parameters, so that an optimizer still knows them."""
    with torch.no_grad():
        layer.weight.copy_(weight)
        if layer.bias is None:
            layer.bias = nn.Parameter(bias.to(layer.weight.dtype), requires_grad=layer.weight.requires_grad)
        else:
            layer.bias.copy_(bias)
