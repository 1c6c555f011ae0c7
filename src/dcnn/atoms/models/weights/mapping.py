"""Weights of published networks: their names, and how they get into ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dcnn.errors import InputError

PREFIXES = ("param.", "const.", "module.")
NOT_WEIGHTS = ("in.", "out.", "grad.", "post.")


class Entry(NamedTuple):
    """A published tensor: its names (several if tied) and the parts of ours it is made of, joined along dim.

    Parts are parameters, buffers or views into them, or, for what follows from the sizes anyway (the centres of a
    basis), a tensor made on the spot. An optional tensor may be left to the constructor.
    """

    names: tuple[str, ...]
    parts: tuple[Tensor, ...]
    dim: int = 1
    optional: bool = False

    def value(self) -> Tensor:
        """The published tensor, from ours."""
        return self.parts[0] if len(self.parts) == 1 else torch.cat(self.parts, self.dim)

    def copy_(self, array: Tensor) -> None:
        """Put a published tensor into ours."""
        shape = self.value().shape
        if array.shape != shape:
            raise InputError(
                f"{self.names[0]} has shape {tuple(array.shape)}, the network expects {tuple(shape)}; "
                "give the sizes it was made with"
            )
        sizes = [part.shape[self.dim] for part in self.parts] if len(self.parts) > 1 else None
        for part, piece in zip(self.parts, array.split(sizes, self.dim) if sizes else [array], strict=True):
            part.copy_(piece)


def entry(names: str | tuple[str, ...], *parts: Tensor, optional: bool = False) -> Entry:
    """An :class:`Entry` of matrices joined along their columns."""
    return Entry((names,) if isinstance(names, str) else names, parts, optional=optional)


def linear(name: str, layer: nn.Module) -> list[Entry]:
    """Weight, bias and running statistics of a layer that has the shape of the published one."""
    tensors = {key: getattr(layer, key, None) for key in ("weight", "bias", "running_mean", "running_var")}
    return [entry(f"{name}.{key}", value) for key, value in tensors.items() if value is not None]


def tidy(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """The arrays as tensors under bare published names; inputs and results beside them are left out."""
    tidied = {}
    for name in arrays:
        if not name.startswith(NOT_WEIGHTS):
            bare = name
            for prefix in PREFIXES:
                bare = bare.removeprefix(prefix)
            tidied[bare] = torch.as_tensor(np.asarray(arrays[name]))
    return tidied


def fill(network: nn.Module, arrays: Mapping[str, Tensor], entries: Iterable[Entry]) -> None:
    """Copy published arrays into the network; a missing array, or one without a place, is an error."""
    entries = list(entries)
    known = {name for item in entries for name in item.names}
    missing = [e.names[0] for e in entries if not e.optional and not any(name in arrays for name in e.names)]
    unexpected = [name for name in arrays if name not in known and not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise InputError(_complaint(type(network).__name__, missing, unexpected, known))
    with torch.no_grad():
        for item in entries:
            for name in item.names:
                if name in arrays:
                    item.copy_(arrays[name])
                    break


def _complaint(network: str, missing: list[str], unexpected: list[str], known: set[str]) -> str:
    parts = []
    if missing:
        parts.append(f"{len(missing)} missing, first {missing[0]!r}")
    if unexpected:
        close = get_close_matches(unexpected[0], known, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        parts.append(f"{len(unexpected)} without a place, first {unexpected[0]!r}{hint}")
    return f"these arrays are not those of a {network} of this size and kind: " + "; ".join(parts)


def count(arrays: Mapping[str, Any], pattern: str) -> int:
    """How many of pattern.format(0), pattern.format(1), … are there."""
    number = 0
    while pattern.format(number) in arrays:
        number += 1
    return number
