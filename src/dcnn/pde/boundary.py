"""Conditions on the faces of the domain: given values, given normal derivatives, waves that leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.pde.conditions import Value, Valued, at_position

if TYPE_CHECKING:
    from dcnn.pde.problem import Problem

Faces = str | Sequence[str] | None


class Edge(Valued):
    """Values on faces of the domain: `on` names an axis (both ends), or one end as "x-" or "x+"."""

    def __init__(self, on: Faces, name: str, term: str | None, values: Mapping[str, Value]):
        super().__init__(values, name, term)
        self.on = (on,) if isinstance(on, str) else on

    def faces(self, problem: Problem) -> list[tuple[int, float]]:
        """(column, position) of each face; those of all space axes if `on` was not given."""
        space = [c for c in problem.coordinates if c != "t"]
        valid = [c + end for c in space for end in ("", "-", "+")]
        found = []
        for face in self.on or space:
            if face not in valid:
                raise InputError(f"{problem.where}: {self.name} condition on face {face!r}. Valid: {', '.join(valid)}")
            low, high = problem.domain[face[0]]
            ends = {"": (low, high), "-": (low,), "+": (high,)}[face[1:]]
            found += [(problem.axis(face[0]), end) for end in ends]
        return found

    def axes(self, problem: Problem) -> tuple[str, ...]:
        """The coordinates across the faces."""
        return tuple(dict.fromkeys(problem.coordinates[column] for column, _ in self.faces(problem)))

    def parts(self, problem: Problem) -> int:
        return len(self.faces(problem))

    def place(self, problem: Problem, unit: Tensor, part: int = 0) -> Tensor:
        points, (column, position) = problem.stretch(unit), self.faces(problem)[part]
        points[:, column] = position
        return points

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        on_face = [at_position(problem, points, column, position) for column, position in self.faces(problem)]
        return points[torch.stack(on_face).any(0)]

    def normals(self, problem: Problem, points: Tensor) -> Tensor:
        """Outward unit normals (N, coordinates); corners take the mean direction."""
        normal = torch.zeros_like(points)
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
