"""DimeNet++: what sets it apart from the other networks (the rest is in test_every_model and test_goldens)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import dcnn.testing as checks
from dcnn.activations import IReLU, SiLU
from dcnn.atoms import batch, build, energy_and_forces
from dcnn.atoms.models.dimenet import glorot_orthogonal_

SIZES = {"hidden": 16, "blocks": 2, "triplet": 8, "basis": 4, "output": 12, "n_spherical": 4, "cutoff": 4.0}


def network_of(fidelity: str = "text") -> nn.Module:
    torch.manual_seed(0)
    network = build("dimenet_plus_plus", fidelity=fidelity, **SIZES).double()
    nn.init.normal_(network.outputs.energy)
    return network


def test_scripts_detach_the_angles_and_the_text_does_not():
    molecules, text, scripts = checks.molecules(4.0), network_of(), network_of("scripts")
    scripts.load_state_dict(text.state_dict())
    (e_text, f_text), (e_scripts, f_scripts) = (energy_and_forces(n, molecules) for n in (text, scripts))
    torch.testing.assert_close(e_text, e_scripts, rtol=1e-5, atol=0)  # but for zeros rounded to float32
    assert (f_text - f_scripts).abs().max() > 0.01 * f_text.abs().max()
    checks.check_forces(text, molecules)
    with pytest.raises(AssertionError, match="forces against finite differences"):
        checks.check_forces(scripts, molecules)


def test_linear_molecules_train():
    positions = torch.tensor([[0.0, 0, 0], [1.06, 0, 0], [2.27, 0, 0], [3.33, 0, 0]], dtype=torch.float64)
    acetylene, network = batch(z=[1, 6, 6, 1], positions=positions, cutoff=4.0), network_of()
    energy, forces = energy_and_forces(network, acetylene)
    gradients = torch.autograd.grad(forces.square().sum() + energy.sum(), network.parameters())
    assert all(torch.isfinite(g).all() for g in gradients)
    assert forces[:, 1:].abs().max() < 1e-12
    checks.check_forces(network, acetylene)


def test_fresh_network_returns_zero():
    assert not build("dimenet_plus_plus", **SIZES).double()(checks.molecules(4.0)).any()


def test_glorot_orthogonal():
    torch.manual_seed(0)
    weight = torch.empty(48, 32, dtype=torch.float64)
    glorot_orthogonal_(weight)
    assert weight.var() == pytest.approx(2 / (48 + 32), rel=1e-12)
    gram = weight.T @ weight
    torch.testing.assert_close(gram, gram[0, 0] * torch.eye(32, dtype=torch.float64))


def test_activation_takes_the_place_of_the_output_blocks_alone():
    network = build("dimenet_plus_plus", activation="irelu", **SIZES)
    places = {name: type(module) for name, module in network.named_modules() if isinstance(module, (IReLU, SiLU))}
    assert {name for name, kind in places.items() if kind is IReLU} == {f"outputs.acts.{i}" for i in range(3)}
    assert sum(kind is SiLU for kind in places.values()) == 2 + 2 * (4 + 2 * 2)


def test_published_names_of_sizes():
    ours = build("dimenet_plus_plus", **SIZES)
    theirs = build(
        "dimenet_plus_plus",
        hidden_channels=16,
        num_blocks=2,
        int_emb_size=8,
        basis_emb_size=4,
        out_emb_channels=12,
        num_spherical=4,
        cutoff=4.0,
    )
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in theirs.state_dict().items()}
