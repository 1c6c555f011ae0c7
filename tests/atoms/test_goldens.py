"""Our networks with published weights compute what the published networks compute (tests/goldens/README.md)."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from dcnn.atoms import batch, energy_and_forces, from_reference
from dcnn.atoms.elements import continuous_table, khot_table, radii_table
from dcnn.atoms.models import weights_of
from dcnn.errors import InputError
from dcnn.testing import rotation_error

FOLDER = Path(__file__).parents[1] / "goldens"
CASES = [
    (path.stem, inputs, mode)
    for path in sorted(FOLDER.glob("*.npz"))
    for inputs in ("eth", "mgo")
    for mode in ("train", "eval")
    if f"out.{inputs}.{mode}.E.npy" in np.load(path).zip.namelist()
]


def golden(stem: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{stem}.npz") as file:
        return dict(file)


def network_of(stem: str, arrays: dict[str, np.ndarray], **options: object) -> torch.nn.Module:
    name, tag = stem.split("__")
    activation = None if tag == "orig" else "irelu"
    return from_reference(name, arrays, cutoff=4.0, activation=activation, **options)


def batch_of(arrays: dict[str, np.ndarray], inputs: str):
    values = {key: arrays.get(f"in.{inputs}.{key}") for key in ("z", "pos", "batch", "cell", "edge_index")}
    made = batch(values["z"], torch.tensor(values["pos"]), values["batch"], values["cell"], cutoff=4.0)
    assert 2 * len(made.pair_i) == values["edge_index"].shape[1]
    return made


def close(ours: torch.Tensor, reference: np.ndarray, floor: float = 0.0) -> None:
    """Agreement to 1e-8 of the reference's largest entry."""
    allowed = 1e-8 * np.abs(reference).max(initial=0.0) + floor
    np.testing.assert_allclose(ours.detach().numpy(), reference, rtol=0, atol=allowed)


@pytest.mark.parametrize(("stem", "inputs", "mode"), CASES)
def test_energies_forces_loss_and_gradients(stem, inputs, mode):
    arrays = golden(stem)
    network = network_of(stem, arrays).train(mode == "train")
    energy, forces = energy_and_forces(network, batch_of(arrays, inputs))
    close(energy, arrays[f"out.{inputs}.{mode}.E"][:, 0])
    close(forces, arrays[f"out.{inputs}.{mode}.F"])
    energy_mae = (energy - torch.tensor(arrays[f"in.{inputs}.E_label"])[:, 0]).abs().mean()
    force_mae = (forces - torch.tensor(arrays[f"in.{inputs}.F_label"])).abs().mean()
    loss = energy_mae + 30 * force_mae
    close(torch.stack([loss, energy_mae, force_mae]), arrays[f"out.{inputs}.{mode}.loss"])

    module = weights_of(stem.split("__")[0].removesuffix("_no_bn"))
    if mode == "train":
        for item in module.published(network):
            for name in item.names:
                if f"post.{inputs}.train.{name}" in arrays:
                    close(item.value(), arrays[f"post.{inputs}.train.{name}"])

    loss.backward()
    gradients = copy.deepcopy(network)
    for ours, theirs in zip(gradients.parameters(), network.parameters(), strict=True):
        ours.data = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
    prefix = f"grad.{inputs}.{mode}."
    expected = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    # a bias in front of BatchNorm has gradient 0; both sides hold rounding noise of the largest gradient there
    noise = 1e-12 * max((np.abs(value).max() for value in expected.values() if value.size), default=0.0)
    seen = set()
    for item in module.published(gradients):
        for name in set(item.names) & set(expected):
            seen.add(name)
            reference = expected[name] if expected[name].size else np.zeros(item.value().shape)
            close(item.value(), reference, floor=noise)
    assert seen == set(expected)


