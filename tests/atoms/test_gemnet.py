"""GemNet-T: what sets it apart from the other networks (the rest is in test_every_model and test_goldens)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dcnn.testing as checks
from dcnn.activations import IReLU
from dcnn.atoms import batch, build, energy_and_forces
from dcnn.atoms.models.gemnet_layers import EdgeEmbedding, ScaledSiLU, he_orthogonal_
from dcnn.errors import InputError

SIZES = {"atom": 16, "edge": 12, "triplet": 8, "bilinear": 6, "rbf": 4, "cbf": 5, "n_spherical": 4, "n_radial": 8}


def network_of(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return build("gemnet", blocks=2, cutoff=4.0, **({"zero_output": False} | SIZES | options)).double()


def test_linear_molecules_train():
    positions = torch.tensor([[0.0, 0, 0], [1.06, 0, 0], [2.27, 0, 0], [3.33, 0, 0]], dtype=torch.float64)
    acetylene, network = batch(z=[1, 6, 6, 1], positions=positions, cutoff=4.0), network_of()
    trainable = [p for p in network.parameters() if p.requires_grad]
    energy, forces = energy_and_forces(network, acetylene)
    gradients = torch.autograd.grad(forces.square().sum() + energy.sum(), trainable)
    assert all(torch.isfinite(g).all() for g in gradients)
    assert forces[:, 1:].abs().max() < 1e-12
    checks.check_forces(network, acetylene)


def test_scaled_silu_and_its_derivatives():
    x = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)
    act = ScaledSiLU()
    torch.testing.assert_close(act(x), nn.functional.silu(x) / 0.6)
    for order in range(4):
        slope = torch.autograd.grad(act.derivative(x, order).sum(), x)[0]
        torch.testing.assert_close(slope, act.derivative(x, order + 1))
    assert torch.autograd.gradcheck(act, x)
    assert torch.autograd.gradgradcheck(act, x)


@pytest.mark.parametrize("shape", [(24, 40), (7, 16, 12)])
def test_he_orthogonal(shape):
    torch.manual_seed(0)
    weight = torch.empty(shape, dtype=torch.float64)
    he_orthogonal_(weight)
    by_output = weight.flatten(0, 1).T if len(shape) == 3 else weight  # (outputs, inputs)
    fan_in = by_output.shape[1]
    torch.testing.assert_close(by_output.mean(1), torch.zeros(len(by_output), dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(
        by_output.var(1) * fan_in, torch.ones(len(by_output), dtype=torch.float64), atol=1e-3, rtol=0
    )


def test_parts_of_an_edge_embedding_are_one_he_orthogonal_map():
    own = nn.Parameter(torch.empty(10, 8))
    layer = EdgeEmbedding(6, 10, own)
    whole = torch.cat([*layer.atoms.weight.chunk(2), own], dim=1)  # (10, 6 + 6 + 8)
    torch.testing.assert_close(whole.var(1) * 20, torch.ones(10), atol=1e-2, rtol=0)


def test_scale_factors_are_constants_and_may_be_given():
    network = network_of(scales={"atom_sum": [2.0], "output_sum": [1.0, 2.0, 3.0]})
    assert network.bases.atom.scales.tolist() == [2.0, 2.0]
    assert network.bases.output.scales.tolist() == [1.0, 2.0, 3.0]
    fixed = {name for name, p in network.named_parameters() if not p.requires_grad}
    assert fixed == {f"bases.{kind}.scales" for kind in ("triplet", "atom", "output")} | {
        f"interactions.{b}.triplet_sum" for b in (0, 1)
    }
    with pytest.raises(InputError, match="did you mean 'atom_sum'"):
        network_of(scales={"atoms_sum": [2.0]})


def test_radial_basis_and_zero_output():
    molecules = checks.molecules(4.0)
    for basis in ("gaussian", "bessel"):
        assert network_of(radial_basis=basis)(molecules).all()
        assert not network_of(radial_basis=basis, zero_output=True)(molecules).any()
        checks.check_cutoff(network_of(radial_basis=basis))
    with pytest.raises(InputError, match="unknown radial basis 'besel'; did you mean 'bessel'"):
        network_of(radial_basis="besel")


def test_activation_takes_the_place_of_the_output_blocks_alone():
    network = network_of(activation="irelu", atom_layers=3)
    assert [type(act) for act in network.outputs.acts] == [IReLU] * 7
    assert sum(isinstance(module, IReLU) for module in network.modules()) == 7


def test_published_names_of_sizes():
    theirs = build(
        "gemnet",
        emb_size_atom=16,
        emb_size_edge=12,
        emb_size_trip=8,
        emb_size_bil_trip=6,
        emb_size_rbf=4,
        emb_size_cbf=5,
        num_spherical=4,
        num_radial=8,
        num_blocks=2,
        cutoff=4.0,
    )
    shapes = {name: tensor.shape for name, tensor in network_of().state_dict().items()}
    assert shapes == {name: tensor.shape for name, tensor in theirs.state_dict().items()}
