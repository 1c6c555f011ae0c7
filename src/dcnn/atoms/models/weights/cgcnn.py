"""CGCNN: its presets, the published names of its sizes and weights (Open Catalyst Project's CGCNN)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from torch import Tensor, nn

from dcnn.atoms.models.cgcnn import CGCNN, Convolution
from dcnn.atoms.models.weights.mapping import Entry, count, entry, linear

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "features": 512,
        "convolutions": 3,
        "head_features": 128,
        "head_layers": 3,
        "gaussians": 100,
        "normalization": True,
        "readout": "mean",
    },
    "small": {
        "features": 96,
        "convolutions": 3,
        "head_features": 96,
        "head_layers": 2,
        "gaussians": 50,
        "normalization": False,
        "readout": "sum",
    },
}

ALIASES = {
    "atom_embedding_size": "features",
    "atom_embedding": "features",
    "num_graph_conv_layers": "convolutions",
    "conv_layers": "convolutions",
    "fc_feat_size": "head_features",
    "fc": "head_features",
    "num_fc_layers": "head_layers",
    "fc_layers": "head_layers",
    "num_gaussians": "gaussians",
    "bond_feat_dim": "gaussians",
    "bond_features": "gaussians",
}


def sizes(arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """Constructor arguments that published arrays tell by their shapes."""
    found: dict[str, Any] = {
        "convolutions": count(arrays, "convs.{}.lin1.weight"),
        "head_layers": 1 + sum(name.startswith("fcs.") and name.endswith(".weight") for name in arrays),
    }
    if "conv_to_fc.0.weight" in arrays:
        found["head_features"], found["features"] = arrays["conv_to_fc.0.weight"].shape
    if found["convolutions"]:
        wide, columns = arrays["convs.0.lin1.weight"].shape
        found["gaussians"] = columns - wide
    if "distance_expansion.offset" in arrays:
        found["cutoff"] = float(arrays["distance_expansion.offset"][-1])
    return found


def published(network: CGCNN) -> list[Entry]:
    """Our tensors under their published names (Open Catalyst Project's CGCNN)."""
    entries = [
        entry(("khot_embedding", "embedding"), network.elements, optional=True),
        entry("distance_expansion.offset", network.basis.centers, optional=True),
        *linear("embedding_fc", network.embedding),
    ]
    shares = zip(
        cast("Iterable[Convolution]", network.convolutions),
        network.pairs.weight.chunk(len(network.convolutions)),
        network.pairs.bias.chunk(len(network.convolutions)),
        strict=True,
    )
    for b, (block, weight, bias) in enumerate(shares):
        entries += [
            entry(f"convs.{b}.lin1.weight", *block.atoms.weight.chunk(2), weight),
            entry(f"convs.{b}.lin1.bias", bias),
            *linear(f"convs.{b}.bn1", block.batch_norm),
            *linear(f"convs.{b}.ln1", block.layer_norm),
        ]
    first, *rest, last = (layer for layer in network.head if isinstance(layer, nn.Linear))
    entries += linear("conv_to_fc.0", first)
    for number, layer in enumerate(rest):
        entries += linear(f"fcs.{2 * number}", layer)
    return [*entries, *linear("fc_out", last)]
