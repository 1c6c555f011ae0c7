"""Radial and angular bases of DimeNet++ and GemNet-T, in closed form and without inverse trigonometric functions.

Fixed functions of one variable (spherical Bessel functions of a distance, Legendre polynomials of a cosine) are
Chebyshev series: :func:`series` evaluates all of them with one matrix product, and so does every derivative. That
is stable where the usual recurrences are not (j_l at small arguments in float32), and has no singular point, so
that collinear atoms are as harmless as any others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.polynomial import chebyshev, legendre
from scipy.optimize import brentq
from scipy.special import jv, spherical_jn
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import Neighbourhoods
from dcnn.atoms.bases import Gaussians


def envelope(x: Tensor, p: int) -> Tensor:
    """u(x) = 1 − (p+1)(p+2)/2·xᵖ + p(p+2)·xᵖ⁺¹ − p(p+1)/2·xᵖ⁺² below x = 1, else 0; u, u′ and u″ vanish at 1."""
    x = x.clamp(max=1.0)
    inner = p * (p + 2) - 0.5 * p * (p + 1) * x
    return 1.0 + x.pow(p) * (x * inner - 0.5 * (p + 1) * (p + 2))


def chebyshev_values(x: Tensor, n: int) -> Tensor:
    """T_0(x) … T_{n−1}(x) along a new last dimension; each step doubles their number: T_{m+k} = 2 T_m T_k − T_{m−k}."""
    values = torch.stack([torch.ones_like(x), x], -1)
    while values.shape[-1] < n:
        values = torch.cat([values, 2 * values[..., -1:] * values[..., 1:] - values[..., :-1].flip(-1)], -1)
    return values[..., :n]


class _Series(torch.autograd.Function):
    """Σ_k T_k(x)·c_k, with the derivative as another such series over the same T_k."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, coefficients: Tensor) -> Tensor:
        ctx.save_for_backward(x, values, coefficients)
        return values @ coefficients

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x, values, coefficients = ctx.saved_tensors
        slope = _Series.apply(x, values, _derivative(coefficients))
        return (grads[0] * slope).sum(-1), None, None


def _derivative(coefficients: Tensor) -> Tensor:
    """Chebyshev coefficients of the derivative: c′_k = Σ 2m·c_m over m > k with m − k odd, half of that for k = 0."""
    m = torch.arange(len(coefficients), device=coefficients.device)
    ahead = m - m.unsqueeze(1)
    matrix = (2 * m * ((ahead > 0) & (ahead % 2 == 1))).to(coefficients)
    matrix[0] *= 0.5
    return matrix @ coefficients


def series(x: Tensor, coefficients: Tensor) -> Tensor:
    """f_m(x) = Σ_k c_km·T_k(x) on [−1, 1], (…) and (K, M) → (…, M), with exact derivatives of every order.

    >>> series(torch.tensor([0.5]), torch.tensor([[0.0], [1.0], [1.0]])).tolist()  # x + (2x² − 1)
    [[0.0]]
    """
    coefficients = coefficients.to(x)
    with torch.no_grad():
        values = chebyshev_values(x, len(coefficients))
    return _Series.apply(x, values, coefficients)


def bessel_zeros(n_spherical: int, n_radial: int) -> np.ndarray:
    """z_ln, the first ``n_radial`` positive zeros of j_l for l < ``n_spherical``; those of j_{l−1} enclose them."""
    zeros = np.arange(1, n_spherical + n_radial) * math.pi  # of j_0
    rows = [zeros[:n_radial]]
    for order in range(1, n_spherical):
        zeros = np.array([brentq(lambda x, n=order: spherical_jn(n, x), *bracket) for bracket in pairwise(zeros)])
        rows.append(zeros[:n_radial])
    return np.stack(rows)


class BesselBasis(nn.Module):
    """e_n(d) = u(x)/x · sin(f_n·x) with x = d/cutoff and trainable frequencies, f_n = nπ at first."""

    def __init__(self, n_radial: int, cutoff: float, exponent: int = 5) -> None:
        super().__init__()
        self.cutoff, self.exponent = cutoff, exponent
        self.frequencies = nn.Parameter(math.pi * torch.arange(1, n_radial + 1, dtype=torch.get_default_dtype()))

    def forward(self, distance: Tensor) -> Tensor:
        """(P,) → (P, n_radial)."""
        x = (distance / self.cutoff).unsqueeze(-1)  # (P, 1)
        return envelope(x, self.exponent + 1) / x * torch.sin(self.frequencies * x)


