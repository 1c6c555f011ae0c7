"""SchNet: its presets, the published names of its sizes and weights (PyTorch Geometric's SchNet)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from torch import Tensor

from dcnn.atoms.models.schnet import Block, SchNet
from dcnn.atoms.models.weights.mapping import Entry, count, entry, linear

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"features": 1024, "filters": 256, "blocks": 5, "gaussians": 200},
    "small": {"features": 128, "filters": 128, "blocks": 3, "gaussians": 25},
}

ALIASES = {
    "hidden_channels": "features",
    "hidden": "features",
    "num_filters": "filters",
    "num_interactions": "blocks",
    "interactions": "blocks",
    "num_gaussians": "gaussians",
}


def sizes(arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """Constructor arguments that published arrays tell by their shapes."""
    found: dict[str, Any] = {"blocks": count(arrays, "interactions.{}.lin.weight")}
    if "lin1.weight" in arrays:
        found["features"] = arrays["lin1.weight"].shape[1]
    first = arrays.get("interactions.0.mlp.0.weight", arrays.get("interactions.0.conv.nn.0.weight"))
    if first is not None:
        found["filters"], found["gaussians"] = first.shape
    if "distance_expansion.offset" in arrays:
        found["cutoff"] = float(arrays["distance_expansion.offset"][-1])
    return found


def published(network: SchNet) -> list[Entry]:
    """Our tensors under their published names (PyTorch Geometric's SchNet)."""
    bank, width = network.filters, network.filters.filters
    entries = [
        *linear("embedding", network.embedding),
        entry("distance_expansion.offset", bank.basis.centers, optional=True),
    ]
    for b, block in enumerate(cast("Iterable[Block]", network.blocks)):
        own = slice(b * width, (b + 1) * width)
        filter_tensors = {
            "0.weight": bank.weight1[:, own].T,
            "0.bias": bank.bias1[own],
            "2.weight": bank.weight2[b].T,
            "2.bias": bank.bias2[b, 0],
        }
        name = f"interactions.{b}"
        entries += [
            *(entry((f"{name}.mlp.{k}", f"{name}.conv.nn.{k}"), t) for k, t in filter_tensors.items()),
            *linear(f"{name}.conv.lin1", block.into_filters),
            *linear(f"{name}.conv.lin2", block.out_of_filters),
            *linear(f"{name}.lin", block.output),
        ]
    return [*entries, *linear("lin1", network.head[0]), *linear("lin2", network.head[2])]
