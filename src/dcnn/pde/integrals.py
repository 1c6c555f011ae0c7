"""A condition on a whole: the integral of an expression over space has a given value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dcnn.pde.conditions import Condition
from dcnn.pde.dry_run import used_by
from dcnn.pde.sampling import generator, sobol

if TYPE_CHECKING:
    from dcnn.pde.problem import Problem

TRIED = 1 << 16  # points that tell the volume of a shape


class Integral(Condition):
    """∫ f dx over space = `equals` (a number, or a function of t): ``Integral(lambda u: u, equals=1.0)``.

    Boxes have Gauss' nodes, about `points` of them, shapes that many Sobol points. If there is time, the integral is
    taken at `times` times from the start to the end.
    """

    def __init__(
        self,
        integrand: Callable[..., Any],
        equals: float | Callable[..., Any] = 0.0,
        points: int = 256,
        times: int = 16,
        name: str = "integral",
    ) -> None:
        super().__init__((), name)
        self.integrand, self.equals, self.points, self.times = integrand, equals, points, times

    def targets(self, problem: Problem) -> list[tuple[str, int, str]]:
        return []

    def terms(self, problem: Problem) -> tuple[str, ...]:
        return (self.name,)

    def wanted(self, problem: Problem) -> tuple[str, ...]:
        columns = dict.fromkeys(problem.coordinates, torch.full((3,), 0.5, dtype=torch.float64))
        return used_by(problem, self.integrand, columns, f"{self.name} condition")

    def place(self, problem: Problem, unit: Tensor, part: int = 0) -> Tensor:
        nodes, _ = self._nodes(problem)  # (M, space)
        timed, varied = "t" in problem.coordinates, [problem.axis(name) for name in problem.ranges]
        count = self.times if timed or varied else 1
        points = torch.empty(len(nodes), count, len(problem.coordinates), dtype=torch.float64)
        points[..., [problem.axis(c) for c in problem.space]] = nodes[:, None]
        points[..., varied] = problem.stretch(sobol(count, points.shape[2], generator(0)))[:, varied]
        if timed:
            points[..., problem.axis("t")] = torch.linspace(*problem.domain["t"], count, dtype=torch.float64)
        self.rows_each = len(nodes)
        return points.flatten(0, 1).to(unit)  # all nodes of a residual are `count` rows apart

    def pick(self, problem: Problem, points: Tensor) -> Tensor:
        return self.place(problem, points)

    def _nodes(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Points (M, space) and their weights (M,)."""
        sides = [problem.domain[c] for c in problem.space]
        if problem.shape is None:
            x, w = np.polynomial.legendre.leggauss(max(1, round(self.points ** (1 / len(sides)))))
            lines = [((low + high) / 2 + (high - low) / 2 * x, (high - low) / 2 * w) for low, high in sides]
            grid = np.array(list(product(*(line for line, _ in lines))))
            weights = np.array([np.prod(each) for each in product(*(w for _, w in lines))])
            return torch.as_tensor(grid), torch.as_tensor(weights)
        low, high = problem.shape.bounds()
        tried = low + (high - low) * sobol(TRIED, len(sides), generator(0))
        inside = tried[problem.shape.distance(tried) < 0]
        nodes = inside[: self.points]
        volume = float((high - low).prod()) * len(inside) / TRIED
        return nodes, torch.full((len(nodes),), volume / len(nodes), dtype=torch.float64)

    def prepare(self, problem: Problem, points: Tensor) -> dict[str, Tensor]:
        _, weights = self._nodes(problem)
        rows = points.reshape(len(weights), -1, len(problem.coordinates)).transpose(0, 1)  # (times, M, coordinates)
        columns = dict(zip(problem.coordinates, rows.unbind(2), strict=True))
        start = {name: column[:, 0] for name, column in columns.items() if name not in problem.space}
        value = problem.call(self.equals, start, f"{self.name} condition") if callable(self.equals) else self.equals
        equals = torch.as_tensor(value).to(points).expand(len(rows))
        return columns | {"weights": weights.to(points).expand(len(rows), -1), "equals": equals}

    def residuals(
        self, problem: Problem, partials: Mapping[str, Tensor], prepared: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        columns = {c: prepared[c].T.reshape(-1) for c in problem.coordinates}
        available = {**problem.named_fields(partials), **columns}
        values = problem.call(self.integrand, available, f"{self.name} condition")
        weights = prepared["weights"]  # (times, M)
        return {self.name: (values.reshape(weights.shape[1], -1).T * weights).sum(1) - prepared["equals"]}
