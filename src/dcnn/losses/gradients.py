"""Weightings that look at the gradients of the terms: GradNorm, NTK and ConFIG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from dcnn.errors import InputError
from dcnn.losses.interface import Balanced, Weighting, named, numbers
from dcnn.losses.terms import Term


class GradNorm(Balanced):
    """Moves λ so that the gradients Gᵢ = ‖λᵢ ∇Lᵢ‖ come near Ḡ rᵢ^α, larger where training lags behind.

    Ḡ is the mean of G and rᵢ = (Lᵢ(t)/Lᵢ(0)) / mean over the terms. One gradient step of length ``rate`` on
    Σ|Gᵢ − Ḡ rᵢ^α|, target held constant, then λ is scaled to keep its sum (the number of terms); it acts from the
    next step on. With ``log_space`` the step is taken on log λ and relative to Ḡ, which stays stable when
    gradients differ by orders of magnitude. ``parameters`` may be the last shared layer alone.
    Chen, Badrinarayanan, Lee & Rabinovich, ICML 2018, arXiv:1711.02257.
    """

    state: ClassVar[tuple[str, ...]] = (*Balanced.state, "first", "upcoming")
    floor = 1e-3  # a gradient step may cross zero; a negative weight would maximise its term

    def __init__(self, terms: Sequence[Term], alpha: float = 1.5, rate: float = 0.025, log_space: bool = False) -> None:
        super().__init__(terms)
        self.alpha, self.rate, self.log_space = alpha, rate, log_space
        self.first: dict[str, float] = {}
        self.upcoming: dict[str, float] = {}

    def balance(
        self,
        values: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
        step: int,
        residuals: Mapping[str, Tensor] | None,
    ) -> dict[str, float]:
        """λ(t), which the step before decided; λ(t+1) is computed and kept."""
        vector = numbers(values)
        self.first = named(values, vector) | self.first
        weights = torch.tensor([self.upcoming.get(name, 1.0) for name in values], dtype=torch.float64)
        norms = torch.stack([g.double().norm() for g in gradients(values, parameters)]).cpu()  # ‖∇Lᵢ‖
        g = weights * norms
        ratio = vector / (torch.tensor([self.first[name] for name in values], dtype=torch.float64) + 1e-300)
        target = g.mean() * (ratio / ratio.mean()) ** self.alpha
        if self.log_space:
            moved = weights * torch.exp(-self.rate * torch.sign(g - target) * g / (g.mean() + 1e-300))
        else:
            moved = (weights - self.rate * torch.sign(g - target) * norms).clamp(min=self.floor)
        # the total of these terms stays, so that the sum over all terms does, whichever of them this step has
        self.upcoming |= named(values, moved * weights.sum() / moved.sum())
        return named(values, weights)


class NTK(Balanced):
    """λᵢ = Tr K / Tr Kᵢᵢ with the tangent kernel Kᵢᵢ = Jᵢ Jᵢᵀ of residual rᵢ, Jᵢ = ∂rᵢ/∂θ; Tr K = Σ Tr Kᵢᵢ.

    Residuals rᵢ whose kernel is small learn slowly and get more weight. Tr Kᵢᵢ is the sum of the squared
    gradient norms of all entries of rᵢ; with ``probes`` it is the mean of ‖Jᵢᵀ v‖² over that many vectors v
    of random signs, else (None) one gradient is taken for each entry. Renewed every ``every`` steps.
    Wang, Yu & Perdikaris, J. Comput. Phys. 449, 110768 (2022).
    """

    state: ClassVar[tuple[str, ...]] = (*Balanced.state, "generator")

    def __init__(self, terms: Sequence[Term], every: int = 100, probes: int | None = 8, seed: int = 0) -> None:
        super().__init__(terms)
        if every < 1 or (probes is not None and probes < 1):
            raise InputError(f"NTK: every and probes are at least 1, not every={every}, probes={probes}")
        self.every, self.probes = every, probes
        self.generator = torch.Generator().manual_seed(seed)

    def balance(
        self,
        values: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
        step: int,
        residuals: Mapping[str, Tensor] | None,
    ) -> dict[str, float]:
        """Tr K / Tr Kᵢᵢ; 1 for a residual that does not depend on the parameters."""
        if step % self.every and set(values) <= set(self.factors):
            return self.factors
        if residuals is None or not set(values) <= set(residuals):
            raise InputError("NTK weighting needs the residual of every term: combine(…, residuals=residuals)")
        traces = {name: self._trace(residuals[name].flatten(), name, parameters) for name in values}
        total = sum(traces.values())
        return {name: total / trace if trace > 0 else 1.0 for name, trace in traces.items()}

    def _trace(self, residual: Tensor, name: str, parameters: Sequence[Tensor]) -> float:
        entries = residual
        if self.probes is not None:
            bits = torch.randint(0, 2, (self.probes, len(residual)), generator=self.generator)
            entries = (2 * bits - 1).to(residual) @ residual  # (probes,); their number cancels in the ratio
        squares = 0.0
        for entry in entries:
            [gradient] = gradients({name: entry}, parameters)
            squares += float(gradient.double().square().sum())
        return squares


class ConFIG(Weighting):
    """The conflict-free inverse gradient: a small step against it lowers every term.

    With unit gradients gᵢ/‖gᵢ‖ as rows of M:  g_u = M⁺w / ‖M⁺w‖,  g = (Σ gᵢ·g_u) g_u, where w are the weights
    of the terms (ones in the paper), to which the projections of g on the unit gradients are proportional.
    ``combine`` returns a scalar of the value Σ wᵢLᵢ whose gradient with respect to ``parameters`` is g;
    ``current`` holds c with g = Σ cᵢ gᵢ, which may be negative.
    Liu, Chu & Thuerey, ICLR 2025, arXiv:2408.11104.
    """

    def combine(
        self,
        values: Mapping[str, Tensor],
        parameters: Sequence[Tensor],
        step: int,
        residuals: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Σ wᵢLᵢ + ⟨g, θ − θ′⟩ with everything but θ held constant, and θ′ = θ."""
        found = self._active(values, step)
        parameters = trainable(parameters)
        g = torch.stack(gradients(found, parameters)).double()  # (m, P)
        w = torch.tensor([self.current[name] for name in found]).to(g)
        norms = g.norm(dim=1)
        u = g / norms.clamp(min=1e-300)[:, None]  # (m, P); a zero gradient stays zero
        # M⁺w = Mᵀ(MMᵀ)⁺w: an m × m problem. Gradients of a float32 network are parallel to 1e-6 at best.
        a = torch.linalg.pinv(u @ u.T, rtol=1e-12, hermitian=True) @ w  # (m,)
        v = a @ u  # (P,)
        unit = v / v.norm().clamp(min=1e-300)
        length = (g @ unit).sum()
        coefficients = length * a / (norms.clamp(min=1e-300) * v.norm().clamp(min=1e-300))
        value = (w.cpu() * numbers(found)).sum()
        self.current |= named(found, coefficients)

        pieces = (length * unit).split([p.numel() for p in parameters])
        surrogate = value.to(parameters[0])
        for parameter, piece in zip(parameters, pieces, strict=True):
            surrogate = surrogate + (piece.view_as(parameter).to(parameter) * (parameter - parameter.detach())).sum()
        return surrogate


def trainable(parameters: Sequence[Tensor]) -> list[Tensor]:
    """The parameters that take a gradient."""
    found = [parameter for parameter in parameters if parameter.requires_grad]
    if not found:
        raise InputError("this weighting compares gradients, and none of the given parameters requires one")
    return found


def gradients(values: Mapping[str, Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """∂value/∂parameters as one vector (P,) for each value; the graph is kept for ``backward``."""
    parameters = trainable(parameters)
    found = []
    for name, value in values.items():
        if not value.requires_grad:
            raise InputError(f"term {name!r} does not depend on the parameters: its value has no graph")
        parts = torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True)
        found.append(torch.cat([part.flatten() for part in parts]))
    return found
