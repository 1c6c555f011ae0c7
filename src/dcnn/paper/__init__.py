"""The paper's tables and figures: its numbers, one definition each, and what our runs say beside them."""

from dcnn.paper.definitions import EXPERIMENTS, get
from dcnn.paper.outcome import agreement, rows, terms, to_dict
from dcnn.paper.plan import Options, Plan, plan
from dcnn.paper.published import published
from dcnn.results.metrics import ENERGY, FORCES

__all__ = [
    "ENERGY",
    "EXPERIMENTS",
    "FORCES",
    "Options",
    "Plan",
    "agreement",
    "get",
    "plan",
    "published",
    "rows",
    "terms",
    "to_dict",
]
