"""Functional calls (``F.relu(x)``, ``torch.tanh(x)``, ``x.relu()``) inside a forward, replaced by torch.fx.

A module whose calls are replaced gets ``forward`` rebound, on the instance, to code generated from the traced
graph of its own forward. That code works on the module itself: parameters, buffers and children stay the same
objects under the same names, and the new activations are ordinary children. Tracing runs once for every
combination of plain arguments and plain attributes (``None``, booleans, numbers, strings, ``training``), so
what the forward decides from those is kept.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

from torch import fx, nn

from dcnn.errors import InputError
from dcnn.surgery.calls import calls, own_graph, redirect
from dcnn.surgery.forward_source import read_source
from dcnn.surgery.fx_trace import UntraceableError, arguments, is_builtin
from dcnn.surgery.places import NotReplacedWarning, attach

_PLAIN = (bool, int, float, str, type(None))
_MOST_GRAPHS = 64


@dataclass(eq=False)
class CallPlace:
    """One call inside ``owner.forward``; once replaced, the new activation is the child ``owner.<local>``."""

    owner: nn.Module
    local: str
    kind: str
    value: Any
    via: str | None
    names: list[str]
    siblings: set[str]

    @property
    def sine(self) -> bool:
        """A sine may be a feature rather than an activation, so it is replaced only if asked for by name."""
        return self.kind == "sine"

    def put(self, module: nn.Module) -> None:
        """Let the call go through this module instead."""
        before = vars(self.owner).get("forward")
        replaced, known = (before.replaced, before.known) if isinstance(before, RebuiltForward) else (set(), set())
        self.owner.__dict__["forward"] = RebuiltForward(self.owner, replaced | {self.local}, known | self.siblings)
        attach(self.owner, self.local, module)
        make_scriptable(self.owner)


class RebuiltForward:
    """``owner.forward`` with some calls replaced by children of ``owner``; survives deepcopy and pickle."""

    def __init__(self, owner: nn.Module, replaced: set[str], known: set[str]) -> None:
        self.owner, self.replaced, self.known = owner, replaced, known
        self._built: dict[Any, Callable[..., Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_built": {}}

    @property
    def __code__(self) -> CodeType:  # torch.export asks where a forward comes from
        return type(self.owner).forward.__code__

    @property
    def __signature__(self) -> inspect.Signature:
        whole = inspect.signature(type(self.owner).forward)
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(type(self.owner).forward).bind(self.owner, *args, **kwargs)
        bound.apply_defaults()
        values = dict(list(bound.arguments.items())[1:])
        fixed = {name: value for name, value in values.items() if _plain(value)}
        return self.built(fixed)(self.owner, *(value for name, value in values.items() if name not in fixed))

    def built(self, fixed: dict[str, Any]) -> Callable[..., Any]:
        """The generated code for these plain arguments, as a function of the module and the other arguments."""
        key = (_key(fixed), _key({name: v for name, v in vars(self.owner).items() if name != "forward"}))
        if key not in self._built:
            if len(self._built) >= _MOST_GRAPHS:
                self._built.clear()
            self._built[key] = self._build(fixed)
        return self._built[key]

    def prepare(self) -> None:
        """Trace now, with the optional arguments left out, since one trace cannot run inside another."""
        self.built(arguments(self.owner)[1])

    def _build(self, fixed: dict[str, Any]) -> Callable[..., Any]:
        code = self.graph(fixed).python_code("self")
        namespace = dict(code.globals)
        exec(code.src, namespace)
        built: Callable[..., Any] = namespace["forward"]
        return built

    def graph(self, fixed: dict[str, Any]) -> fx.Graph:
        """The graph of the owner's forward for these plain arguments, with the replaced calls redirected."""
        try:
            graph = own_graph(self.owner, fixed)
        except UntraceableError as error:
            raise InputError(
                f"{type(self.owner).__name__}.forward was rebuilt to replace its {', '.join(sorted(self.replaced))}"
                f", but called with {fixed or 'these arguments'} {error}"
            ) from error
        for call in calls(self.owner, graph):
            if call.name in self.replaced:
                redirect(graph, call)
            elif call.kind == "activation" and call.via is None and call.name not in self.known:
                message = f"{type(self.owner).__name__}.forward now calls {call.name}, which was not replaced"
                warnings.warn(message, NotReplacedWarning, stacklevel=5)
        return graph


