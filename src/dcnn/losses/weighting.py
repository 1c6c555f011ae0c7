"""All weightings by name."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any, Literal

from dcnn.errors import unknown
from dcnn.losses.gradients import NTK, ConFIG, GradNorm
from dcnn.losses.history import ReLoBRaLo, SoftAdapt
from dcnn.losses.interface import Fixed, Weighting
from dcnn.losses.terms import Term
from dcnn.losses.uncertainty import Uncertainty

WeightingName = Literal["fixed", "softadapt", "relobralo", "gradnorm", "uncertainty", "ntk", "config"]
NAMES: dict[str, type[Weighting]] = {
    "fixed": Fixed,
    "softadapt": SoftAdapt,
    "relobralo": ReLoBRaLo,
    "gradnorm": GradNorm,
    "uncertainty": Uncertainty,
    "ntk": NTK,
    "config": ConFIG,
}


def get(name: str, terms: Sequence[Term], **options: Any) -> Weighting:
    """The weighting of that name on these terms.

    >>> get("relobralo", [Term("pde"), Term("initial")], alpha=0.99).alpha
    0.99
    """
    if name not in NAMES:
        raise unknown("weighting", name, NAMES)
    valid = list(signature(NAMES[name]).parameters)[1:]
    for option in options:
        if option not in valid:
            raise unknown(f"option of the weighting {name}", option, valid)
    return NAMES[name](terms, **options)
