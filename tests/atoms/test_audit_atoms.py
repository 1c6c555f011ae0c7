"""The audit on batches of atoms: it finds the published networks' faults, measured, and none in SchNet."""

import pytest
import torch

import dcnn
import dcnn.testing as checks
from dcnn.atoms import Batcher, build, demo_dataset

CUTOFF = 5.0
SIZES = {
    "schnet": {"features": 16, "filters": 16, "blocks": 2, "gaussians": 10},
    "cgcnn": {"features": 16, "convolutions": 2, "head_features": 16, "gaussians": 10},
    "dimenet_plus_plus": {"hidden": 16, "triplet": 8, "basis": 4, "output": 16, "blocks": 1},
    "forcenet": {"features": 16, "blocks": 1, "gaussians": 8, "head_features": 16},
}


@pytest.fixture(scope="module")
def ethanol():
    return Batcher(demo_dataset(), CUTOFF)(range(6))


def network(name, **options):
    torch.manual_seed(0)
    made = build(name, cutoff=CUTOFF, **SIZES[name], **options)
    with torch.no_grad():
        for parameter in made.parameters():
            if not parameter.any():  # DimeNet++ starts with an energy of zero
                parameter.normal_(std=0.2)
    return made


@pytest.mark.parametrize(
    ("name", "options", "code", "number", "least"),
    [
        ("cgcnn", {"normalization": True}, "DC202", "cross_sample_share", 0.01),
        ("forcenet", {"normalization": True}, "DC202", "cross_sample_share", 0.01),
        ("cgcnn", {"fidelity": "scripts"}, "DC601", "value", 1e-3),
        ("forcenet", {"fidelity": "scripts"}, "DC601", "derivative", 1e-3),
        ("dimenet_plus_plus", {"fidelity": "scripts"}, "DC301", "relative_difference", 1e-3),
        ("forcenet", {}, "DC701", "change", 1e-3),
        ("schnet", {"activation": "relu"}, "DC101", "vanishing_order", 2),
    ],
)
def test_the_fault_is_found_and_measured(ethanol, name, options, code, number, least):
    found = {finding.code: finding for finding in dcnn.audit(network(name, **options), ethanol)}
    assert found[code].numbers[number] >= least


@pytest.mark.parametrize(
    ("name", "options", "absent"),
    [
        ("schnet", {}, {"DC101", "DC102", "DC201", "DC202", "DC301", "DC302", "DC601", "DC701", "DC901"}),
        ("cgcnn", {"normalization": False}, {"DC201", "DC202", "DC301", "DC601", "DC701"}),
        ("dimenet_plus_plus", {}, {"DC202", "DC301", "DC601", "DC701"}),
        ("forcenet", {"normalization": False}, {"DC202", "DC301", "DC601"}),
    ],
)
def test_nothing_is_found_where_nothing_is_wrong(ethanol, name, options, absent):
    assert not absent & set(dcnn.audit(network(name, **options), ethanol).codes)


def test_coupling_is_that_of_two_molecules_measured_by_hand(ethanol):
    """‖Σ_{b≠a} ∂E_b/∂x_a‖ / ‖∂E_a/∂x_a‖ over the first four molecules a, in training mode."""
    coupled = network("cgcnn", normalization=True)
    share = next(f for f in dcnn.audit(coupled, ethanol) if f.code == "DC202").numbers["cross_sample_share"]
    double, batch = coupled.double().train(), ethanol.to(dtype=torch.float64)
    x = batch.positions.requires_grad_()
    energies = double(batch)
    jacobian = torch.stack([torch.autograd.grad(e, x, retain_graph=True)[0] for e in energies])  # (B, N, 3)
    own = others = 0.0
    for a in range(4):
        rows = jacobian[:, batch.system == a]
        own += float(rows[a].square().sum())
        others += float((rows.sum(0) - rows[a]).square().sum())
    assert share == pytest.approx((others / own) ** 0.5, rel=1e-8)


def test_crystals_are_audited_too():
    report = dcnn.audit(network("schnet"), checks.crystal(CUTOFF))
    assert not {"DC301", "DC701"} & set(report.codes)
    assert report.layers
