"""Every call of torch that its documentation does not promise, in one place; tested with torch 2.13.0."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode


def uncompiled(module: nn.Module) -> nn.Module:
    """The module inside the wrapper that torch.compile makes."""
    inner = getattr(module, "_orig_mod", module)
    return inner if isinstance(inner, nn.Module) else module


def scripted(function: Callable[[Tensor], Tensor]) -> Any:
    """An elementwise function as TorchScript that autograd can differentiate: nothing is written in place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and those who call it know
        traced = torch.jit.trace(function, torch.linspace(-2.0, 2.0, 3, dtype=torch.float64))
    graph = traced.graph
    for node in [n for n in graph.nodes() if n.kind().startswith("aten::") and n.kind().endswith("_")]:
        inputs = list(node.inputs())
        new = graph.create(node.kind()[:-1], inputs, 1)
        new.insertBefore(node)
        node.output().replaceAllUsesWith(new.output())
        inputs[0].replaceAllUsesAfterNodeWith(node, new.output())
        node.destroy()
    return torch._C._create_function_from_graph("forward", graph)
