"""All weightings by name."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any, Literal

from dcnn.errors import unknown
from dcnn.losses.interface import Fixed, Weighting
from dcnn.losses.terms import Term
from dcnn.losses.uncertainty import Uncertainty

WeightingName = Literal["fixed", "uncertainty"]
#: Of versions before 0.2, which were the best nowhere (results/weightings.md). Their runs still open.
GONE = ("softadapt", "relobralo", "gradnorm", "ntk", "config")
NAMES: dict[str, type[Weighting]] = {
    "fixed": Fixed,
    "uncertainty": Uncertainty,
}


def get(name: str, terms: Sequence[Term], **options: Any) -> Weighting:
    """The weighting of that name on these terms.

    >>> get("uncertainty", [Term("pde"), Term("initial")], initial=1.0).log_variances.tolist()
    [1.0, 1.0]
    """
    if name not in NAMES:
        raise unknown("weighting", name, NAMES)
    valid = list(signature(NAMES[name]).parameters)[1:]
    for option in options:
        if option not in valid:
            raise unknown(f"option of the weighting {name}", option, valid)
    return NAMES[name](terms, **options)
