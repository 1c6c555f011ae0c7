"""Every call of torch that its documentation does not promise, in one place; tested with torch 2.13.0.

What records graphs is imported when one is recorded: it takes seconds.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor
from torch.fx import GraphModule
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.batchnorm import _NormBase as NormWithStatistics
from torch.nn.modules.dropout import _DropoutNd as Dropout
from torch.nn.modules.instancenorm import _InstanceNorm as InstanceNorm
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["BatchNorm", "Dropout", "InstanceNorm", "NormWithStatistics", "TorchDispatchMode"]


def forward_mode() -> AbstractContextManager[None]:
    """Forward derivatives on, inside a ``jvp`` where torch switches them off."""
    return cast(AbstractContextManager[None], forward_ad._set_fwd_grad_enabled(True))


def recording() -> bool:
    """Whether make_fx is recording operations."""
    module = sys.modules.get("torch.fx.experimental.proxy_tensor")
    return module is not None and module.get_proxy_mode() is not None


def transforming() -> bool:
    """Whether a transform of torch.func is active."""
    return bool(torch._C._are_functorch_transforms_active())


def recorded(function: Callable[..., Any], *example: Any, any_size: bool = False) -> GraphModule:
    """The operations of one call, derivatives included; with ``any_size`` the sizes of the example are variables."""
    from torch.fx.experimental.proxy_tensor import make_fx

    if not any_size:
        return make_fx(function)(*example)
    return make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*example)


def recorded_for_any_size(function: Callable[..., Any], constants: Sequence[Tensor], *example: Any) -> GraphModule:
    """The operations of one call; sizes are variables, those of ``constants``, which are in the example, numbers."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    for constant in constants:
        mode.from_tensor(constant, static_shapes=True)  # kept by the mode
    with mode:
        return make_fx(function, tracing_mode="symbolic")(*example)


def mark_static(tensor: Tensor) -> None:
    """Tell torch.compile that the sizes of this tensor never change."""
    torch._dynamo.mark_static(tensor)


def machine_code(graph: GraphModule, inputs: list[Any], options: dict[str, Any]) -> Callable[..., Any]:
    """The graph compiled for inputs of these sizes, or loaded from the cache of the compiler; no input is checked.

    The graph is used up.
    """
    more: dict[str, Any] = {"options": {"config_patches": options}, "donate_graph_module": True}
    return torch._inductor.standalone_compile(graph, inputs, dynamic_shapes="from_example_inputs", **more)


def interpolate_(means: Sequence[Tensor], values: Sequence[Tensor], weight: float) -> None:
    """mean += weight · (value − mean) for all tensors at once."""
    torch._foreach_lerp_(list(means), list(values), weight)


def add_scaled_(tensors: list[Tensor], others: list[Tensor], factor: float, keep: float = 1.0) -> None:
    """tensor ← keep · tensor + factor · other."""
    if keep != 1.0:
        torch._foreach_mul_(tensors, keep)
    torch._foreach_add_(tensors, others, alpha=factor)


def compile_package(program: torch.export.ExportedProgram, path: str, metadata: dict[str, str]) -> Any:
    """Compile an exported program into a package at ``path``; returns it, loaded."""
    options = {"aot_inductor.metadata": metadata}
    torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=options)
    return torch._inductor.aoti_load_package(path)


def uncompiled(value: Any) -> Any:
    """The module or function inside the wrapper that torch.compile makes; anything else as it is."""
    return getattr(value, "_orig_mod", None) or getattr(value, "_torchdynamo_orig_callable", None) or value


def scripted(function: Callable[[Tensor], Tensor]) -> Any:
    """An elementwise function as TorchScript that autograd can differentiate: nothing is written in place."""
    return torch._C._create_function_from_graph("forward", scripted_module(function).graph)


def scripted_module(function: Callable[[Tensor], Tensor]) -> Any:
    """:func:`scripted` as a traced function or, of a module, as a module that can be saved."""
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
    return traced


@contextmanager
def functions_as_operations() -> Iterator[None]:
    """Inside, an autograd function is its forward operations alone: TorchScript cannot hold one, and differentiates
    the operations by itself.
    """
    kept = torch.autograd.Function.__dict__["apply"]

    def apply(cls: Any, *arguments: Any) -> Any:
        if cls.setup_context is not torch.autograd.Function.setup_context:  # then forward takes no context
            return cls.forward(*arguments)
        return cls.forward(SimpleNamespace(save_for_backward=lambda *saved: None), *arguments)

    setattr(torch.autograd.Function, "apply", classmethod(apply))  # noqa: B010
    try:
        yield
    finally:
        setattr(torch.autograd.Function, "apply", kept)  # noqa: B010
