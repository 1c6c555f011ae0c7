"""The recipes of a potential as data.

Each is a partial configuration that the user's own values go on top of. Why each choice of `best` stands here is
measured in results/atoms.md. `standard` is what an ordinary trainer does today, with the network as published: the
mean energy is removed, squared errors with schnetpack's weight of the forces (0.99), Adam whose rate halves on a
plateau; it makes its steps as fast as `best` does, so that only the recipe differs. Two vary one thing,
as the paper's ablations do: `irelu` is `original` with IReLU, `rescaled` is `paper` without it.
"""

from __future__ import annotations

from typing import Any

from dcnn.errors import unknown
from dcnn.train.config import merge

_SCRIPT_LOSS = {"energy": {"weight": 1.0, "norm": "l1"}, "forces": {"weight": 30.0, "norm": "l1"}}
_SCRIPT_ADAM = {"optimizer": "adam", "learning_rate": 1e-4, "schedule": "constant"}

_SCRIPT_BUDGET = {"epochs": 50, "batch_size": 20, "stages": [_SCRIPT_ADAM], "select": "last"}
_RAW = {"scale": {"references": None, "unit": 1.0}, "loss": _SCRIPT_LOSS, "training": _SCRIPT_BUDGET}
_RESCALED = {"scale": {"references": None, "unit": "power_of_ten"}, "loss": _SCRIPT_LOSS, "training": _SCRIPT_BUDGET}
_SOAP = {"optimizer": "soap", "learning_rate": 3e-3, "warmup": 0.02, "clip_norm": 10.0}

ATOMS: dict[str, dict[str, Any]] = {
    "original": _RAW,
    "paper": {"model": {"activation": "irelu", "normalization": False}, **_RESCALED},
    "irelu": {"model": {"activation": "irelu"}, **_RAW},
    "rescaled": {"model": {"normalization": False}, **_RESCALED},
    "standard": {
        "scale": {"references": "mean", "unit": 1.0},
        "loss": {"energy": {"weight": 0.01, "norm": "l2"}, "forces": {"weight": 0.99, "norm": "l2"}},
        "training": {
            "minutes": 10.0,
            "batch_size": 10,
            "stages": [{"optimizer": "adam", "learning_rate": 5e-4, "schedule": "plateau", "final": 1e-3}],
            "step": "auto",
        },
    },
    "best": {
        "model": {"normalization": False},
        "scale": {"references": "elements", "unit": "force_rms"},
        "loss": {
            "energy": {"weight": 1.0, "norm": "l2"},
            "forces": {"weight": 1.0, "norm": "length"},
            "energy_per_atom": True,
        },
        "training": {
            "minutes": 10.0,
            "batch_size": 10,
            "stages": [_SOAP],
            "ema": 0.999,
            "step": "auto",
        },
    },
}

#: What `best` changes for one network: what it wins with (results/atoms.md).
ATOMS_BEST: dict[str, dict[str, Any]] = {
    "schnet": {"model": {"activation": "silu"}, "training": {"batch_size": 20, "ema": 0.9995}},
    "cgcnn": {
        "model": {"overrides": {"layer_norm": True}},
        "loss": {"forces": {"norm": "l2"}},
        "training": {"batch_size": 5},
    },
    "dimenet_plus_plus": {"loss": {"forces": {"norm": "l1"}}, "training": {"batch_size": 5}},
    "tensornet": {"model": {"normalization": True}, "training": {"batch_size": "auto"}},
}


def recipe(name: str, network: str = "") -> dict[str, Any]:
    """The partial configuration of a recipe; `best` may depend on the network."""
    if name not in ATOMS:
        raise unknown("recipe", name, ATOMS)
    values = {"kind": "atoms", "recipe": name, **ATOMS[name]}
    return merge(values, ATOMS_BEST.get(network, {})) if name == "best" else values
