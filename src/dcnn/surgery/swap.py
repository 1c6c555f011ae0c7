"""swap_activations: other activations in a model that exists already, wherever it keeps them."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn

from dcnn import activations
from dcnn.errors import InputError
from dcnn.surgery import recognise
from dcnn.surgery.choose import Place, Where, choose, every_second
from dcnn.surgery.functional import CallPlace, find_calls, make_scriptable
from dcnn.surgery.fx_trace import is_builtin
from dcnn.surgery.places import Changed, NotReplacedWarning, Slot, leave_fast_path, walk


def swap_activations(
    model: nn.Module, activation: str | nn.Module, where: Where = None, *, sample: Any = None
) -> Changed:
    """Replace activations by ``activation`` (a name, or a module that is then used everywhere), in place.

    ``where`` picks by dotted name: a glob, a list of names, a predicate of (name, what is there now), or
    ``"alternate"``: the 2nd, 4th, … along the forward order, which is taken from running ``sample`` (a
    tensor, a tuple of arguments or a dictionary of keywords), else from a torch.fx trace, else from
    registration.
    Returns the names that were changed; ``.not_replaced`` lists the rest with reasons, and is warned about.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    >>> swap_activations(net, "irelu", where="alternate")
    ['3']
    >>> net[1], net[3]
    (Tanh(), IReLU())
    """
    activations.get(activation)
    reason = recognise.activation(model, "")
    if reason:
        what = f"cannot be changed: {reason}" if isinstance(reason, str) else "is itself an activation"
        raise InputError(f"{type(model).__name__} {what}; give the model that holds it")
    slots, calls, left = _find(model)
    places: list[Place] = [*slots, *(call for call in calls if call.via is None)]
    order = None
    if isinstance(where, str) and where == "alternate":
        chosen, order = every_second(model, slots, calls, sample)
    else:
        chosen = choose(places, where)
    if not chosen:
        raise _nothing(model, places, left, where)
    for place, _ in chosen:
        place.put(_new(activation, recognise.factor(place.value), place.owner.training))
        leave_fast_path(model, place.owner)
    if any(isinstance(place, CallPlace) for place, _ in chosen):
        make_scriptable(model)
    if left:
        lines = "\n".join(f"  {place}: {why}" for place, why in left)
        warnings.warn(f"activations left as they were:\n{lines}", NotReplacedWarning, stacklevel=2)
    taken = [place for place, _ in chosen]
    sines = [_sine(place) for place in places if place.sine and place not in taken]
    return Changed([name for _, name in chosen], [*left, *sines], order)


def _new(activation: str | nn.Module, factor: float, training: bool) -> nn.Module:
    """The new activation, times the constant factor of the one before."""
    new = activations.get(activation)
    if isinstance(activation, str):
        new.train(training)
    if factor == 1:
        return new
    if isinstance(new, activations.Activation):
        return activations.Scaled(new, factor).train(training)
    return nn.Sequential(new, activations.Scaled(activations.Identity(), factor))


def _sine(place: Place) -> tuple[str, str]:
    return place.names[0], f"a sine may be a feature; to replace it, use where=[{place.names[0]!r}]"


def _find(model: nn.Module) -> tuple[list[Slot], list[CallPlace], list[tuple[str, str]]]:
    """Slots that hold an activation, calls of one inside a forward, and (place, reason) for what is not."""
    left: dict[str, str] = {}
    doubtful: list[str] = []

    def match(value: Any, attribute: str, name: str) -> bool:
        verdict = recognise.activation(value, attribute)
        if isinstance(verdict, str):
            left[name] = verdict
        elif not verdict and isinstance(value, nn.Module) and not is_builtin(value):
            doubtful.extend([name] if recognise.named_activation(value, attribute) else [])
        return verdict is not False

    slots, owners = walk(model, match)
    calls: list[CallPlace] = []
    for owner, names in owners:
        found, out_of_reach = find_calls(owner, names, ("activation", "sine"))
        calls += found
        left |= dict(out_of_reach)
    places: list[Place] = [*slots, *calls]
    inside = [*left, *(name for place in places for name in place.names)]
    for name in doubtful:
        if not any(other.startswith(f"{name}.") for other in inside):
            left[name] = "it is called an activation, but it is not an elementwise nonlinearity"
    return [slot for slot in slots if slot.names[0] not in left], calls, list(left.items())


def _nothing(model: nn.Module, places: list[Place], left: list[tuple[str, str]], where: Where) -> InputError:
    """Why there is nothing to swap."""
    kind = type(model).__name__
    there = [place.names[0] for place in places if not place.sine]
    if there:
        picked = "the predicate" if callable(where) else f"where={where!r}"
        return InputError(f"{picked} picks none of the activations of {kind}: {', '.join(there)}")
    reasons = [*left, *(_sine(place) for place in places)]
    lines = [f"nothing to swap: {kind} has no activation that can be replaced"]
    return InputError("\n  ".join([*lines, *(f"{place}: {why}" for place, why in reasons)]))
