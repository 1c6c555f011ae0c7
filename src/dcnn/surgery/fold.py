"""Folding: (x − mean) / √(var + ε) · γ + β = s · x + t goes into the linear layer before or after it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from dcnn.activations import Activation
from dcnn.activations.init import evaluating
from dcnn.surgery import recognise
from dcnn.surgery.forward_source import read_source
from dcnn.surgery.functional import CallPlace
from dcnn.surgery.fx_trace import UntraceableError, arguments, is_builtin, trace
from dcnn.surgery.places import Slot, held

_CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_IDLE = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)  # in eval mode


class CannotFoldError(Exception):
    """Why a norm cannot go into a neighbouring layer."""


class FoldedNorm(nn.Identity):
    """Stands where a BatchNorm1d was folded into the Linear or Conv1d next to it.

    BatchNorm1d normalizes axis 1 of (N, C) and of (N, C, L); a Linear makes the last axis, a Conv1d the last but one.
    Where these are the same axis, as nearly always, this is the identity. Else the fold is undone on the layer's axis
    and done on axis 1, so that the output stays the same there, too.
    """

    def __init__(self, scale: Tensor, shift: Tensor, axis: int, layer_first: bool) -> None:
        super().__init__()
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("shift", shift, persistent=False)
        self.axis, self.layer_first = axis, layer_first
        self.scale: Tensor
        self.shift: Tensor

    def forward(self, input: Tensor) -> Tensor:
        """The input, if its channels are where the layer has them."""
        return _on_axis_one(input, self.scale, self.shift, self.axis, self.layer_first)


@fx.wrap
def _on_axis_one(x: Tensor, scale: Tensor, shift: Tensor, axis: int, layer_first: bool) -> Tensor:
    if x.ndim + axis == 1:
        return x
    scale, shift = scale.to(x.dtype), shift.to(x.dtype)
    if layer_first:
        x = ((x.movedim(axis, -1) - shift) / scale).movedim(-1, axis)
    x = (x.movedim(1, -1) * scale + shift).movedim(-1, 1)
    return x if layer_first else ((x.movedim(axis, -1) - shift) / scale).movedim(-1, axis)


class Folder:
    """Folds the norms of one model, which is traced once (or module by module where the whole cannot be)."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._verdicts: dict[nn.Module, nn.Module | str] = {}
        self._graphs: dict[nn.Module, fx.Graph | str] = {}

    def fold(self, place: Slot | CallPlace) -> nn.Module | str:
        """Fold the norm at this place into its neighbour; returns what takes its place, or why that is impossible."""
        if isinstance(place, CallPlace):
            return "it is a functional call, not a layer"
        norm = place.value
        if norm not in self._verdicts:  # one instance may sit in several places
            try:
                self._verdicts[norm] = self._fold(norm, *_affine(norm))
            except CannotFoldError as error:
                self._verdicts[norm] = str(error)
        return self._verdicts[norm]

    def _fold(self, norm: nn.Module, scale: Tensor, shift: Tensor) -> nn.Module:
        root, graph = self._graph_around(norm)
        norms = {node for node in graph.nodes if _module(root, node) is norm}
        if not norms:
            raise CannotFoldError("the traced forward does not call it")
        before = {_back(root, _input(norm)) for norm in norms}
        layer = _one_layer(root, before)
        if layer is not None and _all_uses(root, layer, before) and _ahead(root, before) == norms:
            self._check(layer, root, graph)
            replacement = _replacement(norm, layer, scale, shift, layer_first=True)
            _into_previous(layer, scale, shift)
            return replacement
        after = _ahead(root, norms)
        layer = _one_layer(root, after)
        if layer is not None and _all_uses(root, layer, after) and {_back(root, _input(n)) for n in after} == norms:
            self._check(layer, root, graph)
            replacement = _replacement(norm, layer, scale, shift, layer_first=False)
            _into_next(layer, scale, shift)
            return replacement
        raise CannotFoldError("no linear or convolution layer is directly before or after it")

    def _graph_around(self, norm: nn.Module) -> tuple[nn.Module, fx.Graph]:
        """The largest part of the model that holds the norm and can be traced, and its graph."""
        whys = []
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

    def _check(self, layer: nn.Module, root: nn.Module, graph: fx.Graph) -> None:
        weight = layer._parameters.get("weight")
        if parametrize.is_parametrized(layer) or weight is None or is_lazy(weight):
            raise CannotFoldError(f"the neighbouring {type(layer).__name__} has no plain, initialised weight")
        if root is not self.model and self._uses(layer) > 1:
            raise CannotFoldError(f"the neighbouring {type(layer).__name__} is used elsewhere too")
        owners = {id(m) for m in self.model.modules() for p in m._parameters.values() if p is weight}
        if len(owners) > 1:
            raise CannotFoldError(f"the neighbouring {type(layer).__name__} shares its weight with another layer")
        own = list(layer.parameters())
        read_apart = [node for node in graph.nodes if node.op == "get_attr" and _among(_held(root, node), own)]
        if read_apart or self._weights_are_read_outside(root):
            raise CannotFoldError(f"the weight of the neighbouring {type(layer).__name__} is used by another call too")

    def _weights_are_read_outside(self, root: nn.Module) -> bool:
        """Does a forward that the graph does not cover read the weight of some layer?"""
        inside = set(root.modules())
        outside = [module for module in self.model.modules() if module not in inside and not is_builtin(module)]
        return any(read_source(module).reads_weights for module in outside)

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
        if not _is_leaf(module) and not is_builtin(module) and read_source(module).objections:
            return read_source(module).objections[0]
    try:
        with evaluating(part):
            return trace(part, part.forward, arguments(part)[0], _is_leaf, exact=False)
    except UntraceableError as error:
        return str(error)


def _module(root: nn.Module, node: Any) -> nn.Module | None:
    is_call = isinstance(node, fx.Node) and node.op == "call_module"
    return root.get_submodule(str(node.target)) if is_call else None


def _held(root: nn.Module, node: fx.Node) -> Any:
    owner, _, name = str(node.target).rpartition(".")
    return getattr(root.get_submodule(owner), name, None)


def _among(value: Any, values: list[Any]) -> bool:
    return any(value is other for other in values)


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


def _replacement(norm: Any, layer: nn.Module, scale: Tensor, shift: Tensor, layer_first: bool) -> nn.Module:
    """What takes the place of the folded norm; refuses a norm that never works on the axis that the layer makes."""
    inner = norm if hasattr(norm, "running_mean") else norm.module
    linear = not isinstance(layer, (*_CONV, *_TRANSPOSED))
    if not isinstance(inner, (nn.BatchNorm1d, nn.SyncBatchNorm)):
        if linear:
            raise CannotFoldError(f"{type(inner).__name__} works on axis 1, the neighbouring Linear on the last axis")
        return nn.Identity().train(norm.training)
    if not scale.all():
        raise CannotFoldError("its weight is zero in some channels")
    axis = -1 if linear else -1 - len(layer.kernel_size)  # type: ignore[arg-type]
    return FoldedNorm(scale, shift, axis, layer_first).train(norm.training)


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