class GaussianBasis(nn.Module):
    """e_n(d) = u(x)·exp(−(x − μ_n)²/2Δ²) with x = d/cutoff and centres μ_n over [0, 1], Δ apart."""

    def __init__(self, n_radial: int, cutoff: float, exponent: int = 5) -> None:
        super().__init__()
        self.cutoff, self.exponent = cutoff, exponent
        self.gaussians = Gaussians(0.0, 1.0, n_radial)

    def forward(self, distance: Tensor) -> Tensor:
        """(P,) → (P, n_radial)."""
        x = distance / self.cutoff
        return self.gaussians(x) * envelope(x, self.exponent).unsqueeze(-1)


class SphericalBesselBasis(nn.Module):
    """a_ln(d) = u(x)/x · j_l(z_ln·x)·√2/|j_{l+1}(z_ln)| with x = d/cutoff: orthonormal on [0, 1] but for u(x)/x.

    ``rounded`` takes zeros and norms in float32, as the published scripts do.
    """

    def __init__(
        self, n_spherical: int, n_radial: int, cutoff: float, exponent: int = 5, rounded: bool = False
    ) -> None:
        super().__init__()
        self.cutoff, self.exponent, self.shape = cutoff, exponent, (n_spherical, n_radial)
        self.zeros: Any = bessel_zeros(n_spherical, n_radial).astype(np.float32 if rounded else np.float64)  # (L, R)
        order = np.arange(n_spherical)[:, None]
        beyond = np.sqrt(np.pi / (2 * self.zeros)) * jv((order + 1.5).astype(self.zeros.dtype), self.zeros)
        norm = (1 / (0.5 * beyond**2) ** 0.5).astype(np.float64)  # of j_{l+1}(z_ln), in the precision of the zeros
        frequencies = self.zeros.astype(np.float64)

        def functions(t: np.ndarray) -> np.ndarray:
            x = (t + 1) / 2  # a Chebyshev series lives on [−1, 1]
            return (norm * spherical_jn(order, frequencies * x[:, None, None])).reshape(len(t), -1)

        degree = 24 + int(0.65 * frequencies.max())  # coefficients fall faster than exponentially beyond half of it
        self.coefficients = torch.from_numpy(chebyshev.chebinterpolate(functions, degree))

    def forward(self, distance: Tensor) -> Tensor:
        """(P,) → (P, n_spherical, n_radial)."""
        x = (distance / self.cutoff).clamp(max=1.0)
        radial = series(2 * x - 1, self.coefficients) * (envelope(x, self.exponent + 1) / x).unsqueeze(-1)
        return radial.unflatten(-1, self.shape)


class ZonalHarmonics(nn.Module):
    """Y_l = √((2l+1)/4π)·P_l(sign·cos α), l < ``n_spherical``, of the angle α between two edges into one atom."""

    def __init__(self, n_spherical: int, sign: int = 1) -> None:
        super().__init__()
        columns = np.zeros((n_spherical, n_spherical))
        for degree in range(n_spherical):
            unit = np.zeros(degree + 1)
            unit[degree] = math.sqrt((2 * degree + 1) / (4 * math.pi)) * sign**degree  # P_l(−x) = (−1)ˡ P_l(x)
            columns[: degree + 1, degree] = chebyshev.poly2cheb(legendre.leg2poly(unit))
        self.coefficients = torch.from_numpy(columns)

    def forward(self, directions: Tensor, at: Neighbourhoods) -> Tensor:
        """Unit vectors of the pairs (P, 3) → (N·n, n, n_spherical), zero where there is no angle."""
        n_atoms, n = at.edge.shape
        edges = torch.cat([directions, -directions]).index_select(0, at.edge.view(-1)).view(n_atoms, n, 3)
        cosine = torch.bmm(edges, edges.transpose(1, 2))  # (N, n, n)
        return (series(cosine, self.coefficients) * at.angle.unsqueeze(-1)).flatten(0, 1)


def on_edges(edges: Tensor, operation: Callable[[Tensor, Tensor], Tensor], pairs: Tensor) -> Tensor:
    """``operation`` of (2P, F) edges and (P, F) pairs, the pair serving both of its directions."""
    return operation(edges.view(2, *pairs.shape), pairs).view(edges.shape)


def reversed_edges(edges: Tensor, n_pairs: int) -> Tensor:
    """(2P, …) rows of directed edges, each in the place of its reverse: that of edge e is e ± P."""
    return edges.view(2, n_pairs, *edges.shape[1:]).flip(0).flatten(0, 1)
