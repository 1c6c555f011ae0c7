"""What holds on the edge of a domain, at its start or at measured points, each with its own points.

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
from dcnn.pde.field import call_by_name, canonical, split_key

if TYPE_CHECKING:
    from dcnn.pde.problem import Problem

Value = float | Callable[..., Any]


class Condition(ABC):
    """A set of named residuals on a set of points."""

    kind = "boundary"
    size: int | None = None  # how many points there are, None if they can be sampled at will

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

    @abstractmethod
    def place(self, problem: Problem, unit: Tensor) -> Tensor:
        """Points of the condition from samples `unit` (N, coordinates) of the unit cube."""

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


class _Valued(Condition):
    """Fields (or derivatives of them) have given values: numbers or functions of the coordinates."""

    def __init__(self, values: Mapping[str, Value], name: str, term: str | None):
        super().__init__(tuple(values), name, term)
        self.values = dict(values)
        if not values:
            raise InputError(f"{type(self).__name__}: no field given, e.g. {type(self).__name__}(u=0.0)")

    def _values_at(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        named = dict(zip(problem.coordinates, points.unbind(1), strict=True))
        found = {}
        for key, value in self.values.items():
            where = f"{problem.where}: {self.name} condition on {key!r}"
            at_points = call_by_name(value, named, where) if callable(value) else value
            found[key] = torch.as_tensor(at_points).to(points).expand(len(points))
        return found

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        return self._values_at(problem, points)

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {
            self.term_name(key): partials[letters][:, column] - prepared[key]  # (N,)
            for key, column, letters in self.targets(problem)
        }


class Initial(_Valued):
    """Values at the start of time: ``Initial(u=lambda x: torch.sin(x), u_t=0.0)``."""

    kind = "initial"

    def __init__(self, name: str = "initial", term: str | None = None, **values: Value):
        super().__init__(values, name, term)

    def place(self, problem: Problem, unit: Tensor) -> Tensor:
        points = problem.stretch(unit)
        points[:, problem.axis("t")] = problem.domain["t"][0]
        return points

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        return points[_close(points[:, problem.axis("t")], problem.domain["t"][0])]


class Sampled(_Valued):
    """Known values at given points: measured data, or initial data known on a grid only.

    ``Sampled(points, u=values)`` with points (N, coordinates) and values (N,).
    """

    kind = "data"

    def __init__(self, points: Any, name: str = "data", term: str | None = None, **values: Any):
        self.points = torch.as_tensor(np.asarray(points))
        data = {key: torch.as_tensor(np.asarray(v)).reshape(-1) for key, v in values.items()}
        super().__init__({}.fromkeys(data, 0.0), name, term)
        self.data, self.size = data, len(self.points)
        for key, value in data.items():
            if len(value) != self.size:
                raise InputError(f"{name} condition on {key!r}: {len(value)} values for {self.size} points")
            if not bool(torch.isfinite(value).all()):
                raise InputError(
                    f"{name} condition on {key!r}: {int((~value.isfinite()).sum())} values are not finite"
                )

    def place(self, problem: Problem, unit: Tensor) -> Tensor:
        return self.points.to(unit)

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        return self.points.to(points)

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        return {key: value.to(points) for key, value in self.data.items()}


class _Edge(_Valued):
    """Values on faces of the domain: `on` names an axis (both ends), or one end as "x-" or "x+"."""

    def __init__(
        self, on: str | Sequence[str] | None, name: str, term: str | None, values: Mapping[str, Value]
    ):
        super().__init__(values, name, term)
        self.on = (on,) if isinstance(on, str) else on

    def faces(self, problem: Problem) -> list[tuple[int, float]]:
        """(column, position) of each face; all space axes if `on` was not given."""
        space = [c for c in problem.coordinates if c != "t"]
        found = []
        for face in self.on or space:
            if face.rstrip("+-") not in space:
                raise InputError(
                    f"{problem.where}: {self.name} condition on face {face!r}. Valid: "
                    + ", ".join(f"{c}, {c}-, {c}+" for c in space)
                )
            axis, low_high = face[0], problem.domain[face[0]]
            ends = low_high if len(face) == 1 else (low_high[face[1] == "+"],)
            found += [(problem.axis(axis), end) for end in ends]
        return found

    def place(self, problem: Problem, unit: Tensor) -> Tensor:
        points, faces = problem.stretch(unit), self.faces(problem)
        for i, (column, position) in enumerate(faces):  # every face gets the same share of the points
            points[i :: len(faces), column] = position
        return points

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        on_face = [_close(points[:, column], position) for column, position in self.faces(problem)]
        return points[torch.stack(on_face).any(0)]

    def normals(self, problem: Problem, points: Tensor) -> Tensor:
        """Outward unit normals (N, coordinates); corners take the mean direction."""
        normal = torch.zeros_like(points)
        for column, position in self.faces(problem):
            outward = 1.0 if position == problem.domain[problem.coordinates[column]][1] else -1.0
            normal[:, column] += outward * _close(points[:, column], position)
        return normal / normal.norm(dim=1, keepdim=True)


class Dirichlet(_Edge):
    """Values on the boundary: ``Dirichlet(u=0.0, on="x")``; everywhere if `on` is not given."""

    def __init__(
        self,
        on: str | Sequence[str] | None = None,
        name: str = "dirichlet",
        term: str | None = None,
        **values: Value,
    ):
        super().__init__(on, name, term, values)


class Neumann(_Edge):
    """Outward normal derivatives on the boundary: ``Neumann(u=0.0, v=0.0)`` lets nothing flow out."""

    def __init__(
        self,
        on: str | Sequence[str] | None = None,
        name: str = "neumann",
        term: str | None = None,
        **values: Value,
    ):
        super().__init__(on, name, term, values)

    def wanted(self, problem: Problem) -> tuple[str, ...]:
        return tuple(dict.fromkeys(problem.coordinates[column] for column, _ in self.faces(problem)))

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        return self._values_at(problem, points) | {"normal": self.normals(problem, points)}

    def _normal_derivative(
        self, problem: Problem, partials: Mapping[str, Tensor], normal: Tensor, column: int
    ) -> Tensor:
        axes = [canonical(c, problem.coordinates) for c in Neumann.wanted(self, problem)]
        gradient = torch.stack([partials[a][:, column] for a in axes], 1)  # (N, axes)
        return (gradient * normal[:, [problem.axis(a) for a in axes]]).sum(1)  # (N,)

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {
            self.term_name(key): self._normal_derivative(problem, partials, prepared["normal"], column)
            - prepared[key]
            for key, column, _ in self.targets(problem)
        }


class Outgoing(Neumann):
    """Waves leave the domain: ∂u/∂n = 0, or u_t + speed · ∂u/∂n = 0 if the speed of the wave is known."""

    def __init__(
        self,
        *fields: str,
        on: str | Sequence[str] | None = None,
        speed: float | None = None,
        name: str = "outgoing",
    ):
        values: dict[str, Any] = dict.fromkeys(fields, 0.0)
        super().__init__(on, name, **values)
        self.speed = speed

    def wanted(self, problem: Problem) -> tuple[str, ...]:
        return super().wanted(problem) + (() if self.speed is None else ("t",))

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        flow = super().residuals(problem, partials, prepared)
        if self.speed is None:
            return flow
        return {
            self.term_name(key): partials["t"][:, column] + self.speed * flow[self.term_name(key)]
            for key, column, _ in self.targets(problem)
        }


class Periodic(Condition):
    """Both ends of an axis agree, up to the given order of derivatives along it.

    Its points are stacked: N at the lower end, then the same N at the upper end. `fields` defaults to all.
    """

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
                f"{problem.where}: periodic condition along {self.along!r}. "
                f"Valid: {', '.join(problem.coordinates)}"
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
        at_high = _close(points[:, column], high)
        here[:, column] = torch.where(at_high, high, low)
        there[:, column] = torch.where(at_high, low, high)
        return torch.cat([here, there])  # (2 N, coordinates)

    def place(self, problem: Problem, unit: Tensor) -> Tensor:
        points = problem.stretch(unit)
        points[:, problem.axis(self.along)] = problem.domain[self.along][0]
        return self._ends(problem, points)

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        x, (low, high) = points[:, problem.axis(self.along)], problem.domain[self.along]
        return self._ends(problem, points[_close(x, low) | _close(x, high)])

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


def _close(values: Tensor, target: float) -> Tensor:
    return torch.isclose(values, torch.full_like(values, target), rtol=1e-5, atol=1e-6)
