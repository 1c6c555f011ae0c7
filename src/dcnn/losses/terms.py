"""Named terms of a loss: a residual, a norm and a weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from dcnn.errors import InputError, unknown

Norm = Literal["l1", "l2", "huber", "length"]
NORMS: tuple[str, ...] = get_args(Norm)
POWER = {"l1": 1, "l2": 2, "huber": 2, "length": 1}  # of the residual's unit in the value


@dataclass(frozen=True)
class Term:
    """One named part of a loss; ``value`` is the mean over all entries of its residual r.

    norm "l1" is |r|, "l2" is r², "huber" is r²/2 where |r| ≤ delta, delta·(|r| − delta/2) elsewhere; "length" is √Σr²
    of the vectors along the last axis, which turning them does not change (of numbers, |r|).
    ``weight`` is a number or a function of the step such as a :class:`~dcnn.losses.Schedule`.

    >>> Term("energy", norm="l2").value(torch.tensor([1.0, -3.0]))
    tensor(5.)
    """

    name: str
    weight: float | Callable[[int], float] = 1.0
    norm: str = "l2"
    delta: float = 1.0

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise unknown("norm", self.norm, NORMS)
        if not callable(self.weight) and not (math.isfinite(self.weight) and self.weight >= 0):
            raise InputError(f"term {self.name!r}: a weight is finite and not negative, not {self.weight!r}")
        if not self.delta > 0:
            raise InputError(f"term {self.name!r}: huber needs delta > 0, not {self.delta!r}")

    def weight_at(self, step: int) -> float:
        """The weight at a step; a term of weight zero need not be computed."""
        return self.weight(step) if callable(self.weight) else self.weight

    def value(self, residual: Tensor) -> Tensor:
        """The mean of the norm over all entries of the residual, a scalar."""
        if residual.numel() == 0:
            raise InputError(f"term {self.name!r} has an empty residual: give it points or weight 0")
        if self.norm == "l1":
            return residual.abs().mean()
        if self.norm == "l2":
            return residual.square().mean()
        if self.norm == "length":
            lengths = torch.linalg.vector_norm(residual, dim=-1) if residual.dim() > 1 else residual.abs()
            return lengths.mean()
        return F.huber_loss(residual, torch.zeros_like(residual), delta=self.delta)


def term_values(terms: Iterable[Term], residuals: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """{name: value} of the terms that have a residual."""
    by_name = {term.name: term for term in terms}
    for name in residuals:
        if name not in by_name:
            raise unknown("term", name, by_name)
    return {name: by_name[name].value(residual) for name, residual in residuals.items()}
