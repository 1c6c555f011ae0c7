"""Which of the places ``where`` means: by name, by predicate, or every second one along the forward order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, fx, nn

from dcnn.activations import Activation
from dcnn.activations.init import evaluating
from dcnn.errors import unknown
from dcnn.surgery.functional import CallPlace
from dcnn.surgery.fx_trace import UntraceableError, arguments, is_builtin, trace
from dcnn.surgery.places import Slot, untouched

Place = Slot | CallPlace
Where = str | Iterable[str] | Callable[[str, Any], bool] | None


def choose(places: list[Place], where: Where) -> list[tuple[Place, str]]:
    """The chosen places, each with the name under which it was chosen; a sine must be named in full."""
    if where is None:
        return [(place, place.names[0]) for place in places if not place.sine]
    if not callable(where) and not isinstance(where, str):
        where = list(where)
        valid = [name for place in places for name in place.names]
        for name in where:
            if name not in valid:
                raise unknown("place of an activation", name, valid)
    chosen = []
    for place in places:
        names = [name for name in place.names if _wanted(name, place, where)]
        chosen += [(place, names[0])] if names else []
    return chosen


def _wanted(name: str, place: Place, where: str | list[str] | Callable[[str, Any], bool]) -> bool:
    if isinstance(where, list):
        return name in where
    if isinstance(where, str):
        return name == where or (not place.sine and fnmatchcase(name, where))
    return not place.sine and bool(where(name, place.value))


def every_second(
    model: nn.Module, slots: list[Slot], calls: list[CallPlace], sample: Any
) -> tuple[list[tuple[Place, str]], str]:
    """The 2nd, 4th, … place along the forward order, and how that order was found."""
    places = [place for place in _split(slots, calls) if not place.sine]
    reached: list[Place] = []
    with untouched({place.owner for place in places}), evaluating(model):
        for place in places:
            place.put(_Recorder(place, reached))
        if sample is not None:
            _run(model, sample)
            how = "sample"
            reached += [place for place in places if place not in reached]
        else:
            how = "trace" if _traced(model) and len(reached) == len(places) else "registration"
    ordered = places if how == "registration" else reached
    return [(place, place.names[0]) for place in ordered[1::2]], how


def _split(slots: list[Slot], calls: list[CallPlace]) -> list[Place]:
    """A slot that its owner calls more than once (one ``self.act`` for all layers) is as many places."""
    split: list[Place] = []
    for slot in slots:
        via = ".".join([slot.attribute, *map(str, slot.path)])
        times = [call for call in calls if call.owner is slot.owner and call.via == via]
        alone = sum(other.owner is slot.owner and other.value is slot.value for other in slots) == 1
        split += times if len(times) > 1 and alone else [slot]
    return split + [call for call in calls if call.via is None]


class _Recorder(Activation):
    """Notes when its place is reached."""

    name = "recorder"

    def __init__(self, place: Place, reached: list[Place]) -> None:
        super().__init__()
        self.place, self.reached = place, reached
        self.functions = (place.value,)  # in a tuple, so that it is not registered as a child

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """What was there before; a symbol of torch.fx is passed on."""
        if self.place not in self.reached:
            self.reached.append(self.place)
        return x if isinstance(x, fx.Proxy) else self.functions[0](x, *args, **kwargs)

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        raise NotImplementedError


def _run(model: nn.Module, sample: Any) -> None:
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # the fused transformer kernel calls no activation
    try:
        if isinstance(sample, dict):
            model(**sample)
        else:
            model(*sample) if isinstance(sample, tuple) else model(sample)
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def _traced(model: nn.Module) -> bool:
    def leaf(module: nn.Module) -> bool:
        return is_builtin(module) and not isinstance(module, nn.Sequential)

    try:
        trace(model, model.forward, arguments(model)[0], leaf, exact=False)
    except UntraceableError:
        return False
    return True
