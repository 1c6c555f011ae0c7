"""A batch as a list of tensors and back: what a graph takes as its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


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

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    _mapped(batch, collect, others.append, parts)
    return tensors, (*((t.dim(), t.dtype, t.device) for t in tensors), *others)


def rebuilt(batch: Any, parts: Sequence[str], tensors: Sequence[Tensor]) -> Any:
    """The batch with these tensors in the places of its own."""
    supply = iter(tensors)
    return _mapped(batch, lambda _: next(supply), lambda _: None, parts)


def _mapped(value: Any, swap: Callable[[Tensor], Tensor], note: Callable[[Any], None], parts: Sequence[str]) -> Any:
    """`value` with every tensor swapped; `note` is told of everything else that it holds."""

    def inner(part: Any) -> Any:
        return _mapped(part, swap, note, parts)

    if isinstance(value, Tensor):
        return swap(value)
    if isinstance(value, Lazy):
        return value.with_tensors({name: inner(part) for name, part in value.tensors(parts).items()})
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{entry.name: inner(getattr(value, entry.name)) for entry in fields(value)})
    if isinstance(value, tuple):
        parts = [inner(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Mapping):
        return {key: inner(part) for key, part in value.items()}
    note(repr(value) if isinstance(value, bool | int | float | str | slice | None) else type(value))
    return value
