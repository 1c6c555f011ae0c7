"""Losses of named terms, and ways to weight them."""

from dcnn.losses import weighting
from dcnn.losses.interface import Fixed, Weighting
from dcnn.losses.terms import Term, term_values
from dcnn.losses.uncertainty import Uncertainty
from dcnn.losses.weight_schedule import Schedule

__all__ = [
    "Fixed",
    "Schedule",
    "Term",
    "Uncertainty",
    "Weighting",
    "term_values",
    "weighting",
]
