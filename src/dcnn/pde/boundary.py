"""Conditions on the boundary: values, normal derivatives, a mixture, any expression, waves that leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.pde.conditions import Value, Valued, at_position
from dcnn.pde.dry_run import used_by
from dcnn.pde.geometry import Box, Shape

if TYPE_CHECKING:
    from dcnn.pde.problem import Problem

Faces = str | Sequence[str] | Shape | None


class Edge(Valued):
    """Values on faces of the domain: `on` names an axis (both ends), or one end as "x-" or "x+".

    Of a problem with a shape, `on` names pieces of its surface. A shape as `on` is an inner surface: what of its own
    lies in the domain.
    """

    def __init__(self, on: Faces, name: str, term: str | None, values: Mapping[str, Value]):
        super().__init__(values, name, term)
        self.inner = on if isinstance(on, Shape) else None
        self.on = (on,) if isinstance(on, str) else None if isinstance(on, Shape) else on

    def faces(self, problem: Problem) -> list[tuple[int, float]]:
        """(column, position) of each face; those of all space axes if `on` was not given."""
        valid = [c + end for c in problem.space for end in ("", "-", "+")]
        found = []
        for face in self.on or problem.space:
            if face not in valid:
                raise InputError(f"{problem.where}: {self.name} condition on face {face!r}. Valid: {', '.join(valid)}")
            low, high = problem.domain[face[0]]
            ends = {"": (low, high), "-": (low,), "+": (high,)}[face[1:]]
            found += [(problem.axis(face[0]), end) for end in ends]
        return found

    def axes(self, problem: Problem) -> tuple[str, ...]:
        """The coordinates across the faces."""
        if self.surface(problem) is not None:
            return tuple(problem.space)
        return tuple(dict.fromkeys(problem.coordinates[column] for column, _ in self.faces(problem)))

    def parts(self, problem: Problem) -> int:
        return len(self.faces(problem)) if self.surface(problem) is None else 1

    def surface(self, problem: Problem) -> Shape | None:
        """The shape whose surface the condition is on; None for the faces of a box."""
        return self.inner or problem.shape

    def place(self, problem: Problem, unit: Tensor, part: int = 0) -> Tensor:
        shape = self.surface(problem)
        if shape is not None:
            columns = [problem.axis(c) for c in problem.space]
            try:
                found = shape.on(self.on or (), unit[:, columns])
            except InputError as error:
                raise InputError(f"{problem.where}: {self.name} condition: {error}") from None
            if self.inner is not None:
                low, high = torch.tensor([problem.domain[c] for c in problem.space], dtype=torch.float64).T
                whole = problem.shape or Box(low.tolist(), high.tolist())
                found = found[whole.distance(found) < -1e-6 * float((high - low).max())]
            points = problem.stretch(unit[: len(found)])
            points[:, columns] = found
            return points
        points, (column, position) = problem.stretch(unit), self.faces(problem)[part]
        points[:, column] = position
        return points

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        if self.surface(problem) is not None:
            raise InputError(f"{problem.where}: points.shared is for the faces of boxes, not for surfaces of shapes")
        on_face = [at_position(problem, points, column, position) for column, position in self.faces(problem)]
        return points[torch.stack(on_face).any(0)]

    def normals(self, problem: Problem, points: Tensor) -> Tensor:
        """Outward unit normals (N, coordinates); corners take the mean direction."""
        normal, shape = torch.zeros_like(points), self.surface(problem)
        if shape is not None:
            columns = [problem.axis(c) for c in problem.space]
            normal[:, columns] = shape.normals(points[:, columns]).to(points)
            return normal
        for column, position in self.faces(problem):
            outward = 1.0 if position == problem.domain[problem.coordinates[column]][1] else -1.0
            normal[:, column] += outward * at_position(problem, points, column, position)
        return normal / normal.norm(dim=1, keepdim=True)

    def normal_derivative(
        self, problem: Problem, partials: Mapping[str, Tensor], normal: Tensor, column: int
    ) -> Tensor:
        """n · ∇ of one field, (N,)."""
        axes = self.axes(problem)
        gradient = torch.stack([partials[axis][:, column] for axis in axes], 1)  # (N, axes)
        return (gradient * normal[:, [problem.axis(axis) for axis in axes]]).sum(1)  # (N,)


class Dirichlet(Edge):
    """Values on the boundary: ``Dirichlet(u=0.0, on="x")``; on all faces if `on` is not given."""

    def __init__(self, on: Faces = None, name: str = "dirichlet", term: str | None = None, **values: Value):
        super().__init__(on, name, term, values)


class Neumann(Edge):
    """Outward normal derivatives on the boundary: with ``Neumann(u=0.0, v=0.0)`` nothing flows out."""

    def __init__(self, on: Faces = None, name: str = "neumann", term: str | None = None, **values: Value):
        super().__init__(on, name, term, values)

    def wanted(self, problem: Problem) -> tuple[str, ...]:
        return self.axes(problem)

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        return self.values_at(problem, points) | {"normal": self.normals(problem, points)}

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return {
            self.term_name(key): self.normal_derivative(problem, partials, prepared["normal"], column) - prepared[key]
            for key, column, _ in self.targets(problem)
        }


class Robin(Neumann):
    """a u + ∂u/∂n = value, as of heat that a wall gives off: ``Robin(u=20.0, a=1.0, on="ball")``."""

    def __init__(
        self, a: Value, on: Faces = None, name: str = "robin", term: str | None = None, **values: Value
    ) -> None:
        super().__init__(on, name, term, **values)
        self.a = a

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        return super().prepare(problem, points) | {"a": self.value_at(problem, points, "a", self.a)}

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        found = super().residuals(problem, partials, prepared)
        values = {self.term_name(key): partials[""][:, column] for key, column, _ in self.targets(problem)}
        return {name: residual + prepared["a"] * values[name] for name, residual in found.items()}


class Normal:
    """The outward normal as an expression sees it: `normal.x`, `normal.y`, and `normal.slope(u)` for ∂u/∂n."""

    def __init__(self, problem: Problem, columns: Tensor) -> None:
        self._parts = {c: columns[:, problem.axis(c)] for c in problem.space}

    def __getattr__(self, axis: str) -> Tensor:
        if axis.startswith("_") or axis not in self._parts:
            raise AttributeError(f"the normal has no {axis!r}; valid: {', '.join(self._parts)}, slope")
        return self._parts[axis]

    def slope(self, field: Any) -> Any:
        """n · ∇ of a field."""
        return sum(part * getattr(field, axis) for axis, part in self._parts.items())


class General(Edge):
    """What vanishes on a part of the boundary: any expression of fields, derivatives, coordinates and the `normal`.

    ``General(lambda u, v, normal: u * normal.x + v * normal.y, on="cylinder", name="slip")``
    """

    def __init__(self, residual: Callable[..., Any], on: Faces = None, name: str = "general") -> None:
        super().__init__(on, name, None, {"": 0.0})
        self.residual = residual

    def targets(self, problem: Problem) -> list[tuple[str, int, str]]:
        return []

    def terms(self, problem: Problem) -> tuple[str, ...]:
        return (self.name,)

    def wanted(self, problem: Problem) -> tuple[str, ...]:
        columns = {**dict.fromkeys(problem.coordinates, torch.full((3,), 0.5, dtype=torch.float64))}
        normal = Normal(problem, torch.full((3, len(problem.coordinates)), 0.5, dtype=torch.float64))
        return used_by(problem, self.residual, {**columns, "normal": normal}, f"{self.name} condition")

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        columns = dict(zip(problem.coordinates, points.unbind(1), strict=True))
        return columns | {"normal": self.normals(problem, points)}

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        given = {**prepared, "normal": Normal(problem, prepared["normal"])}
        available = {**problem.named_fields(partials), **given}
        return {self.name: problem.call(self.residual, available, f"{self.name} condition")}


class Outgoing(Edge):
    """Waves leave the domain: ∂u/∂n = 0, or u_t + speed · ∂u/∂n = 0 if the speed of the wave is known."""

    def __init__(self, *fields: str, on: Faces = None, speed: float | None = None, name: str = "outgoing"):
        values: dict[str, Any] = dict.fromkeys(fields, 0.0)
        super().__init__(on, name, None, values)
        self.speed = speed

    def wanted(self, problem: Problem) -> tuple[str, ...]:
        return self.axes(problem) + (() if self.speed is None else ("t",))

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        return {"normal": self.normals(problem, points)}

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        found = {}
        for key, column, _ in self.targets(problem):
            outward = self.normal_derivative(problem, partials, prepared["normal"], column)
            found[self.term_name(key)] = (
                outward if self.speed is None else partials["t"][:, column] + self.speed * outward
            )
        return found
