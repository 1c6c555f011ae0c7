"""The paper's tables and figures: its numbers, one definition each, and what our runs say beside them."""

from dcnn.paper.definitions import EXPERIMENTS, MOLECULES, SCALES, Experiment, get
from dcnn.paper.outcome import agreement, identifying, page_keys, rows
from dcnn.paper.plan import Options, Plan, plan
from dcnn.paper.published import ENERGY, FORCES, published

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
    "get",
    "identifying",
    "page_keys",
    "plan",
    "published",
    "rows",
]
