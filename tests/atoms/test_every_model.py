"""One suite over all networks: the checks of `dcnn.testing`, sizes, options and messages."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import dcnn.testing as checks
from dcnn.atoms import Structure, batch, build, energy_and_forces, energy_forces_stress
from dcnn.atoms.atoms_batch import sum_by
from dcnn.atoms.batching import shared_radius
from dcnn.atoms.frame_arrays import FrameArrays
from dcnn.atoms.models import NAMES
from dcnn.errors import InputError

CUTOFF = 3.5
NETWORKS: dict[str, dict[str, object]] = {name: {} for name in NAMES} | {
    "cgcnn normalized": {"normalization": True, "readout": "mean"},
    "cgcnn layer_norm": {"layer_norm": True},
    "forcenet normalized": {"normalization": True},
    "schnet irelu": {"activation": "irelu"},
    "forcenet irelu": {"activation": "irelu"},
    "tensornet unnormalized": {"normalization": False},
}
PARAMETERS = {
    "schnet": 9_088_513,
    "cgcnn": 3_611_649,
    "dimenet_plus_plus": 1_810_182,
    "forcenet": 11_903_251,
    "gemnet": 24_296_973,
    "tensornet": 766_337,
}


def size(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> nn.Module:
    """A small network with weights that are nowhere zero."""
    torch.manual_seed(0)
    name, options = request.param, NETWORKS[request.param]
    network = build(name.split()[0], cutoff=CUTOFF, **options)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad and not parameter.any():  # zero biases and output layers hide mistakes
                parameter.normal_(std=0.2)
    return network


@pytest.fixture(scope="module")
def molecules():
    return checks.molecules(CUTOFF)


@pytest.fixture(scope="module")
def crystal():
    return checks.crystal(CUTOFF)


@pytest.mark.parametrize("structure", ["molecules", "crystal"])
def test_forces_are_the_gradient_of_the_energy(network, structure, request):
    checks.check_forces(network, request.getfixturevalue(structure), tolerance=1e-6)


@pytest.mark.parametrize("check", [checks.check_permutation, checks.check_translation, checks.check_batch])
@pytest.mark.parametrize("structure", ["molecules", "crystal"])
def test_symmetries(network, check, structure, request):
    check(network, request.getfixturevalue(structure))


def test_stress(network, crystal):
    checks.check_stress(network, crystal, tolerance=1e-6)


def test_rotation(network, molecules, crystal):
    if type(network).__name__ == "ForceNet":
        with pytest.raises(AssertionError, match="rotation"):
            checks.check_rotation(network, molecules)
        return
    checks.check_rotation(network, molecules)
    checks.check_rotation(network, crystal)


def test_periodic_images(network, crystal):
    extensive = type(network).__name__ != "ForceNet" and getattr(network, "readout", "sum") == "sum"
    checks.check_periodic_images(network, crystal, extensive=extensive)


def test_nothing_jumps_at_the_cutoff(network):
    checks.check_cutoff(network)


def test_isolated_and_coincident_atoms(network):
    checks.check_isolated_atom(network)
    checks.check_coincident_atoms(network)


def test_state_dict_and_precision(network, molecules):
    checks.check_state_dict(network, molecules)
    checks.check_precision(network, molecules)


@pytest.mark.parametrize("training", [False, True])
def test_a_longer_pair_list_changes_nothing(network, molecules, training):
    longer = checks.molecules(CUTOFF + 1.0)
    assert len(longer.pair_i) > len(molecules.pair_i)
    double = copy.deepcopy(network).double().train(training)
    with torch.no_grad():
        for ours, theirs in zip(energy_and_forces(double, molecules), energy_and_forces(double, longer), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_a_shorter_pair_list_is_refused(network):
    with pytest.raises(InputError, match=r"up to 3 Å .* cutoff=3.5"):
        network(checks.molecules(3.0).to(dtype=torch.float32))


def test_forces_can_be_trained_and_are_detached_without_gradients(network, molecules):
    single = molecules.to(dtype=torch.float32)
    energy, forces = energy_and_forces(network.eval(), single)
    assert energy.requires_grad
    assert forces.requires_grad
    trainable = [p for p in network.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(forces.square().sum(), trainable, allow_unused=True)
    reached = sum(g is not None and bool(g.any()) for g in gradients)
    assert reached >= 0.8 * len(trainable)
    with torch.no_grad():
        energy, forces = energy_and_forces(network, single)
    assert not energy.requires_grad
    assert not forces.requires_grad


@pytest.mark.parametrize("name", NAMES)
def test_sizes(name):
    assert 100_000 <= size(build(name)) <= 400_000
    with torch.device("meta"):
        paper = build(name, preset="paper")
    assert size(paper) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "schnett"}, "did you mean 'schnet'"),
        ({"name": "schnet", "preset": "papers"}, "unknown preset 'papers'; did you mean 'paper'"),
        ({"name": "schnet", "fidelity": "code"}, "unknown fidelity 'code'"),
        ({"name": "schnet", "hiden_channels": 3}, "did you mean 'hidden_channels'"),
        ({"name": "schnet", "features": 3, "hidden": 4}, "features is given twice, as 3 and as hidden=4"),
        ({"name": "schnet", "gaussians": 1}, "at least 2 centres, got 1"),
        ({"name": "cgcnn", "readout": "max"}, "unknown readout 'max'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        build(**options)


def test_published_and_own_names_of_options_agree():
    assert size(build("cgcnn", atom_embedding_size=24, fc=16)) == size(build("cgcnn", features=24, head_features=16))


@pytest.mark.parametrize("name", NAMES)
def test_an_element_beyond_the_table_is_named(name):
    network = build(name, preset="small", **({"elements": 83} if name in ("gemnet", "dimenet_plus_plus") else {}))
    with pytest.raises(InputError, match="holds an atom with Z = 118, the network knows elements up to Z ="):
        network(batch(z=[1, 118], positions=[[0.0, 0, 0], [0, 0, 2.0]]))


class Sharp(nn.Module):
    """A pair energy that does not end at the cutoff by itself."""

    cutoff = 3.0

    def forward(self, batch):
        pairs = batch.pair_vectors().square().sum(1)
        return sum_by(batch.system[batch.pair_i], pairs, batch.n_systems)


def test_pairs_are_listed_beyond_the_cutoff_only_where_that_changes_nothing():
    first = checks.molecules(CUTOFF)
    frames = [FrameArrays.of([Structure(first.z[:9].numpy(), first.positions[:9].numpy())])]
    assert shared_radius(frames, build("schnet", cutoff=3.0)) == pytest.approx(4.3, abs=0.5)
    assert shared_radius(frames, build("cgcnn", cutoff=3.0, normalization=True)) > 3.5
    assert shared_radius(frames, Sharp()) == 3.0


def test_in_a_mixed_batch_crystals_have_their_stress_and_molecules_none(molecules, crystal):
    torch.manual_seed(0)
    network = build("schnet", cutoff=CUTOFF).double()
    pbc = torch.tensor([[False] * 3, [True] * 3, [True, True, False]])
    cell = torch.cat([torch.zeros(1, 3, 3), crystal.cell, crystal.cell])
    water = molecules.system == 1
    mixed = batch(
        z=torch.cat([molecules.z[water], crystal.z, crystal.z]),
        positions=torch.cat([molecules.positions[water], crystal.positions, crystal.positions]),
        system=torch.tensor([0] * 3 + [1] * 4 + [2] * 4),
        cell=cell,
        pbc=pbc,
        cutoff=CUTOFF,
    )
    energy, forces, stress = energy_forces_stress(network, mixed)
    _, pushed, expected = energy_forces_stress(network, crystal)
    torch.testing.assert_close(stress[1:2], expected)
    torch.testing.assert_close(forces[3:7], pushed)
    assert stress[[0, 2]].isnan().all()
    gradients = torch.autograd.grad(stress[1].square().sum() + energy.sum(), network.parameters(), allow_unused=True)
    assert all(g is None or g.isfinite().all() for g in gradients)


def test_stress_needs_a_cell(molecules):
    with pytest.raises(InputError, match="stress needs a cell"):
        energy_forces_stress(build("schnet", cutoff=CUTOFF).double(), molecules)


def test_zero_forces_cannot_pass_for_right_ones(molecules):
    network = build("schnet", cutoff=CUTOFF)
    nn.init.zeros_(network.head[2].weight)
    with pytest.raises(AssertionError, match="all zero"):
        checks.check_forces(network, molecules)


class Broken(nn.Module):
    """Energies that depend on the lab frame, on the order of atoms and on a detached distance."""

    cutoff = CUTOFF

    def forward(self, batch):
        distance = batch.pair_vectors().norm(dim=-1)
        per_pair = distance * distance.detach() + batch.pair_vectors()[:, 0] + 1e-3 * batch.pair_i
        energy = torch.zeros(batch.n_systems, dtype=distance.dtype)
        return energy.index_add(0, batch.system[batch.pair_i], per_pair)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda n, m, c: checks.check_forces(n, m), "forces against finite differences"),
        (lambda n, m, c: checks.check_stress(n, c), "stress against strain"),
        (lambda n, m, c: checks.check_permutation(n, m), "permutation"),
        (lambda n, m, c: checks.check_rotation(n, m), "rotation"),
        (lambda n, m, c: checks.check_batch(n, m), "batch against single"),
        (lambda n, m, c: checks.check_cutoff(n), "jump at the cutoff"),
    ],
)
def test_the_checks_find_a_broken_network(check, message, molecules, crystal):
    with pytest.raises(AssertionError, match=message):
        check(Broken(), molecules, crystal)


def test_check_potential_runs_everything():
    torch.manual_seed(0)
    errors = checks.check_potential(build("schnet", features=16, filters=16, blocks=1, gaussians=10, cutoff=3.0))
    assert set(errors) >= {"forces", "stress", "rotation", "cutoff", "precision"}
    assert max(errors[name] for name in ("permutation", "translation", "rotation", "batch")) < 1e-10


def test_forcenet_depends_on_the_orientation_by_more_than_on_the_geometry():
    """Its energy spreads 2.1 to 4.2 times as much over rotations as over displaced ethanols of one orientation."""
    torch.manual_seed(0)
    first = checks.molecules(seed=0)
    ethanol = first.system == 0
    frames = [checks.molecules(seed=seed).positions[ethanol] for seed in range(8)]
    z, system = first.z[ethanol].repeat(8), torch.arange(8).repeat_interleave(9)
    many = batch(z=z, positions=torch.cat(frames), system=system)
    assert checks.rotation_error(build("forcenet"), many) > 1.5
    assert checks.rotation_error(build("schnet"), many) < 1e-10


def test_readout_sum_is_extensive_and_mean_is_not():
    positions = np.array([[0.0, 0, 0], [1.0, 0, 0], [50.0, 0, 0], [51.0, 0, 0]])
    pair = batch(z=[8, 1], positions=positions[:2])
    both = batch(z=[8, 1, 8, 1], positions=positions)
    torch.manual_seed(0)
    for readout, factor in (("sum", 2.0), ("mean", 1.0)):
        network = build("cgcnn", readout=readout).double()
        torch.testing.assert_close(network(both), factor * network(pair), rtol=1e-12, atol=1e-12)


def test_normalization_can_be_left_out_or_kept():
    kinds = (nn.BatchNorm1d, nn.LayerNorm)

    def found(**options):
        return {type(m).__name__ for m in build("cgcnn", **options).modules() if isinstance(m, kinds)}

    assert found(preset="paper", features=8) == {"BatchNorm1d", "LayerNorm"}
    assert found(normalization=False) == set()
    assert found(normalization=False, fidelity="scripts") == {"LayerNorm"}  # as the scripts' no_bn variant
    assert found(normalization=True) == {"BatchNorm1d", "LayerNorm"}
