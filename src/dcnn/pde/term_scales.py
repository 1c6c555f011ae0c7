"""How large a residual is when its fields are of their usual size: what makes terms of different units comparable."""

from __future__ import annotations

import math

import torch

from dcnn.pde.conditions import Condition
from dcnn.pde.problem import Problem


def term_units(problem: Problem, conditions: list[Condition]) -> dict[str, float]:
    """{term: unit}: of a condition the unit of its field, of an equation its rms for random fields.

    The random fields have the problem's scales, and derivatives of these over half the length of each axis. An
    equation whose rms cannot be found so (a logarithm of a negative field, say) has unit 1.
    """
    scales = problem.scales()
    random = torch.Generator().manual_seed(0)

    def field_like(field: str, letters: str) -> torch.Tensor:
        offset, unit = scales[field]
        z = torch.randn(4096, generator=random, dtype=torch.float64)
        for letter in letters:
            low, high = problem.domain[letter]
            unit /= (high - low) / 2
        return unit * z if letters else offset + unit * z

    partials = {w: torch.stack([field_like(f, w) for f in problem.fields], 1) for w in problem.wanted}
    points = problem.stretch(torch.rand(4096, len(problem.coordinates), generator=random, dtype=torch.float64))
    with torch.no_grad():
        found = problem.evaluate(partials, points)
    units = {name: _usable(float(residual.square().mean().sqrt())) for name, residual in found.items()}
    for condition in conditions:
        for key, column, letters in condition.targets(problem):
            unit = scales[problem.fields[column]][1]
            for letter in letters:
                low, high = problem.domain[letter]
                unit /= (high - low) / 2
            units[condition.term_name(key)] = _usable(unit)
        for term in condition.terms(problem):  # of an expression no unit is known
            units.setdefault(term, 1.0)
    return units


def _usable(value: float) -> float:
    return value if math.isfinite(value) and value > 0 else 1.0
