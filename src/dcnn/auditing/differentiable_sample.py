"""A model's sample seen as a function of one differentiable tensor, whatever the sample is made of."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.errors import InputError

Output = str | int | Callable[[Any], Any] | None


@dataclass(frozen=True)
class DifferentiableSample:
    """`predict(model, x)` gives (B, …) predictions; `rebuild(x)` is the sample as the user gave it, with x in it.

    `group` (M,) says which of the B samples a row of x belongs to, `scale` (like x) over what distance x varies.
    `rotated(R)` is the sample with its points turned by R; `crossings(model)` are pairs of samples just inside and just
    outside a cutoff. None where that makes no sense.
    """

    x: Tensor
    rebuild: Callable[[Tensor], Any]
    call: Callable[[Any, Any], Any]
    output: Output
    group: Tensor
    scale: Tensor
    rotated: Callable[[Tensor], DifferentiableSample] | None = None
    crossings: Callable[[Any], Sequence[tuple[DifferentiableSample, DifferentiableSample]]] | None = None
    expects_rotation_invariance: bool = False

    def predict(self, model: nn.Module, x: Tensor | None = None) -> Tensor:
        """The prediction (B, …) at x; random numbers that the model draws are the same at every call."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            y = picked(self.call(model, self.rebuild(self.x if x is None else x)), self.output)
        return y.reshape(1) if y.dim() == 0 else y

    def direction(self, generator: torch.Generator) -> Tensor:
        """A random direction in which every input moves in proportion to its own scale."""
        return torch.randn(self.x.shape, generator=generator, dtype=torch.float64).to(self.x) * self.scale


@singledispatch
def differentiable_sample(
    sample: Any, wrt: str | int | None = None, output: Output = None, dtype: torch.dtype = torch.float64
) -> DifferentiableSample:
    """The sample of any object: tensors nested in mappings, sequences, dataclasses and objects with keys.

    `wrt` names the tensor that is differentiated by its path (``"atoms.pos"``, ``0``); by default it is the only
    floating one. Types with a meaning of their own join with ``@differentiable_sample.register``.
    """
    leaves = dict(_leaves(sample, ()))
    floating = {path: leaf for path, leaf in leaves.items() if isinstance(leaf, Tensor) and leaf.is_floating_point()}
    names = {".".join(map(str, path)): path for path in floating}
    if not floating:
        kinds = sorted({str(leaf.dtype) for leaf in leaves.values() if isinstance(leaf, Tensor)})
        raise InputError(
            f"audit: a sample of type {type(sample).__name__} is not understood: it holds no floating tensor"
            f"{' (only ' + ', '.join(kinds) + ')' if kinds else ''}. Pass a tensor, or a tuple, list or dictionary of "
            "what the model takes"
        )
    if wrt is None and len(floating) != 1:
        raise InputError(f"audit: which tensor is differentiated? Say wrt=…, one of {', '.join(map(repr, names))}")
    if wrt is not None and str(wrt) not in names and list(names) != [""]:
        raise InputError(f"audit: wrt={wrt!r} is not a floating tensor of the sample; found {', '.join(names)}")
    where = next(iter(floating)) if len(floating) == 1 and wrt is None else names.get(str(wrt), ())
    cast = _replaced(sample, (), {path: leaf.detach().to(dtype) for path, leaf in floating.items()})
    x = floating[where].detach().to(dtype)
    if x.dim() == 0 or x.numel() == 0:
        raise InputError(
            f"audit: the differentiated tensor has shape {tuple(x.shape)}; pass a batch, (N, …) with N ≥ 1"
        )

    bad = (~x.isfinite()).reshape(len(x), -1).any(1).nonzero().flatten()
    if len(bad):
        raise InputError(f"audit: the sample holds NaN or inf in rows {bad[:5].tolist()} ({len(bad)} rows in all)")

    def rotated(rotation: Tensor) -> DifferentiableSample:
        turned = _replaced(cast, (), {where: x @ rotation.to(x).T})
        return differentiable_sample(turned, wrt, output, dtype)

    return DifferentiableSample(
        x,
        rebuild=lambda moved: _replaced(cast, (), {where: moved}),
        call=call_with,
        output=output,
        group=_group(x, leaves),
        scale=spread(x),
        rotated=rotated if x.dim() == 2 and x.shape[1] > 1 else None,
    )


