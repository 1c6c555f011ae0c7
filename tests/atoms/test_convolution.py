"""The convolution in pieces equals the plain one, with its derivatives; networks take it for many pairs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ase.build import bulk

from dcnn.atoms import Structure, batch, build, collate, convolution, energy_and_forces
from dcnn.atoms.convolution import convolve
from dcnn.torch_internals import recorded


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
    given = collate([crystal()], float(network.cutoff), torch.float64)
    found = {}
    for piece in (64, len(given.pair_i)):  # in pieces, and plain
        monkeypatch.setattr(convolution, "PIECE", piece)
        assert convolution.pays(len(given.pair_i)) == (piece == 64)
        energy, forces = energy_and_forces(network.train(), given)
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


def test_a_graph_of_any_size_is_recorded():
    def summed(batch_positions, i, j, filters):
        given = replace(water, positions=batch_positions, pair_i=i, pair_j=j, edges=None)
        return given.convolve(batch_positions, filters)

    water = batch([8, 1, 1], [[0.0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    pairs = [water.pair_i, water.pair_j]
    graph = recorded(summed, water.positions, *pairs, torch.ones(3, 3), any_size=True)
    fewer = [water.positions, *(index[:2] for index in pairs), torch.ones(2, 3)]
    torch.testing.assert_close(graph(*fewer), summed(*fewer))
