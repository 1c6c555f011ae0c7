"""Residuals evaluated once on made-up values: which derivatives they use, their names, whether they are sound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.pde.named_field import Recorder
from dcnn.pde.problem_source import line_of, prefixed

if TYPE_CHECKING:
    from dcnn.pde.problem import Problem


def used_by(problem: Problem, function: Callable[..., Any], columns: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The partial derivatives that an expression of a user's reads, found by evaluating it on three made-up points."""
    recorder = Recorder(len(problem.fields))
    try:
        found = problem.call(function, {**problem.named_fields(recorder), **columns}, where)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{problem.where}: {where}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Tensor) or found.shape != (3,):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InputError(f"{problem.where}: {where}: must be one number a point, found {shape} for 3 points")
    return ("", *(letters for letters in recorder if letters))


def _evaluated(problem: Problem, recorder: Recorder, points: Tensor) -> dict[str, Tensor]:
    """The residuals, in flux form (`(k * u.x).x`) if they cannot be computed with plain tensors."""
    try:
        return problem.evaluate(recorder, points, recorder.values_seen)
    except InputError:
        raise
    except Exception as plain:
        problem.flux_form = True
        try:
            return problem.evaluate(recorder, points, recorder.values_seen)
        except (AttributeError, TypeError):
            del problem.flux_form
            raise plain from None


def dry_run(problem: Problem) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(wanted partial derivatives, names of the residuals); an InputError names what is wrong with a residual."""
    unit = torch.rand(5, len(problem.coordinates), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    finite: dict[str, Tensor] = {}
    for count, size in ((3, 1.0), (5, 0.01)):  # a residual of fixed length, or not finite anywhere, shows
        recorder, points = Recorder(len(problem.fields), count, size), problem.stretch(unit[:count])
        try:
            named = _evaluated(problem, recorder, points)
        except InputError as error:
            raise InputError(prefixed(problem.where, str(error))) from None
        except Exception as error:
            line = line_of(error, type(problem))
            raise InputError(f"{problem.where}: residuals{line}: {type(error).__name__}: {error}") from error
        if not isinstance(named, dict) or not named:
            raise InputError(f'{problem.where}: residuals must return a dict such as {{"equation": u.t - u.xx}}')
        for term, value in named.items():
            if not isinstance(value, Tensor) or value.shape != (count,):
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise InputError(
                    f"{problem.where}: residual {term!r} must be one number a point, found {shape} for {count} points"
                )
            sound = torch.isfinite(value.detach())[:3]
            finite[term] = finite[term] | sound if term in finite else sound
    for term, sound in finite.items():
        if not bool(sound.all()):
            place = dict(zip(problem.coordinates, points[int((~sound).nonzero()[0])].tolist(), strict=True))
            raise InputError(
                f"{problem.where}: residual {term!r} is not finite at {place}; check sources and constants"
            )
    return ("", *(letters for letters in recorder if letters)), tuple(named)
