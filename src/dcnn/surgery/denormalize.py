"""denormalize: a model without its normalization layers."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.errors import InputError, unknown
from dcnn.surgery import recognise
from dcnn.surgery.fold import Folder
from dcnn.surgery.functional import CallPlace, find_calls, make_scriptable
from dcnn.surgery.places import Changed, NotReplacedWarning, Slot, leave_fast_path, walk


class FirstArgument(nn.Identity):
    """The identity in place of a norm that takes more than its input, such as PyG's ``norm(x, batch)``."""

    def forward(self, input: Tensor, *others: Any, **more: Any) -> Tensor:
        """The first argument, unchanged."""
        return input


def denormalize(model: nn.Module, kinds: str | Iterable[str] = "all", fold: bool = False) -> Changed:
    """Remove the normalization layers of these kinds (batch, layer, group, instance, rms), in place.

    With ``fold=True`` the running statistics and the affine part of a BatchNorm go into the linear or
    convolution layer before it, or after it, so that the output in eval mode stays the same; a norm that
    cannot be folded stays.
    Returns the names that were removed; ``.not_replaced`` lists the rest with reasons, and is warned about.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))
    >>> denormalize(net, fold=True), net[1]
    (['1'], FoldedNorm())
    """
    wanted = _kinds(kinds)
    if recognise.normalization(model) in wanted:
        raise InputError(f"{type(model).__name__} is itself a normalization; give the model that holds it")
    slots, calls, left = _find(model, wanted, everything=kinds == "all")
    folder = Folder(model) if fold else None
    removed = []
    places: list[Slot | CallPlace] = [*slots, *calls]
    for place in places:
        new = folder.fold(place) if folder is not None else _identity(place.value)
        if isinstance(new, str):
            left.append((place.names[0], f"cannot be folded: {new}"))
            continue
        place.put(new)
        leave_fast_path(model, place.owner)
        removed.append(place.names[0])
    if not removed and not left:
        raise InputError(f"nothing to denormalize: {type(model).__name__} has no {_listed(wanted)} normalization")
    if calls:
        make_scriptable(model)
    if left:
        lines = "\n".join(f"  {place}: {why}" for place, why in left)
        warnings.warn(f"normalization left as it was:\n{lines}", NotReplacedWarning, stacklevel=2)
    return Changed(removed, left)


def _kinds(kinds: str | Iterable[str]) -> list[str]:
    if kinds == "all":
        return list(recognise.KINDS)
    wanted = [kinds] if isinstance(kinds, str) else list(kinds)
    for kind in wanted:
        if kind not in recognise.KINDS:
            raise unknown("kind of normalization", kind, (*recognise.KINDS, "all"))
    return wanted


def _listed(kinds: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))


def _find(
    model: nn.Module, wanted: list[str], everything: bool
) -> tuple[list[Slot], list[CallPlace], list[tuple[str, str]]]:
    """Slots that hold a norm, calls of one inside a forward, and (place, reason) for the unreachable."""
    left: dict[str, str] = {}

    def match(value: Any, attribute: str, name: str) -> bool:
        kind = recognise.normalization(value)
        if isinstance(value, torch.jit.ScriptModule):
            left[name] = recognise.TORCHSCRIPT
        if kind == "unknown" and everything:
            left[name] = f"{type(value).__name__} is of no kind that is known here ({', '.join(recognise.KINDS)})"
        return kind in wanted

    slots, owners = walk(model, match)
    calls: list[CallPlace] = []
    for owner, names in owners:
        if recognise.normalization(owner) is None:
            found, out_of_reach = find_calls(owner, names, tuple(wanted))
            calls += [call for call in found if call.via is None]
            left |= dict(out_of_reach)
    return slots, calls, list(left.items())


def _identity(norm: Any) -> nn.Identity:
    if not isinstance(norm, nn.Module):
        return nn.Identity()
    identity = nn.Identity() if len(inspect.signature(norm.forward).parameters) == 1 else FirstArgument()
    return identity.train(norm.training)
