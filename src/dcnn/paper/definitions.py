"""Every table and figure of the paper as data: networks, recipes, molecules, what is varied, what is claimed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dcnn.atoms.models import PAPER as NETWORKS
from dcnn.errors import unknown
from dcnn.paper.published import numbers

SCALES = ("smoke", "small", "long", "paper")
MOLECULES: tuple[str, ...] = tuple(numbers()["molecules"])


def _by_scale(small: tuple[str, ...], paper: tuple[str, ...] = MOLECULES) -> dict[str, tuple[str, ...]]:
    """Molecules at each scale; the frames of the package are of ethanol."""
    return {"smoke": ("ethanol",), "small": small, "long": small, "paper": paper}


_TWO = _by_scale(("ethanol", "aspirin"))


@dataclass(frozen=True)
class Varied:
    """One number of the configuration that is varied, and its values at each scale."""

    label: str
    key: str
    values: Mapping[str, tuple[float, ...]]
    axis: str


@dataclass(frozen=True)
class Experiment:
    """A table or figure. The first recipe is what the others are compared with; `minutes` is a cell's budget at small.

    Potentials have `models` and `molecules` (by scale); PDEs have a `problem` and the terms of our loss, by fidelity,
    that make up each of the paper's (empty: the paper has a term that the right equations do not need).
    """

    name: str
    title: str
    claim: str
    kind: Literal["molecules", "oxides", "pde"]
    recipes: tuple[str, ...]
    minutes: float
    models: tuple[str, ...] = ()
    molecules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    varied: Varied | None = None
    problem: str = ""
    steps: int = 0
    terms: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


def _terms(**columns: tuple[tuple[str, ...], str]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Column → our terms with the right equations, and the one term of the scripts."""
    return {name: {"text": text, "scripts": (scripts,)} for name, (text, scripts) in columns.items()}


_BETAS = tuple(float(beta) for beta in numbers()["fig1"]["betas"])
_METHODS = ("original", "original-bn", "paper", "paper-bn")

_ALL = (
    Experiment(
        "fig1",
        "Figure 1: the weight of the forces, SchNet",
        "Energy errors divided by 1,000 stay below force errors for every β: derivatives are harder to learn.",
        "molecules",
        ("original",),
        minutes=3.0,
        models=("schnet",),
        molecules=_by_scale(("aspirin",), ("aspirin",)),
        varied=Varied("beta", "loss.forces.weight", dict.fromkeys(SCALES, _BETAS), "weight of the forces β"),
    ),
    Experiment(
        "table1",
        "Table 1: original settings against the paper's method, MD17",
        "The method lowers energy errors in 38 of 40 cases, and force errors of CGCNN, DimeNet++ and ForceNet.",
        "molecules",
        ("original", "paper"),
        minutes=1.25,
        models=NETWORKS,
        molecules=_by_scale(("ethanol", "aspirin", "benzene", "uracil")),
    ),
    Experiment(
        "table2",
        "Table 2: original settings against the paper's method, OC22",
        "The method lowers force errors of CGCNN, DimeNet++ and ForceNet, and raises those of SchNet.",
        "oxides",
        ("original", "paper"),
        minutes=3.0,
        models=("schnet", "cgcnn", "dimenet_plus_plus", "forcenet"),
    ),
    Experiment(
        "table3",
        "Table 3: advection",
        "IReLU without BatchNorm has the lowest error (0.99); BatchNorm makes it worse.",
        "pde",
        _METHODS,
        minutes=3.0,
        problem="advection",
        steps=15_000,
        terms=_terms(f=(("advection",), "f"), ic=(("initial_u",), "ic"), bc=(("periodic_u",), "bc")),
    ),
    Experiment(
        "table4",
        "Table 4: compressible flow",
        "IReLU without BatchNorm has the lowest error (0.40) and the lowest of every loss term.",
        "pde",
        _METHODS,
        minutes=3.0,
        problem="compressible",
        steps=15_000,
        terms=_terms(
            f=(("mass", "momentum", "energy"), "f"),
            ic_p=(("initial_p",), "ic_data_p"),
            ic_d=(("initial_rho",), "ic_data_d"),
            ic_v=(("initial_v",), "ic_data_v"),
            bc_p=(("periodic_p",), "bc_P"),
            bc_d=(("periodic_rho",), "bc_D"),
            bc_v=(("periodic_v",), "bc_V"),
        ),
    ),
    Experiment(
        "table5",
        "Table 5: diffusion-reaction",
        "IReLU without BatchNorm has the lowest error (1.13), though its third derivative vanishes.",
        "pde",
        _METHODS,
        minutes=3.0,
        problem="diffusion_reaction",
        steps=100,
        terms=_terms(
            f=(("activator", "inhibitor"), "f"),
            ic_u=(("initial_u",), "ic_data_u"),
            ic_v=(("initial_v",), "ic_data_v"),
            bc=(("neumann_u", "neumann_v"), "bc"),
            bc_u=((), "bc_data_u"),
            bc_v=((), "bc_data_v"),
        ),
    ),
    Experiment(
        "ablation-irelu",
        "Ablation: IReLU alone",
        "IReLU alone improves neither energies nor forces consistently; GemNet diverges on four molecules.",
        "molecules",
        ("original", "irelu"),
        minutes=1.25,
        models=NETWORKS,
        molecules=_TWO,
    ),
    Experiment(
        "ablation-irelu-rescaled",
        "Ablation: IReLU where normalization is removed and labels are rescaled",
        "IReLU lowers energy errors everywhere and force errors in most cases.",
        "molecules",
        ("rescaled", "paper"),
        minutes=1.25,
        models=NETWORKS,
        molecules=_TWO,
    ),
    Experiment(
        "ablation-denorm",
        "Ablation: normalization removed and labels rescaled",
        "Force errors fall by a large factor; energy errors are mostly lower in the original models.",
        "molecules",
        ("original", "rescaled"),
        minutes=1.25,
        models=("cgcnn", "forcenet"),
        molecules=_TWO,
    ),
    Experiment(
        "scaling",
        "Errors against the number of training frames, SchNet",
        "More frames lower both errors.",
        "molecules",
        ("paper",),
        minutes=3.0,
        models=("schnet",),
        molecules=_by_scale(("ethanol",)),
        varied=Varied(
            "frames",
            "data.train",
            {
                "smoke": (100, 400, 1600),
                "small": (250, 700, 2000, 7000),
                "long": (250, 500, 1000, 2000, 4000, 8000),
                "paper": tuple(numbers()["scaling"]["frames"]),
            },
            "training frames",
        ),
    ),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}


def get(name: str) -> Experiment:
    """An experiment by the name that `dcnn reproduce` takes."""
    if name not in EXPERIMENTS:
        raise unknown("table or figure", name, EXPERIMENTS)
    return EXPERIMENTS[name]
