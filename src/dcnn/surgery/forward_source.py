"""Reads the source of a forward: which activations it calls, and what a traced graph of it would lose."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch import nn

from dcnn.surgery import recognise

_MODES = ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast")
_TYPE_TESTS = ("isinstance", "hasattr", "type", "is_tensor")
_MUTATORS = ("append", "extend", "insert", "add", "update", "setdefault", "pop", "clear")
_METHODS = tuple(name for name in dir(torch.Tensor) if recognise.function(name))
# what PyG's propagate and edge_updater call by name
_CALLBACKS = {
    "propagate": ("message", "update", "message_and_aggregate", "aggregate"),
    "edge_updater": ("edge_update",),
}


@dataclass
class Reading:
    """What the source says: (name, kind) of the calls, objections to tracing, and whether it could be read.

    ``reads_weights``: it uses the weight or bias of another module than itself (or may do so, if unreadable).
    """

    calls: list[tuple[str, str]] = field(default_factory=list)
    objections: list[str] = field(default_factory=list)
    readable: bool = True
    reads_weights: bool = False


def read_source(module: nn.Module) -> Reading:
    """Reads ``forward`` and the methods and functions it reaches, down to those of PyTorch itself."""
    reading = Reading()
    start = type(module).forward
    waiting: list[Callable[..., Any]] = [start]
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        if id(function) in seen or not isinstance(function, FunctionType) or _of_torch(function):
            continue
        seen.add(id(function))
        if hasattr(function, "__wrapped__"):
            reading.objections.append(f"{function.__name__} is decorated")
            function = inspect.unwrap(function)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            reading.readable = reading.readable and function is not start
            reading.reads_weights = True
            reading.objections += [f"it uses {n}" for n in function.__code__.co_names if n in _MODES + _TYPE_TESTS]
            continue
        waiting += _Visitor(module, function, reading).follow(tree)
    return reading


def _of_torch(function: FunctionType) -> bool:
    return (function.__module__ or "").split(".")[0] in ("torch", "numpy")


class _Visitor:
    def __init__(self, module: nn.Module, function: FunctionType, reading: Reading) -> None:
        self.module, self.function, self.reading = module, function, reading
        closure = inspect.getclosurevars(function).nonlocals
        self.names = {**function.__globals__, **closure}

    def follow(self, tree: ast.AST) -> Iterator[Callable[..., Any]]:
        """Notes calls and objections; yields the functions that are called."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _root(node) == "self":
                self.reading.objections.append(f"it writes to self.{node.attr}")
            elif isinstance(node, ast.Attribute) and node.attr in ("weight", "bias"):
                self.reading.reads_weights |= not (isinstance(node.value, ast.Name) and node.value.id == "self")

    def _call(self, call: ast.Call) -> Iterator[Callable[..., Any]]:
        name = _last(call.func)
        target = self._called(call.func)
        found = recognise.function(target) if target is not None else None
        if found is None and target is None and _is_method_call(call) and name in _METHODS:
            found = recognise.function(name)
        if found is not None:
            self.reading.calls.append(found)
        elif name in _MODES:
            self.reading.objections.append(f"it uses torch.{name}, which a traced graph loses")
        elif name in _TYPE_TESTS and self._sees_through_symbols(call):
            self.reading.objections.append(f"it tests its input with {name}, which a traced graph cannot do")
        elif "random" in ast.unparse(call.func).split("."):
            self.reading.objections.append(f"it calls {ast.unparse(call.func)}, which a traced graph freezes")
        elif name in _MUTATORS and _root(call.func) == "self" and not self._is_module(call.func):
            self.reading.objections.append(f"it changes {ast.unparse(call.func.value)}")  # type: ignore[attr-defined]
        yield from (getattr(type(self.module), c) for c in _CALLBACKS.get(name, ()) if hasattr(type(self.module), c))
        if isinstance(target, FunctionType):
            yield target

    def _sees_through_symbols(self, call: ast.Call) -> bool:
        """Does a type test tell a symbol of torch.fx from a tensor? Not if it asks for plain types alone."""
        if not call.args or _root(call.args[0]) in ("self", None):
            return False
        if len(call.args) < 2:
            return True
        asked = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
        return not all(_last(kind) in ("bool", "int", "float", "str") for kind in asked)

    def _is_module(self, function: ast.expr) -> bool:
        return isinstance(function, ast.Attribute) and isinstance(self._resolve(function.value), nn.Module)

    def _resolve(self, node: ast.expr) -> Any:
        """The object a dotted name stands for, if that can be told without running the code."""
        if isinstance(node, ast.Name):
            return self.module if node.id == "self" else self.names.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        if isinstance(node.value, ast.Call) and _last(node.value.func) == "super":
            return self._inherited(node.attr)
        return getattr(self._resolve(node.value), node.attr, None)

    def _called(self, node: ast.expr) -> Any:
        """The function that is called; not what the instance stores, which is replaced where it is stored."""
        if _root(node) != "self":
            return self._resolve(node)
        method = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        return getattr(type(self.module), _last(node), None) if method else None

    def _inherited(self, name: str) -> Any:
        versions = [vars(cls)[name] for cls in type(self.module).__mro__ if name in vars(cls)]
        following = [v for v, before in zip(versions[1:], versions, strict=False) if before is self.function]
        return following[0] if following else None


def _is_method_call(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and not call.args and _root(call.func) not in ("torch", "F")


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.expr) -> str | None:
    """The name that a chain of attributes, calls and items starts with."""
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None
