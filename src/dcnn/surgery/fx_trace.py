"""Graphs of a forward pass by torch.fx, and the reasons why such a graph must not be trusted."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx, nn

from dcnn.errors import first_line


class UntraceableError(Exception):
    """torch.fx cannot turn this forward into a graph that computes the same."""


class _Tracer(fx.Tracer):
    """Traces ``forward`` of the root with the arguments ``free`` symbolic; every ``leaf`` stays one call."""

    proxy_buffer_attributes = True

    def __init__(
        self, forward: Callable[..., Any], free: list[str], leaf: Callable[[nn.Module], bool], exact: bool
    ) -> None:
        super().__init__()
        self._forward, self._free, self._leaf, self._exact = forward, free, leaf, exact

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self._leaf(m)

    def call_module(self, m: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._exact and m not in (self.submodule_paths or {}):
            return forward(*args, **kwargs)  # kept in a plain list, so it has no name that a graph could call
        return super().call_module(m, forward, args, kwargs)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        symbols = [self.create_proxy("placeholder", name, (), {}) for name in self._free]
        return (lambda *values: self._forward(**dict(zip(self._free, values, strict=True)))), symbols

    def create_arg(self, a: Any) -> Any:
        if not isinstance(a, Tensor) or isinstance(a, nn.Parameter) or self._belongs_to_root(a):
            return super().create_arg(a)
        if self._exact:
            raise UntraceableError("it makes a tensor of its own, which a traced graph would freeze")
        return 0.0  # only the flow of data is wanted, and fx would store the tensor in the model

    def _belongs_to_root(self, tensor: Tensor) -> bool:
        return tensor in self.tensor_attrs or any(tensor is buffer for buffer in self.root.buffers())


def trace(
    module: nn.Module,
    forward: Callable[..., Any],
    free: list[str],
    leaf: Callable[[nn.Module], bool],
    *,
    exact: bool,
) -> fx.Graph:
    """The graph of ``forward(**free)``; ``exact`` if it is to be run, not only read."""
    tracer = _Tracer(forward, free, leaf, exact)
    try:
        for inner in () if exact else module.modules():
            if hasattr(vars(inner).get("forward"), "prepare"):
                vars(inner)["forward"].prepare()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tracer.trace(module)
    except UntraceableError:
        raise
    except Exception as error:  # the user's forward runs on symbols and may fail in any way
        raise UntraceableError(f"torch.fx cannot trace it ({type(error).__name__}: {first_line(error)})") from error


def arguments(module: nn.Module) -> tuple[list[str], dict[str, Any]]:
    """The names of the required arguments of its forward, and the defaults of the optional ones."""
    parameters = list(inspect.signature(type(module).forward).parameters.values())[1:]
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = [p.name for p in named if p.default is p.empty]
    return required, {p.name: p.default for p in named if p.default is not p.empty}


def is_builtin(module: nn.Module) -> bool:
    """Is its code PyTorch's own?"""
    return type(module).__module__.startswith(("torch.nn.", "torch.ao.", "torch.jit."))