@pytest.mark.parametrize(
    "stem", ["schnet__orig", "cgcnn__irelu", "forcenet__orig", "dimenet_plus_plus__orig", "gemnet__irelu"]
)
def test_bare_names_and_what_a_constructor_makes_may_be_left_out(stem):
    arrays = golden(stem)
    made = ("offset", "num_batches_tracked", "bessel_zeros_f32")
    bare = {key.removeprefix("param."): value for key, value in arrays.items() if not key.endswith(made)}
    inputs = batch_of(arrays, "eth")
    torch.testing.assert_close(
        network_of(stem, bare).eval()(inputs), network_of(stem, arrays).eval()(inputs), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize(
    ("stem", "tied"), [("schnet__orig", (".mlp.", ".conv.nn.")), ("gemnet__orig", (".layers.", ".seq_energy."))]
)
@pytest.mark.parametrize("left_out", [0, 1])
def test_tied_tensors_come_under_either_name(stem, tied, left_out):
    arrays = golden(stem)
    reduced = {
        key: value
        for key, value in arrays.items()
        if not (tied[left_out] in key and key.replace(tied[left_out], tied[1 - left_out]) in arrays)
    }
    assert len(reduced) < len(arrays)
    inputs = batch_of(arrays, "eth")
    torch.testing.assert_close(network_of(stem, reduced)(inputs), network_of(stem, arrays)(inputs), rtol=0, atol=0)


def test_element_tables_are_made_where_none_are_given():
    arrays = golden("cgcnn__orig")
    without = {key: value for key, value in arrays.items() if "khot" not in key}
    inputs = batch_of(arrays, "mgo")
    ours, theirs = (network_of("cgcnn__orig", a).eval()(inputs) for a in (without, arrays))
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)  # Mg and O have the published features


def test_our_element_tables_are_the_published_ones_up_to_revised_values():
    published = golden("cgcnn__orig")["const.khot_embedding"]
    equal = (khot_table().numpy() == published).all(axis=1)
    assert equal.sum() == 81
    assert equal[[0, 5, 6, 7, 8, 13, 14, 15, 16]].all()  # H C N O F Si P S Cl
    forcenet = golden("forcenet__orig")
    radii = forcenet["param.atom_radii"]
    known = ~np.isnan(radii)
    np.testing.assert_allclose(radii_table()[known], radii[known], atol=1e-6)
    features = forcenet["param.atom_map"][:, 1:3]  # period, electronegativity
    known = ~np.isnan(features)
    assert known.sum() > 180
    np.testing.assert_allclose(continuous_table()[:, 1:3].numpy()[known], features[known], atol=1e-3)
    assert continuous_table()[1:].amin() == 0
    assert continuous_table()[1:].amax() == 1


def test_the_dtype_is_that_of_the_arrays():
    arrays = {key: value.astype(np.float32) for key, value in golden("schnet__orig").items() if "param" in key}
    assert {p.dtype for p in network_of("schnet__orig", arrays).parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("lin2.bias"), "1 missing, first 'lin2.bias'"),
        (lambda a: a.update({"lin3.bias": a["lin2.bias"]}), r"without a place, first 'lin3.bias' \(did you mean"),
        (lambda a: a.update({"lin2.bias": np.zeros(3)}), r"lin2.bias has shape \(3,\), the network expects \(1,\)"),
    ],
)
def test_wrong_arrays_are_named(change, message):
    arrays = golden("schnet__orig")
    bare = {key.removeprefix("param."): value for key, value in arrays.items() if key.startswith("param.")}
    change(bare)
    with pytest.raises(InputError, match=message):
        from_reference("schnet", bare)


def test_forcenet_with_published_weights_depends_on_the_orientation():
    """Energies spread 3.4 times as much over rotations as over the four ethanols; SchNet's do not change."""
    arrays = golden("forcenet_no_bn__orig")
    inputs = batch_of(arrays, "eth")
    assert rotation_error(network_of("forcenet_no_bn__orig", arrays), inputs) == pytest.approx(3.44, rel=0.05)
    assert rotation_error(network_of("schnet__orig", golden("schnet__orig")), inputs) < 1e-10


def test_unknown_reference():
    with pytest.raises(InputError, match="did you mean 'cgcnn_no_bn'"):
        from_reference("cgcnn_nobn", {})
