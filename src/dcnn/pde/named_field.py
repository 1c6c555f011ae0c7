"""A field of a PDE as a residual sees it: `u` is its value, `u.x`, `u.xx`, `u.xt` its derivatives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from dcnn.errors import InputError


class Field:
    """One column of the partial derivatives of a network; arithmetic acts on its value.

    ``partials`` maps "" (the value), "x", "xx", "xt" … to tensors (N, fields). Every expression of fields
    is a plain tensor (N,), so that no broadcasting between points can slip in.

    >>> u = Field("u", 0, {"": torch.tensor([[2.0]]), "x": torch.tensor([[3.0]])}, ("x", "t"))
    >>> u * u.x + torch.sin(u) * 0
    tensor([6.])
    """

    def __init__(self, name: str, column: int, partials: Mapping[str, Tensor], coordinates: tuple[str, ...]):
        self._name, self._column, self._partials, self._coordinates = name, column, partials, coordinates

    @property
    def value(self) -> Tensor:
        """The field itself, (N,)."""
        return self._partials[""][:, self._column]  # (N,)

    def __getattr__(self, letters: str) -> Tensor:
        if letters.startswith("_"):
            raise AttributeError(letters)
        return self._partials[canonical(letters, self._coordinates, self._name)][:, self._column]  # (N,)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return func(*(_plain(a) for a in args), **{k: _plain(a) for k, a in (kwargs or {}).items()})

    def __neg__(self) -> Tensor:
        return -self.value

    def __add__(self, other: Any) -> Tensor:
        return self.value + _plain(other)

    def __radd__(self, other: Any) -> Tensor:
        return _plain(other) + self.value

    def __sub__(self, other: Any) -> Tensor:
        return self.value - _plain(other)

    def __rsub__(self, other: Any) -> Tensor:
        return _plain(other) - self.value

    def __mul__(self, other: Any) -> Tensor:
        return self.value * _plain(other)

    def __rmul__(self, other: Any) -> Tensor:
        return _plain(other) * self.value

    def __truediv__(self, other: Any) -> Tensor:
        return self.value / _plain(other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _plain(other) / self.value

    def __pow__(self, other: Any) -> Tensor:
        return self.value ** _plain(other)

    def __gt__(self, other: Any) -> Tensor:
        return self.value > _plain(other)

    def __ge__(self, other: Any) -> Tensor:
        return self.value >= _plain(other)

    def __lt__(self, other: Any) -> Tensor:
        return self.value < _plain(other)

    def __le__(self, other: Any) -> Tensor:
        return self.value <= _plain(other)

    def __abs__(self) -> Tensor:
        return self.value.abs()

    def __repr__(self) -> str:
        return f"Field({self._name})"


def _plain(value: Any) -> Any:
    """The tensor of a field, anything else as it is (also inside the lists that torch.stack takes)."""
    if isinstance(value, Field):
        return value.value
    return type(value)(_plain(v) for v in value) if isinstance(value, list | tuple) else value


def canonical(letters: str, coordinates: tuple[str, ...], field: str = "u") -> str:
    """`letters` in the order of the coordinates, since ∂x∂t = ∂t∂x.

    >>> canonical("tx", ("x", "t"))
    'xt'
    """
    for letter in letters:
        if letter not in coordinates:
            raise InputError(
                f"{field}.{letters}: {letter!r} is not a coordinate of this problem. "
                f"Valid: {', '.join(coordinates)} (derivatives are written {field}.{coordinates[0]}, "
                f"{field}.{2 * coordinates[0]})"
            )
    return "".join(sorted(letters, key=coordinates.index))


def split_key(key: str, fields: tuple[str, ...], coordinates: tuple[str, ...]) -> tuple[str, str]:
    """A field and the letters of a derivative of it from a condition's key.

    >>> split_key("u_t", ("u",), ("x", "t")), split_key("u", ("u",), ("x", "t"))
    (('u', 't'), ('u', ''))
    """
    if key in fields:
        return key, ""
    field, _, letters = key.rpartition("_")
    if field not in fields:
        raise InputError(f"condition on {key!r}: no such field. Valid: {', '.join(fields)}")
    return field, canonical(letters, coordinates, field)


def call_by_name(function: Callable[..., Any], available: Mapping[str, Any], where: str) -> Any:
    """`function` called with those of `available` that its argument names ask for.

    >>> call_by_name(lambda x, t: x + t, {"x": 1, "y": 2, "t": 3}, "initial condition")
    4
    """
    names = [
        name
        for name, p in inspect.signature(function).parameters.items()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.default is p.empty
    ]
    for name in names:
        if name not in available:
            raise InputError(f"{where}: unknown argument {name!r}. Valid: {', '.join(available)}")
    return function(*(available[name] for name in names))


class Recorder(dict[str, Tensor]):
    """Stands in for the partial derivatives in a dry run and remembers which of them were asked for."""

    def __init__(self, n_fields: int, points: int = 3, size: float = 1.0):
        super().__init__()
        values = torch.linspace(0.5 * size, 1.5 * size, points * n_fields, dtype=torch.float64)
        self.values_seen = values.reshape(points, n_fields)

    def __missing__(self, letters: str) -> Tensor:
        self[letters] = self.values_seen
        return self.values_seen
