"""GemNet-T: its presets, the published names of its sizes and weights (Open Catalyst Project's GemNet-T)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from dcnn.atoms.models.gemnet import GemNetT, Interaction
from dcnn.atoms.models.gemnet_layers import Residual
from dcnn.atoms.models.weights.mapping import Entry, count, entry, linear
from dcnn.atoms.spherical import GaussianBasis

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {
        "atom": 64,
        "edge": 64,
        "triplet": 24,
        "bilinear": 24,
        "n_spherical": 5,
        "n_radial": 6,
        "radial_basis": "bessel",
        "blocks": 2,
        "after_skip": 1,
        "atom_layers": 1,
        "elements": 118,
        "zero_output": True,
        "scales": {  # fitted to this preset on ethanol and aspirin
            "triplet_product": (0.5,),
            "triplet_sum": (0.5,),
            "atom_sum": (0.12,),
            "output_sum": (0.13, 0.1),
        },
    },
}

ALIASES = {
    "num_spherical": "n_spherical",
    "spherical": "n_spherical",
    "num_radial": "n_radial",
    "radial": "n_radial",
    "num_blocks": "blocks",
    "emb_size_atom": "atom",
    "emb_size_edge": "edge",
    "emb_size_trip": "triplet",
    "trip": "triplet",
    "emb_size_rbf": "rbf",
    "emb_size_cbf": "cbf",
    "emb_size_bil_trip": "bilinear",
    "bil_trip": "bilinear",
    "num_before_skip": "before_skip",
    "num_after_skip": "after_skip",
    "num_concat": "concat",
    "num_atom": "atom_layers",
    "num_elements": "elements",
}


def sizes(arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """Constructor arguments that published arrays tell by their shapes."""
    first = "int_blocks.0"
    found = {
        "blocks": count(arrays, "int_blocks.{}.dense_ca.linear.weight"),
        "before_skip": count(arrays, first + ".layers_before_skip.{}.dense_mlp.0.linear.weight"),
        "after_skip": count(arrays, first + ".layers_after_skip.{}.dense_mlp.0.linear.weight"),
        "concat": count(arrays, first + ".residual_m.{}.dense_mlp.0.linear.weight"),
    }
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if "atom_emb.embeddings.weight" in shapes:
        found["elements"], found["atom"] = shapes["atom_emb.embeddings.weight"]
    if "mlp_cbf3.weight" in shapes:
        found["n_spherical"], found["n_radial"], found["cbf"] = shapes["mlp_cbf3.weight"]
    if "mlp_rbf3.linear.weight" in shapes:
        found["rbf"] = shapes["mlp_rbf3.linear.weight"][0]
    if f"{first}.dense_ca.linear.weight" in shapes:
        found["edge"] = shapes[f"{first}.dense_ca.linear.weight"][0]
    if f"{first}.trip_interaction.mlp_cbf.weight" in shapes:
        found["triplet"], _, found["bilinear"] = shapes[f"{first}.trip_interaction.mlp_cbf.weight"]
    layers = {int(name.split(".")[4]) for name in shapes if name.startswith(f"{first}.atom_update.layers.")}
    if layers:
        found["atom_layers"] = max(layers)
    return found


def published(network: GemNetT) -> list[Entry]:
    """Our tensors under their published names (Open Catalyst Project's GemNet-T); tied ones have two."""
    bases, out, blocks = network.bases, network.outputs, len(network.interactions)
    triplet, atom, output, angular, embedding = bases.shared.weight.split(bases.sizes)
    centers = [network.radial.gaussians.centers] if isinstance(network.radial, GaussianBasis) else []
    to_triplets, to_atoms = bases.triplet.maps.weight.chunk(blocks), bases.atom.maps.weight.chunk(blocks)
    to_outputs = bases.output.maps.weight.chunk(blocks + 1)
    entries = [
        *(entry("radial_basis.rbf.offset", each, optional=True) for each in centers),
        *(entry("cbf_basis3.radial_basis.rbf.offset", each, optional=True) for each in centers),
        entry("mlp_rbf3.linear.weight", triplet),
        entry("mlp_rbf_h.linear.weight", atom),
        entry("mlp_rbf_out.linear.weight", output),
        entry("mlp_cbf3.weight", angular.unflatten(0, (bases.cbf, -1)).permute(1, 2, 0)),
        entry("atom_emb.embeddings.weight", network.elements.weight),
        entry("edge_emb.dense.linear.weight", *network.embed.atoms.weight.chunk(2), embedding),
    ]
    for b, block in enumerate(network.interactions):
        assert isinstance(block, Interaction)
        name = f"int_blocks.{b}"
        trip = f"{name}.trip_interaction"
        (ca, ba), (up_ca, up_ac) = block.ca_ba.weight.chunk(2), block.up.weight.chunk(2)
        entries += [
            entry(f"{name}.dense_ca.linear.weight", ca),
            entry(f"{trip}.dense_ba.linear.weight", ba),
            entry(f"{trip}.mlp_rbf.linear.weight", to_triplets[b]),
            entry(f"{trip}.scale_rbf.scale_factor", bases.triplet.scales[b]),
            entry(f"{trip}.mlp_cbf.weight", block.bilinear.transpose(0, 1)),
            entry(f"{trip}.scale_cbf_sum.scale_factor", block.triplet_sum),
            entry(f"{trip}.down_projection.linear.weight", block.down.weight),
            entry(f"{trip}.up_projection_ca.linear.weight", up_ca),
            entry(f"{trip}.up_projection_ac.linear.weight", up_ac),
            entry(f"{name}.atom_update.dense_rbf.linear.weight", to_atoms[b]),
            entry(f"{name}.atom_update.scale_sum.scale_factor", bases.atom.scales[b]),
            *linear(f"{name}.atom_update.layers.0.linear", block.atom[0]),
            entry(f"{name}.concat_layer.dense.linear.weight", *block.embed.atoms.weight.chunk(2), block.own.weight),
        ]
        places = {"layers_before_skip": block.before, "layers_after_skip": block.after, "residual_m": block.last}
        for place, layers in places.items():
            entries += _residuals(f"{name}.{place}", layers)
        entries += _residuals(f"{name}.atom_update.layers", list(block.atom)[1:])
    for b in range(len(out.first)):
        name = f"out_blocks.{b}"
        entries += [
            entry(f"{name}.dense_rbf.linear.weight", to_outputs[b]),
            entry(f"{name}.scale_sum.scale_factor", bases.output.scales[b]),
            entry(_tied(name, "0.linear.weight"), out.first[b].T),
            entry(f"{name}.out_energy.linear.weight", out.energy[b].T),
        ]
        for i, hidden in enumerate(out.hidden):
            entries.append(entry(_tied(name, f"{i // 2 + 1}.dense_mlp.{i % 2}.linear.weight"), hidden[b].T))
    return entries


def _residuals(name: str, layers: Iterable[nn.Module]) -> list[Entry]:
    """The weights of residual layers under their numbers in ``layers``, among which there may be others."""
    found = []
    for i, layer in enumerate(layers):
        if isinstance(layer, Residual):
            found += linear(f"{name}.{i}.dense_mlp.0.linear", layer.layers[0])
            found += linear(f"{name}.{i}.dense_mlp.1.linear", layer.layers[2])
    return found


def _tied(block: str, layer: str) -> tuple[str, str]:
    return f"{block}.layers.{layer}", f"{block}.seq_energy.{layer}"