def make_scriptable(model: nn.Module) -> None:
    """Let torch.jit.script, which reads source code, see the replaced forwards inside this model."""
    model.__dict__["__prepare_scriptable__"] = partial(_scriptable, model)


def _scriptable(module: nn.Module) -> nn.Module:
    """A twin that shares all tensors, each replaced forward as a graph (its optional arguments left out)."""
    twin = copy.copy(module)
    twin.__dict__.pop("__prepare_scriptable__", None)
    twin.__dict__["_modules"] = {name: child and _scriptable(child) for name, child in module._modules.items()}
    forward = vars(module).get("forward")
    if not isinstance(forward, RebuiltForward):
        return twin
    graph = forward.graph(arguments(module)[1])
    twin.__dict__.pop("forward")
    for name in forward.replaced - set(twin._modules):  # those of a container are no children
        twin._modules[name] = _scriptable(getattr(module, name))
    return fx.GraphModule(twin, graph)


def _plain(value: Any) -> bool:
    return isinstance(value, _PLAIN) or (type(value) is tuple and all(map(_plain, value)))


def _key(values: dict[str, Any]) -> tuple[Any, ...]:
    """What a graph depends on: plain values (1, 1.0 and True told apart), and which callables are stored."""
    plain = ((name, type(value), value) for name, value in values.items() if _plain(value))
    stored = ((name, id(value)) for name, value in values.items() if callable(value))
    return (*plain, *stored)


def find_calls(
    owner: nn.Module, names: list[str], kinds: tuple[str, ...]
) -> tuple[list[CallPlace], list[tuple[str, str]]]:
    """The calls of these kinds in one module's own forward, and (place, reason) for those out of reach."""
    if is_builtin(owner) or type(owner).forward is nn.Module.forward:
        return [], []
    prefixes = [f"{name}." if name else "" for name in names]
    reading = read_source(owner)
    rebuilt = vars(owner).get("forward")
    replaced = rebuilt.replaced if isinstance(rebuilt, RebuiltForward) else set()
    places: dict[str, CallPlace] = {}
    siblings: set[str] = set()
    try:
        if rebuilt is not None and not isinstance(rebuilt, RebuiltForward):
            raise UntraceableError("its forward was already replaced on the instance")
        if reading.objections:
            raise UntraceableError(reading.objections[0])
        for graph in _graphs(owner):
            for call in calls(owner, graph):
                siblings.add(call.name)
                if call.kind in kinds and call.name not in replaced and call.name not in places:
                    full = [prefix + call.name for prefix in prefixes]
                    place = CallPlace(owner, call.name, call.kind, call.function, call.via, full, siblings)
                    places[call.name] = place
    except UntraceableError as error:
        read_calls = sorted({name for name, kind in reading.calls if kind in kinds and kind != "sine"})
        if reading.readable:
            return [], [(prefixes[0] + name, str(error)) for name in read_calls]
        return [], [(f"{prefixes[0]}forward", f"its source cannot be read and {error}")]
    return list(places.values()), []


def _graphs(owner: nn.Module) -> Iterator[fx.Graph]:
    """The graphs in train and eval mode, with the optional arguments left out and with them given."""
    parameters = list(inspect.signature(type(owner).forward).parameters.values())[1:]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise UntraceableError("its forward takes any number of arguments, which torch.fx cannot trace")
    _, defaults = arguments(owner)
    given = {name: value for name, value in defaults.items() if value is not None}
    mode = owner.training
    try:
        for training in (True, False):
            owner.training = training
            yield own_graph(owner, defaults)
            if given != defaults:
                with suppress(UntraceableError):  # a call with those arguments raises an error that says so
                    yield own_graph(owner, given)
    finally:
        owner.training = mode
