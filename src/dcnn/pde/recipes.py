"""The recipes of a PDE network as data.

Each is a partial configuration that the user's own values go on top of. Why each choice of `best` stands here is
measured in results/pde.md. `original-bn` and `paper-bn` have BatchNorm.
"""

from __future__ import annotations

from collections.abc import Mapping
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

_FIRST = {"optimizer": "adam", "learning_rate": 2e-3, "share": 0.1}
NO_JACOBIAN = [_FIRST, {**_LBFGS, "dtype": "float64", "share": 0.9}]
_SCRIPT_PDE = {"points": _SCRIPT_POINTS, "training": _SCRIPT_TRAINING}

PDE: dict[str, dict[str, Any]] = {
    "original": {"network": {"activation": "tanh", "initialisation": "glorot"}, **_SCRIPT_PDE},
    "original-bn": {"network": {"activation": "tanh", "initialisation": "glorot", "batch_norm": True}, **_SCRIPT_PDE},
    "paper": {"network": {"activation": "irelu", "initialisation": "glorot"}, **_SCRIPT_PDE},
    "paper-bn": {"network": {"activation": "irelu", "initialisation": "glorot", "batch_norm": True}, **_SCRIPT_PDE},
    "best": {
        "network": {
            "width": 24,
            "depth": 3,
            "modes": "auto",
            "hard": "auto",
            "features": "auto",
            "scale_inputs": True,
            "scale_fields": True,
        },
        "points": {
            "interior": 1200,
            "initial": 256,
            "boundary": 256,
            "sampler": "sobol",
            "resample_every": 10,
            "grow": True,
        },
        "loss": {"weights": {"initial": 10.0, "boundary": 10.0}, "scale_terms": True},
        "training": {
            "minutes": 1.6,
            "stages": [
                {**_FIRST, "share": 0.03},
                {**_LBFGS, "dtype": "float64", "share": 0.07},
                {"optimizer": "gauss_newton", "inner_iterations": 1, "dtype": "float64", "share": 0.9},
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
    "network": {"width": 40, "depth": 4, "modes": 8, "hard": False},
    "points": {"interior": 1024, "time_windows": 20, "resample_every": 2, "grow": False},
    "loss": {"weights": {"initial": 100.0}},
    "training": {"stages": [_LBFGS]},
}
# Noise: the network adds a function of the linear evolution, its inputs, and hardly depends on the place.
_NOISE = {
    "network": {"width": 16, "modes": 1},
    "points": {"interior": 3000, "grow": False},
}
# Steep fronts: points where the residual is large, drawn anew often; fixed ones are learnt by heart.
_FRONTS = {"points": {"interior": 1500, "resample_every": 4, "adaptive": True}}
_LINE = {"points": {"interior": 300}}  # of time alone: more would only take longer
_SHAPES = ("l_shape", "annulus", "channel")  # not of the paper: its points on all walls at once are those of a box
PDE_BEST: dict[str, dict[str, Any]] = {
    "lotka_volterra": _LINE,
    "lorenz": _LINE,
    "burgers": _FRONTS,
    "allen_cahn": _FRONTS,
    "compressible": _SHOCKS,
    "diffusion_reaction": _NOISE,
    "diffusion_reaction smooth": {"points": {"interior": 1500}},  # waves that a network can represent
}


def recipe(name: str, problem: str = "", own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The partial configuration of a recipe; `best` may depend on the problem and on what the user's `own` values need.

    Gauss–Newton needs squares with fixed weights, single points and one process; otherwise L-BFGS has its share.
    """
    if name not in PDE:
        raise unknown("recipe", name, PDE)
    values: dict[str, Any] = {"kind": "pde", "recipe": name, **PDE[name]}
    if name != "best":
        return merge(values, {"points": {"shared": False}}) if problem in _SHAPES else values
    loss, network, training = ((own or {}).get(part) or {} for part in ("loss", "network", "training"))
    squares = loss.get("norm", "l2") == "l2" and loss.get("weighting", "fixed") == "fixed"
    if not squares or network.get("batch_norm") or training.get("devices", 1) != 1:
        values = merge(values, {"training": {"stages": NO_JACOBIAN}})
    start = (((own or {}).get("problem") or {}).get("parameters") or {}).get("initial")
    return merge(values, PDE_BEST.get(f"{problem} {start}", PDE_BEST.get(problem, {})))
