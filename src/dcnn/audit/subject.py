"""A model and a sample seen as a function of one differentiable tensor, whatever the sample is made of."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.errors import InputError


@dataclass(frozen=True)
class Subject:
    """`predict(model, x)` gives (B, …) predictions of the B samples that the rows of `x` belong to.

    `group` (M,) says which sample each row of x is of. `rotated(R)` is the subject with its points turned by R;
    `crossings` are pairs of subjects a hair's breadth inside and outside a cutoff. None where that makes no sense.
    """

    x: Tensor
    predict: Callable[[nn.Module, Tensor], Tensor]
    group: Tensor
    rotated: Callable[[Tensor], Subject] | None = None
    crossings: Callable[[], Sequence[tuple[Subject, Subject]]] | None = None
    expects_rotation_invariance: bool = False

    def __call__(self, model: nn.Module) -> Tensor:
        return self.predict(model, self.x)


@singledispatch
def subject(sample: Any, wrt: str | None = None, output: Callable[[Any], Any] | None = None) -> Subject:
    """The subject of a sample: a tensor, a tuple, list or mapping of model arguments, or a registered type.

    `wrt` names the differentiable argument of a mapping (or its number in a tuple); by default it is the only
    floating one. Other types join with ``@subject.register``.
    """
    raise InputError(
        f"audit: a sample of type {type(sample).__name__} is not understood; "
        "pass a tensor, a tuple or a dictionary of the model's arguments"
    )


@subject.register
def _(sample: Tensor, wrt: str | None = None, output: Callable[[Any], Any] | None = None) -> Subject:
    if not sample.is_floating_point():
        raise InputError(f"audit: the sample is {sample.dtype}; derivatives need a floating tensor")
    x = sample.detach().double()

    def rotated(rotation: Tensor) -> Subject:
        return subject(x @ rotation.T, wrt, output)

    def predict(model: nn.Module, points: Tensor) -> Tensor:
        return first_tensor(model(points), output)

    group = torch.arange(len(x), device=x.device)
    return Subject(x, predict, group, rotated if x.dim() == 2 and x.shape[1] > 1 else None)


@subject.register(tuple)
@subject.register(list)
def _(sample: Sequence[Any], wrt: str | None = None, output: Callable[[Any], Any] | None = None) -> Subject:
    named = {str(i): value for i, value in enumerate(sample)}
    return _of_arguments(named, wrt, output, lambda model, values: model(*values.values()))


@subject.register
def _(sample: Mapping, wrt: str | None = None, output: Callable[[Any], Any] | None = None) -> Subject:
    return _of_arguments(dict(sample), wrt, output, lambda model, values: model(**values))


def _of_arguments(
    arguments: dict[str, Any],
    wrt: str | None,
    output: Callable[[Any], Any] | None,
    call: Callable[[nn.Module, dict[str, Any]], Any],
) -> Subject:
    floating = [k for k, v in arguments.items() if isinstance(v, Tensor) and v.is_floating_point()]
    if wrt is None and len(floating) != 1:
        raise InputError(f"audit: which argument is differentiated? Say wrt=…, one of {', '.join(floating) or 'none'}")
    name = wrt if wrt is not None else floating[0]
    if name not in floating:
        raise InputError(f"audit: wrt={name!r} is not a floating tensor of the sample; found {', '.join(floating)}")
    double = {k: v.detach().double() if k in floating else v for k, v in arguments.items()}

    def predict(model: nn.Module, x: Tensor) -> Tensor:
        return first_tensor(call(model, {**double, name: x}), output)

    return Subject(double[name], predict, torch.arange(len(double[name])))


def first_tensor(value: Any, output: Callable[[Any], Any] | None = None) -> Tensor:
    """The prediction itself: what `output` picks, or the first tensor of what a model returns."""
    value = output(value) if output is not None else value
    if isinstance(value, Mapping):
        value = next(iter(value.values()))
    elif isinstance(value, (tuple, list)):
        value = value[0]
    if not isinstance(value, Tensor):
        raise InputError(f"audit: the model returns {type(value).__name__}; say output=… to pick its prediction")
    return value


def in_double(model: nn.Module, training: bool = False) -> nn.Module:
    """A copy in float64 that may be run in training mode without touching the original's statistics."""
    return copy.deepcopy(model).double().train(training)
