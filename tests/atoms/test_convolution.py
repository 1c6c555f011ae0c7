"""The convolution in pieces equals the plain one, with its derivatives; networks take it for many pairs."""

import numpy as np
import pytest
import torch
from ase.build import bulk

from dcnn.atoms import Structure, build, collate, convolution, energy_and_forces
from dcnn.atoms.convolution import convolve


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(convolution, "PIECE", 7)


def crystal(cells=2):
    atoms = bulk("MgO", "rocksalt", a=4.21, cubic=True) * ([cells] * 3)
    atoms.rattle(0.05, seed=0)
    return Structure(atoms.numbers, atoms.positions, atoms.cell.array, energy=0.0, forces=np.zeros((len(atoms), 3)))


def plain(y, filters, i, j):
    total = torch.zeros_like(y).index_add(0, i, y[j] * filters)
    return total.index_add(0, j, y[i] * filters)


def test_it_equals_the_plain_sum_to_the_second_derivative(small_pieces):
    torch.manual_seed(0)
    i, j = torch.randint(0, 6, (2, 40))
    y = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    filters = torch.randn(40, 3, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(convolve(y, filters, i, j), plain(y, filters, i, j), rtol=1e-13, atol=1e-13)
    assert torch.autograd.gradcheck(lambda *x: convolve(*x, i, j), (y, filters))
    assert torch.autograd.gradgradcheck(lambda *x: convolve(*x, i, j), (y, filters))


def test_a_step_of_schnet_on_a_crystal_is_the_same(monkeypatch):
    torch.manual_seed(0)
    network = build("schnet", features=8, filters=8).double()
    batch = collate([crystal()], float(network.cutoff), torch.float64)
    found = {}
    for piece in (64, len(batch.pair_i)):  # in pieces, and plain
        monkeypatch.setattr(convolution, "PIECE", piece)
        assert convolution.pays(len(batch.pair_i)) == (piece == 64)
        energy, forces = energy_and_forces(network.train(), batch)
        loss = energy.square().sum() + (forces - 0.1).square().sum()
        found[piece] = [energy, forces, *torch.autograd.grad(loss, [*network.parameters()])]
    for ours, expected in zip(*found.values(), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-11)


def test_what_is_recorded_or_mapped_takes_plain_operations(small_pieces):
    seen = []
    torch.func.vmap(lambda x: (seen.append(convolution.pays(10**6)), x)[1])(torch.zeros(2))
    assert seen == [False]
    assert convolution.pays(10**6)
    assert not convolution.pays(14)
