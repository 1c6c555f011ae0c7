"""The paper's tables and figures: its numbers, one definition each, and what our runs say beside them."""

from dcnn.experiments.paper.cells import Options, Plan, plan
from dcnn.experiments.paper.definitions import EXPERIMENTS, MOLECULES, SCALES, Experiment, get
from dcnn.experiments.paper.outcome import agreement, check_folder, identifying, page_keys, rows
from dcnn.experiments.paper.published import ENERGY, FORCES, published

__all__ = [
    "ENERGY",
    "EXPERIMENTS",
    "FORCES",
    "MOLECULES",
    "SCALES",
    "Experiment",
    "Options",
    "Plan",
    "agreement",
    "check_folder",
    "get",
    "identifying",
    "page_keys",
    "plan",
    "published",
    "rows",
]
