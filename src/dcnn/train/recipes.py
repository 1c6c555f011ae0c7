"""The recipes as data: what `original`, `paper` and `best` mean, for potentials and for PDE networks.

Each is a partial configuration that the user's own values go on top of. Why each choice of `best` stands here is
measured in results/atoms.md and results/pde.md. The others vary one thing, as the paper's ablations do: `irelu` is
`original` with IReLU, `rescaled` is `paper` without it, `original-bn` and `paper-bn` have BatchNorm in a PDE network.
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
_BEST_ADAM = {"optimizer": "adam", "learning_rate": 1e-3, "warmup": 0.02, "clip_norm": 10.0}

ATOMS: dict[str, dict[str, Any]] = {
    "original": _RAW,
    "paper": {"model": {"activation": "irelu", "normalization": False}, **_RESCALED},
    "irelu": {"model": {"activation": "irelu"}, **_RAW},
    "rescaled": {"model": {"normalization": False}, **_RESCALED},
    "best": {
        "model": {"normalization": False},
        "scale": {"references": "elements", "unit": "force_rms"},
        "loss": {
            "energy": {"weight": 1.0, "norm": "l2"},
            "forces": {"weight": 1.0, "norm": "l1"},
            "energy_per_atom": True,
        },
        "training": {
            "minutes": 10.0,
            "batch_size": 5,
            "stages": [_BEST_ADAM],
            "ema": 0.999,
            "step": "auto",
        },
    },
}

#: What `best` changes for one network: what it wins with (results/atoms.md).
ATOMS_BEST: dict[str, dict[str, Any]] = {
    "schnet": {
        "model": {"activation": "silu"},
        "training": {"stages": [{**_BEST_ADAM, "learning_rate": 2e-3}], "ema": 0.9995},
    },
    "cgcnn": {
        "model": {"overrides": {"layer_norm": True}},
        "loss": {"forces": {"norm": "l2"}},
        "training": {"stages": [{**_BEST_ADAM, "learning_rate": 3e-3}]},
    },
}

_SCRIPT_POINTS = {"interior": 1000, "boundary": 1000, "initial": 5000, "sampler": "hammersley", "shared": True}
_SCRIPT_TRAINING = {
    "minutes": 1.6,  # the scripts take 15,000 steps (diffusion-reaction: 100)
    "stages": [{"optimizer": "adam", "learning_rate": 1e-3, "schedule": "constant"}],
    "select": "last",
}
_LBFGS = {"optimizer": "lbfgs", "learning_rate": 1.0, "inner_iterations": 20}

_SCRIPT_PDE = {"points": _SCRIPT_POINTS, "training": _SCRIPT_TRAINING}

PDE: dict[str, dict[str, Any]] = {
    "original": {"network": {"activation": "tanh", "initialisation": "glorot"}, **_SCRIPT_PDE},
    "original-bn": {"network": {"activation": "tanh", "initialisation": "glorot", "batch_norm": True}, **_SCRIPT_PDE},
    "paper": {"network": {"activation": "irelu", "initialisation": "glorot"}, **_SCRIPT_PDE},
    "paper-bn": {"network": {"activation": "irelu", "initialisation": "glorot", "batch_norm": True}, **_SCRIPT_PDE},
    "best": {
        "network": {
            "depth": 4,
            "modes": "auto",
            "hard": "auto",
            "features": "auto",
            "scale_inputs": True,
            "scale_fields": True,
        },
        "points": {"interior": 1024, "initial": 256, "boundary": 256, "sampler": "sobol", "resample_every": 10},
        "loss": {"weights": {"initial": 10.0, "boundary": 10.0, "data": 10.0}, "scale_terms": True},
        "training": {
            "minutes": 1.6,
            "stages": [
                {"optimizer": "adam", "learning_rate": 2e-3, "share": 0.1},
                {**_LBFGS, "dtype": "float64", "share": 0.9},
            ],
            "select": "last",
        },
        "steps_per_epoch": 20,
    },
}

# Shocks: many short windows of time, in each of which L-BFGS starts from the window before; a viscosity that spreads
# a shock over a few hundredths of the domain; new points often, as a spurious solution fits between fixed ones.
_SHOCKS = {
    "problem": {"regularise": {"eta": 0.05}},
    "network": {"modes": 8, "hard": False},
    "points": {"time_windows": 20, "resample_every": 2},
    "loss": {"weights": {"initial": 100.0}},
    "training": {"stages": [_LBFGS]},
}
# Noise is gone in a hundredth of the time: logarithmic time, and fixed points, as new ones disturb L-BFGS here.
_NOISE = {
    "network": {"transient": 0.02},
    "points": {"interior": 2048, "resample_every": None},
    "training": {"stages": [_LBFGS]},
}
PDE_BEST: dict[str, dict[str, Any]] = {"compressible": _SHOCKS, "diffusion_reaction": _NOISE}


def recipe(kind: str, name: str, subject: str = "") -> dict[str, Any]:
    """The partial configuration of a recipe for `kind` "atoms" or "pde"; it may depend on the network or problem."""
    table = ATOMS if kind == "atoms" else PDE
    if name not in table:
        raise unknown("recipe", name, table)
    values = {"kind": kind, "recipe": name, **table[name]}
    special = ATOMS_BEST if kind == "atoms" else PDE_BEST
    if name == "best" and subject in special:
        values = merge(values, special[subject])
    return values
