"""DimeNet++: its presets, the published names of its sizes and weights (PyTorch Geometric's DimeNet++)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dcnn.atoms.models.dimenet import DimeNetPlusPlus, Interaction, Residual
from dcnn.atoms.models.weights.mapping import Entry, count, entry, linear

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {"hidden": 64, "triplet": 32, "output": 64, "n_spherical": 5, "after_skip": 1, "elements": 119},
}

ALIASES = {
    "hidden_channels": "hidden",
    "num_blocks": "blocks",
    "int_emb_size": "triplet",
    "int_emb": "triplet",
    "basis_emb_size": "basis",
    "basis_emb": "basis",
    "out_emb_channels": "output",
    "out_emb": "output",
    "num_spherical": "n_spherical",
    "spherical": "n_spherical",
    "num_radial": "n_radial",
    "radial": "n_radial",
    "num_before_skip": "before_skip",
    "num_after_skip": "after_skip",
    "num_output_layers": "output_layers",
}


def sizes(arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """Constructor arguments that published arrays tell by their shapes."""
    first, out = "interaction_blocks.0", "output_blocks.0"
    found = {
        "blocks": count(arrays, "interaction_blocks.{}.lin.weight"),
        "before_skip": count(arrays, first + ".layers_before_skip.{}.lin1.weight"),
        "after_skip": count(arrays, first + ".layers_after_skip.{}.lin1.weight"),
        "output_layers": count(arrays, out + ".lins.{}.weight"),
    }
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if "emb.emb.weight" in shapes:
        found["elements"], found["hidden"] = shapes["emb.emb.weight"]
    if f"{first}.lin_sbf2.weight" in shapes:
        found["triplet"], found["basis"] = shapes[f"{first}.lin_sbf2.weight"]
    if f"{out}.lin_up.weight" in shapes:
        found["output"] = shapes[f"{out}.lin_up.weight"][0]
    if f"{out}.lin_rbf.weight" in shapes:
        found["n_radial"] = shapes[f"{out}.lin_rbf.weight"][1]
        if f"{first}.lin_sbf1.weight" in shapes:
            found["n_spherical"] = shapes[f"{first}.lin_sbf1.weight"][1] // found["n_radial"]
    return found


def published(network: DimeNetPlusPlus) -> list[Entry]:
    """Our tensors under their published names (PyTorch Geometric's DimeNet++)."""
    zeros = torch.from_numpy(network.spherical.zeros)
    entries = [
        entry("rbf.freq", network.bessel.frequencies, optional=True),
        entry("bessel_zeros_f32", zeros, optional=True),
        *linear("emb.emb", network.embedding.elements),
        *linear("emb.lin_rbf", network.embedding.radial),
        *linear("emb.lin", network.embedding.mix),
    ]
    for b, block in enumerate(network.interactions):
        assert isinstance(block, Interaction)
        name = f"interaction_blocks.{b}"
        (ji, kj), (bias_ji, bias_kj) = block.ji_kj.weight.chunk(2), block.ji_kj.bias.chunk(2)
        entries += [
            entry(f"{name}.lin_rbf1.weight", network.radial.down[b]),
            entry(f"{name}.lin_rbf2.weight", network.radial.up[b]),
            entry(f"{name}.lin_sbf1.weight", network.angular.weight[b]),
            entry(f"{name}.lin_sbf2.weight", block.spread.T),
            entry(f"{name}.lin_ji.weight", ji),
            entry(f"{name}.lin_ji.bias", bias_ji),
            entry(f"{name}.lin_kj.weight", kj),
            entry(f"{name}.lin_kj.bias", bias_kj),
            *linear(f"{name}.lin_down", block.down),
            *linear(f"{name}.lin_up", block.up),
            *linear(f"{name}.lin", block.skip),
        ]
        for place, residuals in (("before", block.before), ("after", block.after)):
            for i, residual in enumerate(residuals):
                assert isinstance(residual, Residual)
                entries += linear(f"{name}.layers_{place}_skip.{i}.lin1", residual.layers[0])
                entries += linear(f"{name}.layers_{place}_skip.{i}.lin2", residual.layers[2])
    out = network.outputs
    for b in range(len(out.up)):
        name = f"output_blocks.{b}"
        entries += [
            entry(f"{name}.lin_rbf.weight", network.radial.output[b]),
            entry(f"{name}.lin_up.weight", out.up[b].T),
            entry(f"{name}.lin_up.bias", out.up_bias[b, 0]),
            entry(f"{name}.lin.weight", out.energy[b].T),
        ]
        for i in range(len(out.weights)):
            entries.append(entry(f"{name}.lins.{i}.weight", out.weights[i, b].T))
            entries.append(entry(f"{name}.lins.{i}.bias", out.biases[i, b, 0]))
    return entries
