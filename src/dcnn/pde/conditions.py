"""What holds at the start, at measured points and across a periodic axis; ``boundary.py`` has the walls.

A condition places its points (`place`, or `pick` from given ones), computes what does not change from
step to step (`prepare`), and turns partial derivatives at its points into named residuals (`residuals`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.pde.named_field import split_key

if TYPE_CHECKING:
    from dcnn.pde.problem import Problem

Value = float | Callable[..., Any]


class Condition(ABC):
    """A set of named residuals on a set of points."""

    kind = "boundary"
    rows_each = 1  # of its points that one residual is made of; the first of all residuals come first

    def __init__(self, keys: Sequence[str], name: str, term: str | None = None):
        self.keys, self.name, self.term = tuple(keys), name, term

    def term_name(self, key: str) -> str:
        """The name of the residual of one key, e.g. ``initial_u``."""
        return self.term or f"{self.name}_{key}"

    def targets(self, problem: Problem) -> list[tuple[str, int, str]]:
        """(key, column of its field, letters of its derivative) of everything the condition acts on."""
        split = [(key, split_key(key, problem.fields, problem.coordinates)) for key in self.keys]
        return [(key, problem.fields.index(field), letters) for key, (field, letters) in split]

    def terms(self, problem: Problem) -> tuple[str, ...]:
        """Names of the residuals."""
        return tuple(self.term_name(key) for key, _, _ in self.targets(problem))

    def wanted(self, problem: Problem) -> tuple[str, ...]:
        """Partial derivatives that :meth:`residuals` reads."""
        return tuple(dict.fromkeys(letters for _, _, letters in self.targets(problem)))

    def parts(self, problem: Problem) -> int:
        """How many pieces its place has, such as the faces of a box; each draws samples of its own."""
        return 1

    @abstractmethod
    def place(self, problem: Problem, unit: Tensor, part: int = 0) -> Tensor:
        """Points of piece `part` of the condition from samples `unit` (N, coordinates) of the unit cube."""

    @abstractmethod
    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        """The points of the condition among collocation points (the published scripts share them)."""

    @abstractmethod
    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        """What the residuals compare with at `points`: computed once, not at every step."""

    @abstractmethod
    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Named residuals (N,) from the partial derivatives (N, fields) at the condition's points."""


