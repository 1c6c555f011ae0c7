"""TensorNet: its presets and the published names of its sizes (torchmd-net)."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {"features": 128, "cutoff": 4.5},
    "small": {},
}

ALIASES = {
    "embedding_dimension": "features",
    "hidden_channels": "features",
    "num_layers": "layers",
    "num_rbf": "radial",
    "cutoff_upper": "cutoff",
    "max_z": "elements",
}
