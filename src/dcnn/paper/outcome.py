"""What an experiment's runs say, beside what the paper says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dcnn.atoms.config import AtomsConfig
from dcnn.paper.plan import Plan
from dcnn.paper.published import ENERGY, FORCES, Identity, published
from dcnn.results.statistics import table
from dcnn.train import Run

#: Errors of a potential and of a PDE network, most telling first; all are better when lower.
ERRORS = {"molecules": (FORCES, ENERGY), "oxides": (FORCES, ENERGY), "pde": ("nrmse",)}
_BESIDE = {"molecules": ("efwt",), "oxides": ("efwt",), "pde": ("constant_nrmse",)}


def identifying(plan: Plan) -> tuple[str, ...]:
    """The labels that tell the rows of a plan apart."""
    if plan.experiment.kind == "pde":
        return ("recipe",)
    sweep = plan.experiment.sweep
    return ("molecule", "model", "recipe", *([sweep.label] if sweep else []))


def rows(plan: Plan, runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each kind of run: labels, runs, diverged, and every error beside the paper's.

    errors[name]: mean, spread (None for one run), published (None if not), and where a row is compared with the one
    of the first recipe: against, ratio, beyond (whether the difference exceeds √(s₁² + s₂²); None if a spread is not
    known), published_ratio, and same_way (whether ours goes the way of the paper's).
    """
    kind, by = plan.experiment.kind, identifying(plan)
    found = table(runs, by, (*ERRORS[kind], *_BESIDE[kind]))
    paper = published(plan.experiment.name)
    means = {_identity(row, by): row["errors"] for row in found}
    reference = plan.experiment.recipes[0]
    for row in found:
        own = _identity(row, by)
        other = _identity({**row, "recipe": reference}, by)
        errors = {
            name: {"mean": mean, "spread": spread, "published": paper.get(own, {}).get(name)}
            for name, (mean, spread) in row["errors"].items()
        }
        if other != own and other in means:
            for name in ERRORS[kind]:
                if name in errors and name in means[other]:
                    theirs = paper.get(other, {}).get(name)
                    errors[name] |= {"against": reference, **_compared(errors[name], means[other][name], theirs)}
        row["errors"] = errors
        if kind == "pde":
            same = [run for run in runs if run["recipe"] == row["recipe"]]
            row["collapsed"] = sum(bool(run["test"].get("collapsed")) for run in same)
            row["terms"] = {
                column: {"mean": _mean_term(plan, same, column), "published": paper.get(own, {}).get(column)}
                for column in plan.experiment.terms
            }
    return found


def _identity(row: Mapping[str, Any], by: Sequence[str]) -> Identity:
    return tuple(row[label] for label in by)


def _compared(
    ours: Mapping[str, Any], against: tuple[float, float | None], published_against: float | None
) -> dict[str, Any]:
    mean, spread = against
    beyond = None
    if spread is not None and ours["spread"] is not None:
        beyond = abs(ours["mean"] - mean) > math.hypot(ours["spread"], spread)
    ratio = ours["mean"] / mean if mean else None
    published_ratio = ours["published"] / published_against if ours["published"] and published_against else None
    same_way = None if ratio is None or published_ratio is None else (ratio < 1) == (published_ratio < 1)
    return {"ratio": ratio, "beyond": beyond, "published_ratio": published_ratio, "same_way": same_way}


def _mean_term(plan: Plan, runs: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """A loss term of the paper's in the last epoch: the sum of ours that make it up, mean over runs; None: no such."""
    names = plan.experiment.terms[column][plan.options.fidelity]
    found = []
    for run in runs:
        last = (Run(run["folder"]).metrics() or [{}])[-1]
        values = [last.get(f"train_{name}_raw", math.nan) for name in names]
        if values and math.isfinite(sum(values)):
            found.append(sum(values))
    return sum(found) / len(found) if found else None


def agreement(found: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    """How many comparisons of error `name` there are, go the paper's way, and do so beyond the spread."""
    compared = [row["errors"][name] for row in found if name in row["errors"]]
    known = [error for error in compared if error.get("same_way") is not None]
    same = [error for error in known if error["same_way"]]
    return {"compared": len(known), "same_way": len(same), "beyond": sum(bool(error["beyond"]) for error in same)}


def page_keys(plan: Plan) -> dict[tuple[str, ...], dict[str, float]]:
    """The paper's errors by what the report calls a group: (data, model, recipe) and the value of a sweep."""
    paper, by, sweep = published(plan.experiment.name), identifying(plan), plan.experiment.sweep
    several = sweep is not None and len({cell.labels[sweep.label] for cell in plan.cells}) > 1
    keys: dict[tuple[str, ...], dict[str, float]] = {}
    for cell in plan.cells:
        errors = paper.get(_identity(cell.labels, by))
        if errors is None:
            continue
        if isinstance(cell.config, AtomsConfig):
            key: tuple[str, ...] = (Path(cell.config.data.path).stem, cell.config.model.name, cell.config.recipe)
            if sweep is not None and several:
                key = (*key, f"{sweep.key}={cell.labels[sweep.label]}")
        else:
            key = (cell.config.problem.name, cell.config.network.activation, cell.config.recipe)
        keys[key] = errors
    return keys
