"""Bases of DimeNet++ and GemNet-T against scipy, brute force over triplets, and finite differences."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import eval_legendre, spherical_jn

import dcnn.testing as checks
from dcnn.atoms import batch
from dcnn.atoms.spherical import (
    BesselBasis,
    SphericalBesselBasis,
    ZonalHarmonics,
    bessel_zeros,
    chebyshev_values,
    envelope,
    series,
)

GOLDEN = Path(__file__).parents[1] / "goldens" / "dimenet_plus_plus__orig.npz"


@pytest.mark.parametrize("p", [5, 6])
def test_envelope_vanishes_with_two_derivatives(p):
    x = torch.tensor([1.0, 1.5], dtype=torch.float64, requires_grad=True)
    value = envelope(x, p)
    slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
    curvature = torch.autograd.grad(slope.sum(), x)[0]
    torch.testing.assert_close(torch.stack([value, slope, curvature]), torch.zeros(3, 2, dtype=torch.float64))
    assert envelope(torch.zeros(1), p) == 1
    inside = torch.linspace(0.1, 0.99, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: envelope(x, p), inside)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 40])
def test_chebyshev_values(n):
    x = torch.linspace(-1, 1, 11, dtype=torch.float64)
    expected = np.cos(np.arange(n) * np.arccos(x.numpy())[:, None])
    np.testing.assert_allclose(chebyshev_values(x, n).numpy(), expected, atol=1e-12)


def test_series_has_exact_derivatives_of_every_order():
    x = torch.linspace(-1, 1, 7, dtype=torch.float64, requires_grad=True)
    coefficients = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    polynomials = [np.polynomial.Chebyshev(column) for column in coefficients.T.numpy()]
    value = series(x, coefficients)
    for order in range(4):
        expected = sum((p.deriv(order) if order else p)(x.detach().numpy()) for p in polynomials)
        total = value.sum(-1) if order == 0 else value
        np.testing.assert_allclose(total.detach().numpy(), expected, rtol=1e-12, atol=1e-10)
        value = torch.autograd.grad(total.sum(), x, create_graph=True)[0]
    assert torch.autograd.gradgradcheck(lambda x: series(x, coefficients), x)


def test_bessel_zeros():
    zeros = bessel_zeros(7, 6)
    for order, row in enumerate(zeros):
        np.testing.assert_allclose(spherical_jn(order, row), 0, atol=1e-13)
        signs = np.sign(spherical_jn(order, np.linspace(0.1, row[-1] - 1e-3, 4000)))
        assert np.count_nonzero(np.diff(signs)) == 5  # none left out
    with np.load(GOLDEN) as golden:
        np.testing.assert_array_equal(bessel_zeros(4, 5).astype(np.float32), golden["const.bessel_zeros_f32"])


def test_bessel_basis_is_that_of_the_published_formula():
    d = torch.linspace(0.5, 5.9, 12, dtype=torch.float64)
    basis = BesselBasis(6, 6.0, exponent=5).double()
    frequencies = math.pi * torch.arange(1, 7, dtype=torch.float64)
    torch.testing.assert_close(basis.frequencies.data, frequencies, rtol=1e-7, atol=0)
    basis.frequencies.data = frequencies
    x = (d / 6.0).unsqueeze(1)
    expected = (1 / x - 28 * x**5 + 48 * x**6 - 21 * x**7) * torch.sin(frequencies * x)
    torch.testing.assert_close(basis(d), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize("shape", [(7, 6), (4, 5), (1, 1), (3, 40)])
def test_spherical_bessel_basis(shape, dtype, tolerance):
    cutoff = 6.0
    d = torch.linspace(0.3, cutoff, 40, dtype=dtype)
    zeros, order, x = bessel_zeros(*shape), np.arange(shape[0])[:, None], (d.double() / cutoff)
    norm = math.sqrt(2) / np.abs(spherical_jn(order + 1, zeros))
    expected = norm * spherical_jn(order, zeros * x.numpy()[:, None, None])
    expected *= (envelope(x, 6) / x).numpy()[:, None, None]
    found = SphericalBesselBasis(*shape, cutoff)(d)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.numpy(), expected, atol=tolerance * np.abs(expected).max(), rtol=0)


def test_spherical_bessel_functions_are_orthonormal():
    basis = SphericalBesselBasis(4, 5, cutoff=1.0)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    x = torch.from_numpy((nodes + 1) / 2)
    values = series(2 * x - 1, basis.coefficients).unflatten(-1, basis.shape).numpy()  # without the envelope
    gram = np.einsum("q,qln,qlm->lnm", weights / 2 * x.numpy() ** 2, values, values)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(5), (4, 5, 5)), atol=1e-12)


def test_spherical_bessel_derivatives():
    basis = SphericalBesselBasis(5, 4, cutoff=5.0)
    d = torch.tensor([0.6, 1.7, 4.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(basis, d)
    assert torch.autograd.gradgradcheck(basis, d)


def triplets(structure):
    """All (edge k→j, edge j→i) by brute force: two directed edges that meet in j, the second not the first reversed."""
    center, source, n = structure.edge_center.tolist(), structure.edge_neighbour.tolist(), 2 * len(structure.pair_i)
    found = [(kj, ji) for ji in range(n) for kj in range(n) if center[kj] == source[ji] and kj != (ji + n // 2) % n]
    return torch.tensor(found).T


@pytest.mark.parametrize("structure", [checks.molecules(3.5), checks.crystal(3.5)], ids=["molecules", "crystal"])
def test_neighbourhoods_hold_the_triplets(structure):
    at, n_pairs = structure.neighbourhoods, len(structure.pair_i)
    atom, out, into = at.angle.nonzero().T
    reverse = (at.edge[atom, out] + n_pairs) % (2 * n_pairs)
    found = set(zip(at.edge[atom, into].tolist(), reverse.tolist(), strict=True))
    edge_kj, edge_ji = triplets(structure)
    assert len(found) == len(edge_kj)
    assert found == set(zip(edge_kj.tolist(), edge_ji.tolist(), strict=True))
    torch.testing.assert_close(at.edge.view(-1)[at.slot], torch.arange(2 * n_pairs))
    torch.testing.assert_close(at.slot // at.edge.shape[1], structure.edge_center)


@pytest.mark.parametrize("sign", [1, -1])
def test_zonal_harmonics_of_every_triplet(sign):
    molecules = checks.molecules(3.5)
    vectors = molecules.pair_vectors()
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    at, n_pairs = molecules.neighbourhoods, len(unit)
    found = ZonalHarmonics(6, sign)(unit, at)  # (N·n, n, 6)
    edges = torch.cat([unit, -unit])
    edge_kj, edge_ji = triplets(molecules)
    out = (edge_ji + n_pairs) % (2 * n_pairs)
    cosine = (edges[edge_kj] * edges[out]).sum(1).numpy()
    degree = np.arange(6)
    expected = np.sqrt((2 * degree + 1) / (4 * math.pi)) * eval_legendre(degree, sign * cosine[:, None])
    values = found[at.slot[out], at.slot[edge_kj] % at.edge.shape[1]]
    np.testing.assert_allclose(values.numpy(), expected, atol=1e-13)
    assert found.abs().sum() == pytest.approx(values.abs().sum())  # and nothing where there is no triplet


def test_collinear_atoms_have_finite_second_derivatives():
    positions = torch.tensor([[0.0, 0, 0], [1.2, 0, 0], [2.4, 0, 0]], dtype=torch.float64, requires_grad=True)
    line = batch(z=[8, 6, 8], positions=positions)
    vectors = line.pair_vectors()
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    energy = ZonalHarmonics(7)(unit, line.neighbourhoods).square().sum()
    forces = torch.autograd.grad(energy, positions, create_graph=True)[0]
    curvature = torch.autograd.grad(forces[:, 1].square().sum() + forces.sum(), positions)[0]
    assert torch.isfinite(forces).all()
    assert torch.isfinite(curvature).all()
