"""The graph of one module's own forward, and the activations and norms that it calls."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from dcnn.surgery import recognise
from dcnn.surgery.fx_trace import trace
from dcnn.surgery.places import held, untouched, with_item


@dataclass
class Call:
    """One call in one graph: the node that computes it, its input, and through which attribute it went."""

    name: str
    kind: str
    function: Any
    node: fx.Node
    input: fx.Node
    via: str | None = None
    inner: fx.Node | None = None  # the sigmoid of x · sigmoid(x)


def own_graph(owner: nn.Module, fixed: dict[str, Any]) -> fx.Graph:
    """The graph of the module's own forward, each child one call; ``fixed`` arguments have these values."""
    forward = type(owner).forward
    free = [name for name in list(inspect.signature(forward).parameters)[1:] if name not in fixed]
    with _prepared(owner):
        return trace(owner, lambda **values: forward(owner, **fixed, **values), free, lambda m: True, exact=True)


@contextmanager
def _prepared(owner: nn.Module) -> Iterator[None]:
    """Stored callables replaced by stand-ins, added children hidden, and everything put back afterwards."""
    with untouched([owner]):
        for name in getattr(vars(owner).get("forward"), "replaced", ()):  # a forward may loop over its children
            owner._modules.pop(name, None)
            owner.__dict__.pop(name, None)
        for attribute, path, value in list(held(owner)):
            if attribute not in owner._modules and recognise.activation(value, attribute) is True:
                stand_in = _StandIn(".".join([attribute, *map(str, path)]), value)
                owner.__dict__[attribute] = with_item(vars(owner)[attribute], path, stand_in)
        yield


class _StandIn:
    """Takes the place of a stored callable while tracing, so that its calls are told from functional ones."""

    def __init__(self, via: str, function: Any) -> None:
        self.via, self.function = via, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        def stored(*args: Any, **kwargs: Any) -> Any:
            return self.function(*args, **kwargs)

        symbols = [a for a in (*args, *kwargs.values()) if isinstance(a, fx.Proxy)]
        if not symbols:
            return self.function(*args, **kwargs)
        proxy = symbols[0].tracer.create_proxy("call_function", stored, args, kwargs)
        proxy.node.meta["stored"] = self
        return proxy


def calls(owner: nn.Module, graph: fx.Graph) -> Iterator[Call]:
    """The activations and norms that a graph calls, named ``relu``, ``relu_1``, … in their order."""
    count: Counter[str] = Counter()
    replaced: set[str] = getattr(vars(owner).get("forward"), "replaced", set())
    for node in graph.nodes:
        found = _recognised(owner, node)
        if found is None:
            continue
        label, kind, function, via = found
        first = node.args[0] if node.args else node.kwargs.get("input")
        product = _swish(node) if label == "sigmoid" and via is None else None
        if product is not None:
            label, function = "silu", F.silu
            first = product[1]
        name = f"{label}_{count[label]}" if count[label] else label
        count[label] += 1
        while hasattr(owner, name) and name not in replaced:
            name = f"{name}_function"
        yield Call(name, kind, function, product[0] if product else node, first, via, node if product else None)


def _recognised(owner: nn.Module, node: fx.Node) -> tuple[str, str, Any, str | None] | None:
    """(label, kind, function, stored attribute) if the node computes an activation or a norm."""
    if "stored" in node.meta:
        stand_in: _StandIn = node.meta["stored"]
        return f"{stand_in.via.replace('.', '_')}_call", "activation", stand_in.function, stand_in.via
    if node.op == "call_module":
        child = owner.get_submodule(str(node.target))
        if recognise.activation(child, str(node.target).rsplit(".", 1)[-1]) is True:
            return f"{str(node.target).replace('.', '_')}_call", "activation", child, str(node.target)
    elif node.op in ("call_function", "call_method"):
        found = recognise.function(node.target)
        if found is not None:
            function = getattr(torch.Tensor, node.target) if isinstance(node.target, str) else node.target
            return *found, function, None
    return None


def _swish(sigmoid: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """(product, x) in x · sigmoid(x) or x · sigmoid(βx), which is one activation written as several operations."""
    users = list(sigmoid.users)
    inner = sigmoid.args[0] if sigmoid.args else None
    if len(users) != 1 or not _is_product(users[0]) or not isinstance(inner, fx.Node):
        return None
    for x in (inner, *(inner.all_input_nodes if _is_product(inner) else ())):
        if set(users[0].args) == {x, sigmoid}:
            return users[0], x
    return None


def _is_product(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", node.target) == "mul" and len(node.args) == 2


def redirect(graph: fx.Graph, call: Call) -> None:
    """Let the child ``call.name`` compute what this node computed."""
    with graph.inserting_after(call.node):
        new = graph.call_module(call.name, (call.input,))
    if _in_place(call.node):  # whoever reads the input afterwards expects to find the result in it
        order = {node: i for i, node in enumerate(graph.nodes)}
        for user in list(call.input.users):
            if order[user] > order[new]:
                user.replace_input_with(call.input, new)
    call.node.replace_all_uses_with(new)
    graph.erase_node(call.node)
    if call.inner is not None:
        scaled = call.inner.args[0]
        graph.erase_node(call.inner)
        if isinstance(scaled, fx.Node) and not scaled.users and scaled is not call.input:
            graph.erase_node(scaled)


def _in_place(node: fx.Node) -> bool:
    """``relu_(x)``, ``F.relu(x, inplace=True)`` or ``F.relu(x, True)``."""
    if getattr(node.target, "__name__", str(node.target)).endswith("_") or node.kwargs.get("inplace"):
        return True
    return node.op == "call_function" and len(node.args) > 1 and node.args[-1] is True
