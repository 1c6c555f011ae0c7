"""Activations and normalizations of a model, wherever it keeps them: modules, stored callables, calls in a forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dcnn.surgery import recognise
from dcnn.surgery.places import walk
from dcnn.surgery.read import read


def find_activations(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """(place, module or function) of every elementwise nonlinearity."""
    slots, owners = walk(model, lambda value, attribute, _: recognise.activation(value, attribute) is True)
    for slot in slots:
        yield slot.names[0], slot.value
    for owner, names in owners:
        for name in dict.fromkeys(call for call, kind in read(owner).calls if kind == "activation"):
            yield _inside(names[0], name), _function(name)


def find_normalizations(model: nn.Module) -> Iterator[tuple[str, str]]:
    """(place, kind) of every normalization."""
    slots, owners = walk(model, lambda value, _, __: recognise.normalization(value) is not None)
    for slot in slots:
        yield slot.names[0], str(recognise.normalization(slot.value))
    for owner, names in owners:
        for name, kind in dict.fromkeys(read(owner).calls):
            if kind in recognise.KINDS:
                yield _inside(names[0], name), kind


def _inside(owner: str, function: str) -> str:
    return f"{owner or 'model'}.forward: {function}()"


def _function(name: str) -> Callable[..., Any]:
    return next(getattr(space, name) for space in (F, torch, torch.special, Tensor) if hasattr(space, name))
