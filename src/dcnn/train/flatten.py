"""A batch as a list of tensors and back: what a graph takes as its inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor

from dcnn.atoms.structures import Edges


def flattened(batch: Any, topology: Sequence[str] = ()) -> tuple[list[Tensor], tuple[Any, ...]]:
    """All tensors of a batch, and its kind: the same for batches that differ in the values and sizes of these alone."""
    tensors: list[Tensor] = []
    others: list[Any] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    _mapped(batch, collect, others.append, topology)
    return tensors, (*((t.dim(), t.dtype, t.device) for t in tensors), *others)


def rebuilt(batch: Any, topology: Sequence[str], tensors: Sequence[Tensor]) -> Any:
    """The batch with these tensors in the places of its own."""
    supply = iter(tensors)
    return _mapped(batch, lambda _: next(supply), lambda _: None, topology)


def _mapped(value: Any, swap: Callable[[Tensor], Tensor], note: Callable[[Any], None], topology: Sequence[str]) -> Any:
    """`value` with every tensor swapped; `note` is told of everything else that it holds."""

    def inner(part: Any) -> Any:
        return _mapped(part, swap, note, topology)

    if isinstance(value, Tensor):
        return swap(value)
    if isinstance(value, Edges):  # makes its parts when asked: those that the network needs are inputs
        twin = copy.copy(value)
        vars(twin).update({name: inner(getattr(value, name)) for name in ("_i", "_j", *topology)})
        return twin
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{entry.name: inner(getattr(value, entry.name)) for entry in fields(value)})
    if isinstance(value, tuple):
        parts = [inner(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Mapping):
        return {key: inner(part) for key, part in value.items()}
    note(repr(value) if isinstance(value, bool | int | float | str | slice | None) else type(value))
    return value
