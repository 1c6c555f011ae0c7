"""Weights learnt beside the network, as the noise of each term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from dcnn.losses.interface import Weighting
from dcnn.losses.terms import Term


class Uncertainty(Weighting):
    """Σ wᵢ (½ e^(−sᵢ) Lᵢ + ½ sᵢ) with one trainable log variance s = log σ² a term.

    The negative log likelihood of residuals with normal noise of variance σᵢ², so Lᵢ should be "l2". At its
    minimum e^s = L. The optimiser must be given ``parameters()``. Kendall, Gal & Cipolla, CVPR 2018,
    arXiv:1705.07115.
    """

    state: ClassVar[tuple[str, ...]] = ("log_variances",)

    def __init__(self, terms: Sequence[Term], initial: float = 0.0) -> None:
        super().__init__(terms)
        self.log_variances = nn.Parameter(torch.full((len(terms),), float(initial)))

    def parameters(self) -> list[nn.Parameter]:
        """The log variances, one vector in the order of the terms."""
        return [self.log_variances]

    def combine(
        self,
        values: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
        step: int,
        residuals: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Σ wᵢ (½ e^(−sᵢ) Lᵢ + ½ sᵢ)."""
        found = self._active(values, step)
        log_variances = dict(zip(self.terms, self.log_variances, strict=True))
        parts = []
        for name, value in found.items():
            s, weight = log_variances[name].to(value), self.current[name]
            precision = 0.5 * torch.exp(-s)
            parts.append(weight * (precision * value + 0.5 * s))
            self.current[name] = weight * float(precision.detach())
        return torch.stack(parts).sum()