class Valued(Condition):
    """Fields (or derivatives of them) have given values: numbers or functions of the coordinates."""

    def __init__(self, values: Mapping[str, Value], name: str, term: str | None):
        super().__init__(tuple(values), name, term)
        self.values = dict(values)
        if not values:
            raise InputError(f"{type(self).__name__}: no field given, e.g. {type(self).__name__}(u=0.0)")

    def values_at(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        """The stated values at `points`, (N,) each."""
        return {key: self.value_at(problem, points, key, value) for key, value in self.values.items()}

    def value_at(self, problem: Problem, points: Tensor, key: str, value: Value) -> Tensor:
        """A number or a function of coordinates at `points`, (N,)."""
        named = dict(zip(problem.coordinates, points.unbind(1), strict=True))
        what = f"{self.name} condition on {key!r}"
        where = f"{problem.where}: {what}"
        at_points = torch.as_tensor(problem.call(value, named, what) if callable(value) else value).to(points)
        if at_points.shape not in ((), (1,), (len(points),)):
            raise InputError(f"{where}: must be one number a point, found {tuple(at_points.shape)}")
        if not bool(torch.isfinite(at_points).all()):
            raise InputError(f"{where}: {int((~at_points.isfinite()).sum())} values are not finite")
        return at_points.expand(len(points))

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        return self.values_at(problem, points)

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {
            self.term_name(key): partials[letters][:, column] - prepared[key]  # (N,)
            for key, column, letters in self.targets(problem)
        }


class Initial(Valued):
    """Values at the start of time: ``Initial(u=lambda x: torch.sin(x), u_t=0.0)``."""

    kind = "initial"

    def __init__(self, name: str = "initial", term: str | None = None, **values: Value):
        super().__init__(values, name, term)

    def place(self, problem: Problem, unit: Tensor, part: int = 0) -> Tensor:
        points = problem.stretch(unit)
        points[:, problem.axis("t")] = problem.domain["t"][0]
        return points

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        return points[at_position(problem, points, problem.axis("t"), problem.domain["t"][0])]


class Sampled(Valued):
    """Known values at given points: measured data, or initial data known on a grid only.

    ``Sampled(points, u=values)`` with points (N, coordinates) and values (N,).
    """

    kind = "data"

    def __init__(self, points: Any, name: str = "data", term: str | None = None, **values: Any):
        rows = _numbers(points, f"{name} condition: points")
        self.points = rows[:, None] if rows.ndim == 1 else rows
        self.data = {key: _numbers(v, f"{name} condition on {key!r}") for key, v in values.items()}
        super().__init__({}.fromkeys(self.data, 0.0), name, term)
        if self.points.ndim != 2:
            raise InputError(f"{name} condition: points must be (N, coordinates), found {tuple(rows.shape)}")
        count = len(self.points)
        for key, value in self.data.items():
            if value.shape not in ((count,), (count, 1)):
                raise InputError(
                    f"{name} condition on {key!r}: {count} points need {count} values, found {tuple(value.shape)}"
                )
            self.data[key] = value.reshape(-1)

    def terms(self, problem: Problem) -> tuple[str, ...]:
        names, size = problem.coordinates, self.points.shape[1]
        if size != len(names):
            raise InputError(f"{self.name} condition: points with {size} columns, coordinates are {', '.join(names)}")
        if problem.confined:
            low, high = torch.tensor([problem.domain[c] for c in names], dtype=torch.float64).T
            slack = 1e-6 * (high - low)
            outside = ((self.points < low - slack) | (self.points > high + slack)).any(1)
            if problem.shape is not None:
                columns = self.points[:, [problem.axis(c) for c in problem.space]]
                outside |= problem.shape.distance(columns) > float(slack.max())
            if bool(outside.any()):
                first = dict(zip(names, self.points[outside][0].tolist(), strict=True))
                raise InputError(
                    f"{self.name} condition: {int(outside.sum())} of {len(outside)} points lie outside the domain, "
                    f"the first at {first}"
                )
        return super().terms(problem)

    def place(self, problem: Problem, unit: Tensor, part: int = 0) -> Tensor:
        return self.points.to(unit)

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        return self.points.to(points)

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        return {key: value.to(points) for key, value in self.data.items()}


class Periodic(Condition):
    """Both ends of an axis agree, up to the given order of derivatives along it.

    Its points are stacked: N at the lower end, then the same N at the upper end. `fields` defaults to all.
    """

    rows_each = 2

    def __init__(
        self,
        axis: str,
        derivatives: int = 0,
        fields: Sequence[str] = (),
        name: str = "periodic",
        term: str | None = None,
    ):
        super().__init__(fields, name, term)
        self.along, self.derivatives = axis, derivatives

    def targets(self, problem: Problem) -> list[tuple[str, int, str]]:
        if self.along not in problem.coordinates:
            raise InputError(
                f"{problem.where}: periodic condition along {self.along!r}. Valid: {', '.join(problem.coordinates)}"
            )
        found = []
        for field in self.keys or problem.fields:
            field, _ = split_key(field, problem.fields, problem.coordinates)
            for order in range(self.derivatives + 1):
                letters = order * self.along
                key = f"{field}_{letters}" if order else field
                found.append((key, problem.fields.index(field), letters))
        return found

    def _ends(self, problem: Problem, points: Tensor) -> Tensor:
        column, (low, high) = problem.axis(self.along), problem.domain[self.along]
        here, there = points.clone(), points.clone()
        at_high = at_position(problem, points, column, high)
        here[:, column] = torch.where(at_high, high, low)
        there[:, column] = torch.where(at_high, low, high)
        return torch.cat([here, there])  # (2 N, coordinates)

    def place(self, problem: Problem, unit: Tensor, part: int = 0) -> Tensor:
        points = problem.stretch(unit)
        points[:, problem.axis(self.along)] = problem.domain[self.along][0]
        return self._ends(problem, points)

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        column, (low, high) = problem.axis(self.along), problem.domain[self.along]
        here, there = (at_position(problem, points, column, end) for end in (low, high))
        return self._ends(problem, points[here | there])

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        return {}

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        found = {}
        for key, column, letters in self.targets(problem):
            here, there = partials[letters][:, column].chunk(2)
            found[self.term_name(key)] = here - there  # (N,)
        return found


def at_position(problem: Problem, points: Tensor, column: int, position: float) -> Tensor:
    """Which points have this coordinate, up to rounding in float32 of it and of the length of its axis."""
    low, high = problem.domain[problem.coordinates[column]]
    return (points[:, column] - position).abs() <= 1e-6 * (high - low) + 2.4e-7 * abs(position)


def _numbers(values: Any, where: str) -> Tensor:
    """`values` as a float64 tensor, all of them finite."""
    try:
        found = torch.as_tensor(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: not an array of numbers ({error})") from None
    if not bool(torch.isfinite(found).all()):
        raise InputError(f"{where}: {int((~found.isfinite()).sum())} values are not finite")
    return found
