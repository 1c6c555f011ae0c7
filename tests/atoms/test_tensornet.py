"""TensorNet against its equations written out: 3×3 matrices on directed edges, one loop an atom, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dcnn.testing as checks
from dcnn.activations import IReLU, SiLU
from dcnn.atoms import build, energy_and_forces
from dcnn.atoms.cartesian import BASIS, Table, anticommutator, messages, of_directions, part_sums, square

SIZES = {"features": 6, "layers": 2, "radial": 5, "cutoff": 3.5}


def network_of(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return build("tensornet", **(SIZES | options)).double()


def parts(x):
    """I, A, S of matrices (…, 3, 3)."""
    trace = x.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] / 3 * torch.eye(3, dtype=x.dtype)
    return trace, (x - x.mT) / 2, (x + x.mT) / 2 - trace


def mixed(weight, x):
    """Σ_p W_p X^p for matrices (N, F, 3, 3) and weights (3, F_in, F_out)."""
    return sum(torch.einsum("nfij,fg->ngij", part, w) for part, w in zip(parts(x), weight, strict=True))


def norm(x):
    return x.square().sum((-2, -1))


def plain(network, batch, act=F.silu):
    """Energies by the published equations, every atom being its own neighbour at distance zero."""
    n_atoms, cutoff, n_radial = len(batch.z), network.cutoff, len(network.basis.centers)
    vector = torch.cat([batch.edge_vectors(), torch.zeros(n_atoms, 3, dtype=torch.float64)])
    center = torch.cat([batch.edge_center, torch.arange(n_atoms)])
    source = torch.cat([batch.edge_neighbour, torch.arange(n_atoms)])
    own = center == source
    own &= (vector == 0).all(1)
    d = vector.square().sum(1).where(~own, 1.0).sqrt().where(~own, 0.0)
    unit = vector / d.where(~own, 1.0)[:, None]
    envelope = (0.5 * (1 + torch.cos(math.pi * d / cutoff)) * (d < cutoff))[:, None]
    low = math.exp(-cutoff)
    beta = (2 / n_radial * (1 - low)) ** -2
    means = torch.linspace(low, 1, n_radial, dtype=torch.float64)
    rbf = envelope * torch.exp(-beta * (torch.exp(-5 / cutoff * d)[:, None] - means) ** 2)

    def summed(messages):
        return torch.zeros(n_atoms, *messages.shape[1:], dtype=torch.float64).index_add(0, center, messages)

    e = network.embedding
    h = e.elements.weight[batch.z]
    pair = e.ends(torch.cat([h[center], h[source]], 1))[:, None, :, None, None]
    f = (e.radial(rbf) * envelope).view(len(d), 3, -1)[..., None, None]
    x, y, z = unit.T
    zero = torch.zeros_like(x)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).view(-1, 3, 3)
    one = torch.eye(3, dtype=torch.float64)
    outer = unit[:, :, None] * unit[:, None, :] - one / 3 * (~own)[:, None, None]
    tensors = torch.stack([one.expand_as(outer), cross, outer], 1)[:, :, None]  # (E, 3, 1, 3, 3)
    x = summed((pair * f * tensors).sum(1))  # (N, F, 3, 3)
    s = act(e.scales[2](act(e.scales[0](e.norm(norm(x)))))).view(n_atoms, 3, -1)
    x = sum(
        scale[..., None, None] * torch.einsum("nfij,fg->ngij", part, weight)
        for part, weight, scale in zip(parts(x), e.mix.weight, s.unbind(1), strict=True)
    )
    bank = network.filters
    for number, layer in enumerate(network.interactions):
        f = rbf
        for weight, bias in zip(bank.weights, bank.biases, strict=True):
            f = act(f @ weight[number] + bias[number])
        f = (f * envelope).view(len(d), 3, -1)
        x = x / (norm(x) + 1)[..., None, None]
        y = mixed(layer.before.weight, x)
        m = sum(summed(f[:, p, :, None, None] * part[source]) for p, part in enumerate(parts(y)))
        z = y @ m + m @ y
        change = mixed(layer.after.weight, z / (norm(z) + 1)[..., None, None])
        x = x + change + change @ change
    norms = torch.cat([norm(part) for part in parts(x)], 1)
    head = network.head
    energies = head[4](act(head[2](act(head[0](network.norm(norms))))))
    return batch.sum_atoms(energies.squeeze(1))


@pytest.mark.parametrize("structure", [checks.molecules(3.5), checks.crystal(3.5)], ids=["molecules", "crystal"])
@pytest.mark.parametrize("normalization", [True, False])
def test_energies_forces_and_gradients_are_those_of_the_equations(structure, normalization):
    network = network_of(normalization=normalization)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network

        def forward(self, batch):
            return plain(self.inner, batch)

    found = []
    for model in (network, Plain()):
        energy, forces = energy_and_forces(model, structure)
        loss = energy.sum() + forces.square().sum()
        gradients = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
        found.append([energy.detach(), forces.detach(), *(g for g in gradients if g is not None)])
    assert len(found[0]) > 20
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11 * float(theirs.abs().max() + 1))


def test_the_components_are_orthonormal_and_those_of_directions():
    gram = BASIS.flatten(1) @ BASIS.flatten(1).T
    torch.testing.assert_close(gram, torch.eye(9, dtype=torch.float64))
    unit = F.normalize(torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), dim=1)
    matrices = torch.einsum("nc,cij->nij", of_directions(unit), BASIS)
    trace, antisymmetric, symmetric = parts(matrices)
    one = torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(trace, one.expand(4, 3, 3))
    torch.testing.assert_close(antisymmetric @ one[0], torch.linalg.cross(unit, one[0].expand(4, 3)))
    torch.testing.assert_close(symmetric, unit[:, :, None] * unit[:, None, :] - one / 3)


def test_products_and_norms_are_those_of_matrices():
    x, y = torch.randn(2, 9, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    a, b = (torch.einsum("cnf,cij->nfij", t, BASIS) for t in (x, y))
    expected = torch.einsum("nfij,cij->cnf", a @ b + b @ a, BASIS)
    torch.testing.assert_close(anticommutator(x, y), expected)
    turned = torch.einsum("nfij,cij->cnf", a @ b.mT + b.mT @ a, BASIS)
    torch.testing.assert_close(anticommutator(x, y, transpose=True), turned)
    torch.testing.assert_close(square(x), torch.einsum("nfij,cij->cnf", a @ a, BASIS))
    torch.testing.assert_close(part_sums(x.square()), torch.stack([norm(part) for part in parts(a)]))


def test_derivatives_of_products_and_messages_to_second_order():
    batch = checks.crystal(3.5)  # with pairs of an atom and its own image
    table, n_pairs = Table.of(batch), len(batch.pair_i)
    assert (batch.pair_i == batch.pair_j).any()
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(9, 4, 2, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
    filters = torch.randn(3, n_pairs, 2, dtype=torch.float64, generator=generator).requires_grad_()
    for function, inputs in (
        (anticommutator, (x, y)),
        (square, (x,)),
        (lambda f, x: messages(f, x, table), (filters, x)),
    ):
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


def test_published_sizes_and_names():
    with torch.device("meta"):
        network = build("tensornet", preset="paper")
    assert network.cutoff == 4.5
    ours = build("tensornet", features=8, layers=1, radial=6, cutoff=4.0, elements=50)
    theirs = build("tensornet", embedding_dimension=8, num_layers=1, num_rbf=6, cutoff_upper=4.0, max_z=50)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in theirs.state_dict().items()}


def test_activation_and_normalization_can_be_replaced():
    network = network_of(activation="irelu", normalization=False)
    assert not any(isinstance(module, (nn.LayerNorm, SiLU)) for module in network.modules())
    assert sum(isinstance(module, IReLU) for module in network.modules()) == 7
