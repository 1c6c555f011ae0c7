"""The recipes of a PDE network as data.

Each is a partial configuration that the user's own values go on top of. Why each choice of `best` stands here is
measured in results/pde.md. `original-bn` and `paper-bn` have BatchNorm.
"""

from __future__ import annotations

from typing import Any

from dcnn.errors import unknown
from dcnn.train.config import merge

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


def recipe(name: str, problem: str = "") -> dict[str, Any]:
    """The partial configuration of a recipe; `best` may depend on the problem."""
    if name not in PDE:
        raise unknown("recipe", name, PDE)
    values = {"kind": "pde", "recipe": name, **PDE[name]}
    return merge(values, PDE_BEST.get(problem, {})) if name == "best" else values
