"""Weightings that look at how the values of the terms change: SoftAdapt and ReLoBRaLo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.losses.interface import Balanced, named, numbers
from dcnn.losses.terms import Term


class SoftAdapt(Balanced):
    """λᵢ = exp(β sᵢ) / Σⱼ exp(β sⱼ): the term that falls least, or rises most, gets most weight.

    sᵢ is the change of the mean of Lᵢ over ``every`` steps since the ``every`` steps before. ``normalized``
    divides s by Σ|sⱼ|, which frees β from the unit of the losses; ``loss_weighted`` multiplies the
    exponentials by the mean of Lᵢ. The factors add up to 1.
    Heydari, Thompson & Mehmood, arXiv:1912.12355 (2019).
    """

    state: ClassVar[tuple[str, ...]] = (*Balanced.state, "sums", "count", "means", "changes")

    def __init__(
        self,
        terms: Sequence[Term],
        beta: float = 0.1,
        normalized: bool = False,
        loss_weighted: bool = False,
        every: int = 1,
    ) -> None:
        super().__init__(terms)
        if every < 1:
            raise InputError(f"SoftAdapt: every is a number of steps ≥ 1, not {every}")
        self.beta, self.normalized, self.loss_weighted, self.every = beta, normalized, loss_weighted, every
        self.sums: dict[str, list[float]] = {}
        self.count = 0
        self.means: dict[str, float] = {}
        self.changes: dict[str, float] = {}

    def balance(
        self,
        values: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
        step: int,
        residuals: Mapping[str, Tensor] | None,
    ) -> dict[str, float]:
        """The (loss-weighted) softmax of the changes; a term without a past counts as unchanged."""
        now = named(values, numbers(values))
        for name, value in now.items():
            self.sums.setdefault(name, []).append(value)
        self.count += 1
        if self.count == self.every:
            means = {name: sum(window) / len(window) for name, window in self.sums.items()}
            self.changes = {name: mean - self.means.get(name, mean) for name, mean in means.items()}
            self.means |= means
            self.sums, self.count = {}, 0

        s = torch.tensor([self.changes.get(name, 0.0) for name in values], dtype=torch.float64)
        if self.normalized:
            s = s / (s.abs().sum() + 1e-8)
        shares = torch.softmax(self.beta * s, dim=0)
        if self.loss_weighted:
            f = torch.tensor([self.means.get(name, now[name]) for name in values], dtype=torch.float64)
            shares = f * shares / ((f * shares).sum() + 1e-300)
        return named(values, shares)


class ReLoBRaLo(Balanced):
    """Relative loss balancing with random look-back, on m terms:

    λ̂ᵢ(t, t′) = m · softmaxᵢ( Lᵢ(t) / (T Lᵢ(t′)) ),
    λᵢ(t) = α (ρ λᵢ(t−1) + (1−ρ) λ̂ᵢ(t, 0)) + (1−α) λ̂ᵢ(t, t−1),  λᵢ(0) = 1.

    ρ is 1 with probability ``rho`` and else 0, one draw a step for all terms.
    Bischof & Kraus, arXiv:2110.09813 (2021).
    """

    state: ClassVar[tuple[str, ...]] = (*Balanced.state, "first", "previous", "generator")

    def __init__(
        self,
        terms: Sequence[Term],
        alpha: float = 0.999,
        temperature: float = 0.1,
        rho: float = 0.999,
        seed: int = 0,
    ) -> None:
        super().__init__(terms)
        if not (0 <= alpha <= 1 and 0 <= rho <= 1 and temperature > 0):
            raise InputError(
                f"ReLoBRaLo: alpha and rho lie in [0, 1] and temperature is positive, "
                f"not alpha={alpha}, rho={rho}, temperature={temperature}"
            )
        self.alpha, self.temperature, self.rho = alpha, temperature, rho
        self.first: dict[str, float] = {}
        self.previous: dict[str, float] = {}
        self.generator = torch.Generator().manual_seed(seed)

    def balance(
        self,
        values: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
        step: int,
        residuals: Mapping[str, Tensor] | None,
    ) -> dict[str, float]:
        """λ(t); a term seen for the first time compares with itself."""
        vector = numbers(values)
        now = named(values, vector)
        started = bool(self.previous)
        recent = self._relative(vector, [self.previous.get(name, now[name]) for name in values])
        initial = self._relative(vector, [self.first.get(name, now[name]) for name in values])
        self.first = now | self.first
        self.previous |= now
        if not started:
            return dict.fromkeys(values, 1.0)
        rho = float(torch.rand((), generator=self.generator) < self.rho)
        before = torch.tensor([self.factors.get(name, 1.0) for name in values], dtype=torch.float64)
        history = rho * before + (1 - rho) * initial
        return named(values, self.alpha * history + (1 - self.alpha) * recent)

    def _relative(self, now: Tensor, then: list[float]) -> Tensor:
        ratio = now / (self.temperature * torch.tensor(then, dtype=torch.float64) + 1e-300)
        return len(now) * torch.softmax(ratio.clamp(max=1e30), dim=0)  # finite after a loss of exactly zero
