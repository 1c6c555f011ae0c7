"""What an experiment's runs say, beside what the paper says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dcnn.paper.plan import Plan
from dcnn.paper.published import published
from dcnn.results.statistics import ResultRow, summarise
from dcnn.train import Run


def identifying(plan: Plan) -> tuple[str, ...]:
    """The labels that tell the rows of a plan apart."""
    if plan.experiment.kind == "pde":
        return ("recipe",)
    varied = plan.experiment.varied
    return ("molecule", "model", "recipe", *([varied.label] if varied else []))


def rows(plan: Plan, runs: Sequence[Mapping[str, Any]]) -> list[ResultRow]:
    """One row for each kind of run, its errors beside the paper's, compared with the experiment's first recipe."""
    return summarise(runs, identifying(plan), plan.experiment.recipes[0], published(plan.experiment.name))


def terms(plan: Plan, row: ResultRow) -> dict[str, dict[str, float | None]]:
    """{column: {mean, published}} of the loss terms in the last epoch: of ours, the sum of those that make it up."""
    paper = published(plan.experiment.name).get((row.labels["recipe"],), {})
    last = [(Run(run["folder"]).metrics() or [{}])[-1] for run in row.runs] if plan.experiment.terms else []
    found: dict[str, dict[str, float | None]] = {}
    for column, by_fidelity in plan.experiment.terms.items():
        names = by_fidelity[plan.options.fidelity]
        sums = [sum(line.get(f"train_{name}_raw", math.nan) for name in names) for line in last if names]
        good = [value for value in sums if math.isfinite(value)]
        found[column] = {"mean": sum(good) / len(good) if good else None, "published": paper.get(column)}
    return found


def to_dict(plan: Plan, row: ResultRow) -> dict[str, Any]:
    """A row as plain values, with its loss terms."""
    return {**row.to_dict(), **({"terms": terms(plan, row)} if plan.experiment.terms else {})}


def agreement(found: Sequence[ResultRow], name: str) -> dict[str, int]:
    """How many comparisons of error `name` there are, go the paper's way, and do so beyond the spread."""
    known = [cell for row in found if (cell := row.cell(name)) is not None and cell.agrees is not None]
    same = [cell for cell in known if cell.agrees]
    beyond = sum(bool(cell.verdict and cell.verdict.beyond) for cell in same)
    return {"compared": len(known), "same_way": len(same), "beyond": beyond}
