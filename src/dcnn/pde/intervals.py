"""How well data fix the learnt parameters of an equation: 95 % intervals from the sensitivity of the solution."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from scipy.special import stdtrit
from torch import Tensor

RIDGE = 1e-12  # of the largest square of a singular value: directions in which the weights change nothing


def half_widths(
    linearised: Mapping[str, tuple[Tensor, Tensor]], data: Collection[str], unknowns: Sequence[str]
) -> dict[str, float]:
    """{name: half of the 95 % interval} from residuals and their Jacobians (rows, weights).

    `data`: the terms of measured values; all others state the problem. The unknowns are the first columns. When one
    changes, the other weights follow so that equations and conditions still hold: their change is
    −J⁺ ∂r/∂parameter. What this does to the data is S, and the covariance is σ² (SᵀS)⁻¹, σ² from what is left of the
    data. Linear, so good for small noise; a misfit of the network counts as noise.
    """
    k = len(unknowns)
    r = torch.cat([r.double() for name, (r, _) in linearised.items() if name in data])
    J = torch.cat([J.double() for name, (_, J) in linearised.items() if name in data])
    if len(r) <= k:
        return {}
    others = [J.double() for name, (_, J) in linearised.items() if name not in data]
    stated = torch.cat([J / (float(J.square().mean().sqrt()) or 1.0) for J in others])  # whatever their units
    fixed = stated[:, k:]
    gram = fixed.T @ fixed
    gram.diagonal().add_(RIDGE * float(torch.linalg.matrix_norm(gram, 2)))
    follow = -torch.linalg.solve(gram, fixed.T @ stated[:, :k])  # (other weights, unknowns)
    S = J[:, :k] + J[:, k:] @ follow  # (data, unknowns)
    free = len(r) - k
    covariance = float(r @ r) / free * torch.linalg.pinv(S.T @ S)
    widths = float(stdtrit(free, 0.975)) * covariance.diagonal().clamp_min(0).sqrt()
    return dict(zip(unknowns, widths.tolist(), strict=True))
