"""Where a model keeps its activations and norms: children, attributes, lists, tuples and dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import nn

_INTERNAL = {*vars(nn.Module()), "forward", "__prepare_scriptable__"}
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class NotReplacedWarning(UserWarning):
    """Something that should have been replaced was left as it was."""


class Changed(list[str]):
    """Dotted names of the places that were changed.

    ``not_replaced`` lists (place, reason) for what was left; ``order`` says how the forward order was found
    (``"sample"``, ``"trace"`` or ``"registration"``; ``None`` where no order was needed).
    """

    def __init__(self, names: list[str], not_replaced: list[tuple[str, str]], order: str | None = None) -> None:
        super().__init__(names)
        self.not_replaced = not_replaced
        self.order = order


@dataclass(eq=False)
class Slot:
    """A place that holds a module or a callable: ``owner.attribute``, or an item of a list or dictionary in it."""

    owner: nn.Module
    attribute: str
    path: tuple[Any, ...] = ()
    names: list[str] = field(default_factory=list)
    sine = False

    @property
    def value(self) -> Any:
        """What is there now."""
        held = getattr(self.owner, self.attribute)
        for key in self.path:
            held = held[key]
        return held

    def put(self, value: Any) -> None:
        """Put a module or a callable here; lists and dictionaries are copied, as others may hold them too."""
        attach(self.owner, self.attribute, with_item(getattr(self.owner, self.attribute), self.path, value))


def attach(owner: nn.Module, attribute: str, value: Any) -> None:
    """``owner.attribute = value``, registered as a child if it is a module."""
    if attribute in owner._modules and isinstance(value, nn.Module):
        owner._modules[attribute] = value  # keeps its position, which is the order in a Sequential
    elif isinstance(owner, _CONTAINERS):
        owner.__dict__[attribute] = value  # as a child it would become one more item of the container
    else:
        owner._modules.pop(attribute, None)
        setattr(owner, attribute, value)


@contextmanager
def untouched(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Whatever happens inside, these modules have their attributes and children of before afterwards."""
    before = [(module, dict(vars(module)), dict(module._modules)) for module in modules]
    try:
        yield
    finally:
        for module, attributes, children in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._modules.clear()
            module._modules.update(children)


def with_item(container: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of the nested container with the item at ``path`` replaced; for an empty path the value itself."""
    if not path:
        return value
    key = path[0]
    value = with_item(container[key], path[1:], value)
    if isinstance(container, dict):
        return {**container, key: value}
    items = [value if i == key else item for i, item in enumerate(container)]
    return tuple(items) if isinstance(container, tuple) else items


def held(owner: nn.Module) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """(attribute, path, value) of every child module and stored callable of one module."""
    for name, child in owner._modules.items():
        if child is not None:
            yield name, (), child
    for name, value in vars(owner).items():
        if name not in _INTERNAL:
            for path, item in _items(value, ()):
                yield name, path, item


def _items(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if type(value) in (list, tuple):
        for i, item in enumerate(value):
            yield from _items(item, (*path, i))
    elif type(value) is dict:
        for key, item in value.items():
            yield from _items(item, (*path, key))
    elif callable(value):
        yield path, value


def walk(
    model: nn.Module, match: Callable[[Any, str, str], bool]
) -> tuple[list[Slot], list[tuple[nn.Module, list[str]]]]:
    """The slots whose value matches (value, attribute, dotted name), and every other module with its names.

    A slot of a module that sits in several places has several names; what matches is not searched further.
    """
    registered = {id(module) for module in model.modules()}
    slots: dict[tuple[Any, ...], Slot] = {}
    owners: dict[int, tuple[nn.Module, list[str]]] = {}

    def visit(owner: nn.Module, prefix: str, above: frozenset[int]) -> None:
        owners.setdefault(id(owner), (owner, []))[1].append(prefix)
        for attribute, path, value in list(held(owner)):
            name = ".".join(part for part in (prefix, attribute, *map(str, path)) if part)
            if match(value, attribute, name):
                slot = slots.setdefault((id(owner), attribute, path), Slot(owner, attribute, path))
                slot.names.append(name)
                continue
            new = attribute in owner._modules or id(value) not in registered
            if isinstance(value, nn.Module) and new and id(value) not in above:
                visit(value, name, above | {id(value)})

    visit(model, "", frozenset({id(model)}))
    return list(slots.values()), list(owners.values())


def leave_fast_path(model: nn.Module, owner: nn.Module) -> None:
    """Keep PyTorch's fused transformer kernel from running the activation and norms that were there before."""
    if isinstance(owner, nn.TransformerEncoderLayer):
        owner.activation_relu_or_gelu = 0
        for encoder in model.modules():
            if isinstance(encoder, nn.TransformerEncoder) and any(layer is owner for layer in encoder.layers):
                encoder.use_nested_tensor = False
