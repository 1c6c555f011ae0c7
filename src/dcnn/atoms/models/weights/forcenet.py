"""ForceNet: its presets, the published names of its sizes and weights (Open Catalyst Project, the paper's head)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from torch import Tensor

from dcnn.atoms.models.forcenet import PLACES, Block, ForceNet
from dcnn.atoms.models.weights.mapping import Entry, count, entry, linear

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"features": 512, "blocks": 5, "gaussians": 50, "head_features": 512, "normalization": True},
    "small": {"features": 96, "blocks": 3, "gaussians": 24, "head_features": 96, "normalization": False},
}

ALIASES = {
    "hidden_channels": "features",
    "hidden": "features",
    "num_interactions": "blocks",
    "interactions": "blocks",
    "num_freqs": "gaussians",
    "freqs": "gaussians",
    "decoder_hidden_channels": "head_features",
    "decoder_hidden": "head_features",
}


def sizes(arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """Constructor arguments that published arrays tell by their shapes."""
    found: dict[str, Any] = {"blocks": count(arrays, "interactions.{}.lin.weight")}
    if "lin.weight" in arrays:
        found["head_features"], found["features"] = arrays["lin.weight"].shape
    if found["blocks"]:
        found["gaussians"] = arrays["interactions.0.lin_basis.weight"].shape[1] // PLACES
        linears = sum(arrays[name].dim() == 2 for name in arrays if name.startswith("interactions.0.mlp_trans."))
        found["keep_output"] = linears == 2
    return found


def published(network: ForceNet) -> list[Entry]:
    """Our tensors under their published names (Open Catalyst Project's ForceNet, the paper's energy head)."""
    entries = [
        entry("atom_radii", network.radii, optional=True),
        entry("atom_map", network.elements, optional=True),
        entry("embedding.0.smearing.offset", network.element_basis.centers, optional=True),
        *linear("embedding.1", network.embedding),
        entry("basis_fun.smearing.offset", network.edge_basis.centers, optional=True),
    ]
    for b, block in enumerate(cast("Iterable[Block]", network.blocks)):
        name = f"interactions.{b}"
        entries += [
            entry(f"{name}.center_W", block.self_weight),
            *linear(f"{name}.lin_basis", block.basis),
            entry(f"{name}.mlp_edge.0.weight", block.pair.weight, *block.ends.weight.chunk(2)),
            entry(f"{name}.mlp_edge.0.bias", block.pair.bias),
            *linear(f"{name}.mlp_edge.2", block.edge[1]),
            *linear(f"{name}.mlp_edge.4", block.edge[3]),
            *linear(f"{name}.lin", block.value),
        ]
        for number, layer in enumerate(block.atom):
            entries += linear(f"{name}.mlp_trans.{number}", layer)
    return [*entries, *linear("lin", network.head[0]), *linear("energy_mlp", network.energy)]
