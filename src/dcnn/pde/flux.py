"""Residuals in flux form, `(k * u.x).x`: products and functions of fields and coordinates that can be differentiated.

Used for a residual that asks for it; others compute with plain tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.pde.named_field import canonical


class Quantity:
    """A value (N,) and how its derivative along each coordinate is made, which happens when it is asked for."""

    def __init__(self, value: Any, slope: Callable[[str], Any], coordinates: tuple[str, ...]) -> None:
        self.value, self._slope, self._coordinates = value, slope, coordinates

    def __getattr__(self, letters: str) -> Any:
        if letters.startswith("_"):
            raise AttributeError(letters)
        if not all(c in self._coordinates for c in letters):
            return getattr(self.value, letters)
        found: Any = self
        for c in letters:
            found = found._slope(c)
        return found

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Functions with a known derivative give a quantity again, others a tensor that cannot be differentiated."""
        first = next((a for a in args if isinstance(a, Quantity)), None)
        operation = OPERATIONS.get(func.__name__.strip("_"))
        if first is not None and operation is not None and len(args) == 2:  # a tensor on the left
            return operation(first._other(args[0]), first._other(args[1]))
        plain = func(*(plain_value(a) for a in args), **{k: plain_value(a) for k, a in (kwargs or {}).items()})
        if first is None or kwargs:
            return plain
        if func in SLOPES and len(args) == 1:
            return first._new(plain, lambda c: SLOPES[func](first) * first._slope(c))
        if func is torch.where and len(args) == 3:
            a, b = first._other(args[1]), first._other(args[2])
            return first._new(plain, lambda c: torch.where(args[0], _filled(a, c, plain), _filled(b, c, plain)))
        return plain

    def _new(self, value: Any, slope: Callable[[str], Any]) -> Quantity:
        return Quantity(value, slope, self._coordinates)

    def _other(self, value: Any) -> Quantity:
        if isinstance(value, Quantity):
            return value
        if not isinstance(value, Tensor) or value.ndim == 0:  # a number, or a parameter that is learnt
            return self._new(value, lambda c: self._other(0.0))

        def unknown_slope(c: str) -> Any:
            raise InputError(
                f"a tensor of {len(value)} numbers is differentiated along {c}: how it depends on {c} is not known. "
                f"Write it with coordinates, + − * / ** and torch.{', '.join(f.__name__ for f in SLOPES)} or where"
            )

        return self._new(value, unknown_slope)

    def __neg__(self) -> Quantity:
        return -1.0 * self

    def __add__(self, other: Any) -> Quantity:
        b = self._other(other)
        return self._new(self.value + b.value, lambda c: self._slope(c) + b._slope(c))

    def __sub__(self, other: Any) -> Quantity:
        return self + (-1.0) * self._other(other)

    def __rsub__(self, other: Any) -> Quantity:
        return (-1.0) * self + other

    def __mul__(self, other: Any) -> Quantity:
        b = self._other(other)
        return self._new(self.value * b.value, lambda c: self._slope(c) * b + b._slope(c) * self)

    def __truediv__(self, other: Any) -> Quantity:
        return self * self._other(other) ** -1

    def __rtruediv__(self, other: Any) -> Quantity:
        return self**-1 * other

    def __pow__(self, power: float) -> Quantity:
        return self._new(self.value**power, lambda c: power * self ** (power - 1) * self._slope(c))

    __radd__, __rmul__ = __add__, __mul__

    def __abs__(self) -> Any:
        return torch.abs(self)  # type: ignore[arg-type]  # by __torch_function__

    def __gt__(self, other: Any) -> Any:
        return self.value > plain_value(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= plain_value(other)

    def __lt__(self, other: Any) -> Any:
        return self.value < plain_value(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= plain_value(other)


OPERATIONS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}
OPERATIONS["true_divide"] = OPERATIONS["truediv"] = operator.truediv
SLOPES: dict[Any, Callable[[Any], Any]] = {
    torch.sin: torch.cos,
    torch.cos: lambda q: -1.0 * torch.sin(q),
    torch.exp: torch.exp,
    torch.log: lambda q: q**-1,
    torch.sqrt: lambda q: 0.5 * q**-0.5,
    torch.tanh: lambda q: 1.0 - torch.tanh(q) ** 2,
    torch.abs: lambda q: torch.sign(q.value),
}


def _filled(q: Quantity, c: str, like: Tensor) -> Any:
    """The derivative as a quantity whose value has one number a point."""
    slope = q._slope(c)
    return q._new(slope.value + torch.zeros_like(like), slope._slope)


def plain_value(value: Any) -> Any:
    """The tensor of a quantity, anything else as it is."""
    if isinstance(value, Quantity):
        return value.value
    return type(value)(plain_value(v) for v in value) if isinstance(value, list | tuple) else value


def quantities(
    fields: tuple[str, ...], coordinates: tuple[str, ...], partials: Mapping[str, Tensor], points: Tensor
) -> dict[str, Quantity]:
    """Fields and coordinates as quantities."""

    def field(name: str, column: int, letters: str) -> Quantity:
        key = canonical(letters, coordinates, name)
        return Quantity(partials[key][:, column], lambda c: field(name, column, letters + c), coordinates)

    def axis(i: int) -> Quantity:
        constant = Quantity(1.0, lambda c: zero, coordinates)
        zero = Quantity(0.0, lambda c: zero, coordinates)
        return Quantity(points[:, i], lambda c: constant if c == coordinates[i] else zero, coordinates)

    found = {name: axis(i) for i, name in enumerate(coordinates)}
    return found | {name: field(name, i, "") for i, name in enumerate(fields)}
