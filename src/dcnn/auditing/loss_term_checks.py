"""DC801 and DC802: which term of a loss moves the weights, and whether two terms pull against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from dcnn.auditing.findings import Finding
from dcnn.errors import InputError

ONE_TERM = 0.999  # share of the summed gradient norms
ONE_ROOT = 0.99  # the same for the square roots of the terms, which do not shrink with a residual that has been learnt
CONFLICT = -0.3  # cosine between the gradients of two terms


def term_findings(
    model: Any, sample: Any, losses: Callable[[Any, Any], Mapping[str, Tensor]], parameters: list[Tensor]
) -> Iterator[Finding]:
    """Norms and angles of the terms' gradients with respect to the weights.

    The gradient of a squared residual shrinks with the residual: a term that has been learnt must not be taken for one
    that is starved. So the gradient of its square root, ∇L / (2√L), is asked for as well.
    """
    with torch.enable_grad():
        values = losses(model, sample)
    if not isinstance(values, Mapping) or not all(isinstance(v, Tensor) and v.numel() == 1 for v in values.values()):
        raise InputError("audit: losses= must return a dictionary of scalars, {'name': scalar tensor, …}")
    gradients, roots = {}, {}
    for name in values:
        with torch.enable_grad():
            value = losses(model, sample)[name].sum()  # a fresh graph for each term
        if value.requires_grad:
            found = torch.autograd.grad(value, parameters, allow_unused=True)
            gradients[name] = torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten()
                                         for p, g in zip(parameters, found, strict=True)]).double()  # fmt: skip
            roots[name] = float(gradients[name].norm()) / max(abs(float(value.detach())), 1e-300) ** 0.5
    norms = {name: float(gradient.norm()) for name, gradient in gradients.items()}
    total, total_root = sum(norms.values()), sum(roots.values())
    for name, norm in norms.items():
        if len(norms) > 1 and total > 0 and norm / total > ONE_TERM and roots[name] / total_root > ONE_ROOT:
            rest = ", ".join(f"{other} {value / total:.1e}" for other, value in norms.items() if other != name)
            yield Finding(
                "DC801",
                "warning",
                f"term {name!r}",
                f"It supplies {norm / total:.2%} of the gradient (the others: {rest}), and not because the others have "
                "been learnt: they hardly move the weights.",
                "dcnn.LabelScale to give all labels one unit, or other weights",
                {"share": norm / total, "share_of_roots": roots[name] / total_root},
            )
    for (a, g), (b, h) in combinations(gradients.items(), 2):
        if norms[a] == 0 or norms[b] == 0:
            continue
        cosine = float(g @ h) / (norms[a] * norms[b])
        if cosine < CONFLICT:
            yield Finding(
                "DC802",
                "warning",
                f"terms {a!r} and {b!r}",
                f"The cosine between their gradients is {cosine:.2f}: a step for one undoes the other.",
                "often nothing: their sum may fall all the same; if one is not learnt, other weights",
                {"cosine": cosine},
            )
