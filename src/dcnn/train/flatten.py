"""A batch as a list of tensors and back: what a graph takes as its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

_PLAIN = (bool, int, float, str, slice, type(None))


@runtime_checkable
class Lazy(Protocol):
    """A part of a batch that makes its tensors when asked for: those that a network needs are inputs of its graph."""

    def made(self) -> tuple[str, ...]:
        """Names of what has been asked for so far."""

    def tensors(self, parts: Iterable[str]) -> dict[str, Any]:
        """All that is always there, and these parts, made now if need be."""

    def with_tensors(self, tensors: Mapping[str, Any]) -> Any:
        """The same with other tensors in these places."""


def parts_made(batch: Any) -> tuple[str, ...]:
    """What has been asked for of the lazy parts of a batch."""
    if isinstance(batch, Lazy):
        return batch.made()
    if is_dataclass(batch) and not isinstance(batch, type):
        return tuple(name for entry in fields(batch) for name in parts_made(getattr(batch, entry.name)))
    return ()


def flattened(batch: Any, parts: Sequence[str] = ()) -> tuple[list[Tensor], tuple[Any, ...]]:
    """All tensors of a batch, and its kind: the same for batches that differ in the values and sizes of these alone."""
    tensors: list[Tensor] = []
    others: list[Any] = []
    _collect(batch, tensors, others, parts)
    return tensors, (*((t.dim(), t.dtype, t.device) for t in tensors), *others)


def rebuilt(batch: Any, parts: Sequence[str], tensors: Sequence[Tensor]) -> Any:
    """The batch with these tensors in the places of its own."""
    return _swapped(batch, iter(tensors), parts)


def _collect(value: Any, tensors: list[Tensor], others: list[Any], parts: Sequence[str]) -> None:
    """Every tensor of `value`, in the order of :func:`_swapped`, and a word for everything else that it holds."""
    if isinstance(value, Tensor):
        tensors.append(value)
    elif isinstance(value, _PLAIN):
        others.append(repr(value))
    else:
        inside = _inside(value, parts)
        if inside is None:
            others.append(type(value))
        for part in inside or ():
            _collect(part, tensors, others, parts)


def _inside(value: Any, parts: Sequence[str]) -> Iterable[Any] | None:
    """What `value` holds, or None if it is not looked into. Cheap questions first: this is asked in every step."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, Mapping):
        return value.values()
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, name) for name in value.__dataclass_fields__]
    return value.tensors(parts).values() if isinstance(value, Lazy) else None


def _swapped(value: Any, supply: Iterator[Tensor], parts: Sequence[str]) -> Any:
    """`value` with the next tensor of the supply in the place of each of its own."""
    if isinstance(value, Tensor):
        return next(supply)
    if isinstance(value, tuple):
        swapped = [_swapped(part, supply, parts) for part in value]
        return type(value)(*swapped) if hasattr(value, "_fields") else tuple(swapped)
    if isinstance(value, Mapping):
        return {key: _swapped(part, supply, parts) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        own = {entry.name: getattr(value, entry.name) for entry in fields(value)}
        return replace(value, **{name: _swapped(part, supply, parts) for name, part in own.items()})
    if isinstance(value, Lazy):
        held = {name: _swapped(part, supply, parts) for name, part in value.tensors(parts).items()}
        return value.with_tensors(held)
    return value