def call_with(model: Any, sample: Any) -> Any:
    """The model on a sample: a tuple or list are its arguments; a mapping too, if `forward` has such arguments."""
    if isinstance(sample, (tuple, list)) and not hasattr(sample, "_fields"):
        return model(*sample)
    if isinstance(sample, Mapping) and all(isinstance(key, str) for key in sample) and _takes(model, sample):
        return model(**sample)
    return model(sample)


def _takes(model: Any, names: Mapping[str, Any]) -> bool:
    function = getattr(model, "forward", model)
    if isinstance(model, torch.jit.ScriptModule):
        known = {argument.name for argument in function.schema.arguments}
        return set(names) <= known
    try:
        inspect.signature(function).bind(**names)
    except TypeError:
        return False
    return True


def _leaves(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) of everything nested in mappings, sequences, dataclasses and objects with keys."""
    items = _items(value)
    if items is None:
        yield path, value
    else:
        for key, item in items:
            yield from _leaves(item, (*path, key))


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (tuple, list)):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if _has_keys(value):
        return [(key, value[key]) for key in value.keys()]  # noqa: SIM118 (a graph of PyG iterates over pairs)
    return None


def _has_keys(value: Any) -> bool:
    """Like the graphs of PyG: keys(), and items that can be read and set."""
    wanted = ("keys", "__getitem__", "__setitem__")
    return not isinstance(value, (type, Tensor)) and all(callable(getattr(value, name, None)) for name in wanted)


def _replaced(value: Any, path: tuple[Any, ...], new: Mapping[tuple[Any, ...], Any]) -> Any:
    """A copy with the leaves at these paths replaced; what holds none of them is kept."""
    if path in new:
        return new[path]
    if not any(wanted[: len(path)] == path for wanted in new):
        return value
    items = {key: _replaced(item, (*path, key), new) for key, item in _items(value) or []}
    if isinstance(value, (tuple, list)):
        return type(value)(*items.values()) if hasattr(value, "_fields") else type(value)(items.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{f.name: items[f.name] for f in dataclasses.fields(value) if f.init})
    if type(value) is dict:
        return items
    made = copy.copy(value)
    for key, item in items.items():
        made[key] = item
    return made


def _group(x: Tensor, leaves: Mapping[tuple[Any, ...], Any]) -> Tensor:
    """Which sample a row of x is of: an integer tensor called `batch` if there is one, else every row is a sample."""
    for path, leaf in leaves.items():
        if path and path[-1] in ("batch", "system") and isinstance(leaf, Tensor) and leaf.shape == x.shape[:1]:
            return leaf.long()
    return torch.arange(len(x), device=x.device)


def spread(x: Tensor) -> Tensor:
    """Over what distance each input varies: the standard deviation of a column of (N, d), of all numbers otherwise."""
    everything = x.std() if x.numel() > 1 else x.new_zeros(())
    columns = x.std(0, keepdim=True) if x.dim() == 2 and len(x) > 1 else everything
    size = x.square().mean(0, keepdim=True).sqrt() if columns.dim() else x.square().mean().sqrt()
    columns = torch.where(columns > 1e-12 * size, columns, size)
    rest = everything if everything > 0 else x.new_ones(())
    return torch.where(columns > 0, columns, rest)


def picked(value: Any, output: Output) -> Tensor:
    """The prediction: what `output` names or picks, or the first floating tensor of what a model returns."""
    if callable(output):
        value = output(value)
    elif output is not None:
        found = {".".join(map(str, path)): leaf for path, leaf in _leaves(value, ())}
        if str(output) not in found:
            raise InputError(f"audit: output={output!r} is not returned by the model; it returns {', '.join(found)}")
        value = found[str(output)]
    for _, leaf in _leaves(value, ()):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return leaf
    raise InputError(
        f"audit: the model returns {type(value).__name__} without a floating tensor; say output=… (a name, a number or "
        "a function) to pick its prediction"
    )


def other_outputs(value: Any, output: Output) -> list[str]:
    """Names of the floating tensors a model returns besides the prediction."""
    if callable(output):
        return []
    prediction = picked(value, output)
    return [
        ".".join(map(str, path))
        for path, leaf in _leaves(value, ())
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf is not prediction
    ]
