"""Copies of a model that can be measured: in float64, out of compiled, exported and closed-over code."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.torch_internals import uncompiled

_INTERNAL = {*vars(nn.Module())}


class _Function(nn.Module):
    """A plain function as a module; the modules that it closes over are its children, under the names it uses."""

    def __init__(self, function: Callable[..., Any], held: dict[str, nn.Module]) -> None:
        super().__init__()
        self.__dict__["forward"] = function
        for name, module in held.items():
            self.add_module(name.replace(".", "_"), module)


def copied(
    model: Any, dtype: torch.dtype | None = torch.float64, training: bool = False, fill_zeros: bool = True
) -> nn.Module:
    """A copy in this precision (None: its own) and mode; the original is not touched.

    Compiled code is taken out of its wrapper. Zero weights (a read-out that starts at zero on purpose) say nothing
    about a network and become small random numbers (`fill_zeros`); :func:`zero_weights` lists them.
    """
    made = _separate(model)
    for module in [made, *(m for _, m in every_module(made))]:
        for name, child in list(module._modules.items()):
            module._modules[name] = uncompiled(child)
    if dtype is not None:
        _cast(made, dtype)
    for module in made.modules():
        module.training = training  # not train(): exported modules refuse it
    generator = torch.Generator().manual_seed(0)
    parameters = dict(made.named_parameters())
    with torch.no_grad():
        for name in zero_weights(made) if fill_zeros else ():
            weight = parameters[name]
            fan = max(weight.shape[-1], 1) if weight.dim() > 1 else 1
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) / fan**0.5)
    return made


def zero_weights(model: nn.Module) -> list[str]:
    """Names of the parameters, biases apart, that are zero throughout."""
    return [
        name
        for name, p in model.named_parameters()
        if p.is_floating_point() and p.numel() and "bias" not in name.split(".")[-1] and not bool(p.detach().any())
    ]


def _separate(model: Any) -> nn.Module:
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    model = uncompiled(model)
    if isinstance(model, type) or not callable(model):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise InputError(f"audit: the model is {what}; pass an nn.Module or a function of the sample")
    if isinstance(model, nn.Module):
        return _deepcopy(model)
    held: dict[str, nn.Module] = {}
    return _Function(_copied_function(model, held), held)


def _copied_function(function: Any, held: dict[str, nn.Module]) -> Any:
    """The function on copies of the modules that it reaches through its closure, globals, arguments or `self`."""

    def own(name: str, value: Any) -> Any:
        value = uncompiled(value)
        if isinstance(value, nn.Module):
            if name not in held:
                held[name] = _deepcopy(value)
            return held[name]
        return value

    if isinstance(function, partial):
        arguments = [own(f"argument{i}", value) for i, value in enumerate(function.args)]
        keywords = {name: own(name, value) for name, value in function.keywords.items()}
        return partial(_copied_function(function.func, held), *arguments, **keywords)
    if isinstance(function, MethodType):
        return MethodType(function.__func__, _copied_object(function.__self__, held))
    if not isinstance(function, FunctionType):
        return _copied_object(function, held)
    names = inspect.getclosurevars(function)
    space = {**function.__globals__, **{name: own(name, value) for name, value in names.globals.items()}}
    cells = tuple(
        CellType(own(name, cell.cell_contents))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    made = FunctionType(function.__code__, space, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _copied_object(owner: Any, held: dict[str, nn.Module]) -> Any:
    """A copy of an object with modules in its attributes, or of a module; what torch cannot copy stays itself."""
    if isinstance(owner, nn.Module):
        made: Any = held.setdefault("self", _deepcopy(owner))
    elif any(isinstance(value, nn.Module) for value in getattr(owner, "__dict__", {}).values()):
        made = copy.copy(owner)
        for name, value in vars(owner).items():
            if isinstance(value, nn.Module):
                held[name] = made.__dict__[name] = _deepcopy(value)
    else:
        return owner
    return made


def _deepcopy(model: nn.Module) -> nn.Module:
    """A deep copy; tensors that were computed (a normed weight, a cache) are copied by value, which torch refuses."""
    memo: dict[int, Any] = {}
    for _, module in every_module(model):
        for value in [*vars(module).values(), *module._buffers.values()] if not _scripted(module) else []:
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    # with gradients the weights of TorchScript modules would be computed from the original ones
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, for exported modules
        made = copy.deepcopy(model, memo)
    for weight, original in zip(made.parameters(), model.parameters(), strict=True):
        weight.requires_grad_(original.requires_grad)
    return made


def _scripted(module: nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


def _cast(model: nn.Module, dtype: torch.dtype) -> None:
    """All floating tensors, also those in plain attributes and in modules that are kept in plain lists."""
    wide = torch.complex128 if dtype == torch.float64 else torch.complex64

    def to(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(dtype) if value.is_floating_point() else value.to(wide) if value.is_complex() else value
        if type(value) in (list, tuple):
            return type(value)(map(to, value))
        return {key: to(item) for key, item in value.items()} if type(value) is dict else value

    model._apply(to)
    registered = set(model.modules())
    for _, module in every_module(model):
        if module not in registered:
            module._apply(to)
        for name, value in list(vars(module).items()) if not _scripted(module) else []:
            if name not in _INTERNAL and isinstance(value, (Tensor, list, tuple, dict)):
                module.__dict__[name] = to(value)


def every_module(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """(dotted name, module), once each, also of those that are kept in plain attributes, lists and dictionaries."""
    seen: set[int] = set()

    def visit(value: Any, name: str) -> Iterator[tuple[str, nn.Module]]:
        if isinstance(value, nn.Module):
            if id(value) in seen:
                return
            seen.add(id(value))
            yield name, value
            inside: dict[Any, Any] = dict(value._modules)
            if not _scripted(value):
                inside |= {k: v for k, v in vars(value).items() if k not in _INTERNAL}
        elif type(value) in (list, tuple):
            inside = dict(enumerate(value))
        elif type(value) is dict:
            inside = value
        else:
            return
        for key, item in inside.items():
            yield from visit(item, f"{name}.{key}" if name else str(key))

    yield from visit(model, "")
