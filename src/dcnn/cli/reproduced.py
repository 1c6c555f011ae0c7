"""How the results of `dcnn reproduce` are shown: a table for the terminal, tables and figures for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table as TerminalTable

from dcnn import paper
from dcnn.report import Figure, Table, series_figure, write_page
from dcnn.report.numbers import short, with_spread

Rows = Sequence[Mapping[str, Any]]

_NAMES = {
    paper.FORCES: "force MAE, kcal/mol/Å",
    paper.ENERGY: "energy MAE, kcal/mol",
    "nrmse": "nRMSE",
    "constant_nrmse": "nRMSE of a constant",
}
_TERM = {"f": "L_f", "ic": "L_IC", "bc": "L_BC"}
_NOTE = {
    "smoke": "A smoke test: seconds of training show that everything works, not which recipe is better.",
    "small": "Minutes of training, potentials with small networks in batches of 5 at a rate of 1e-3: not the paper's "
    "50 epochs on 50,000 frames in batches of 20 at 1e-4, nor its 15,000 steps for PDEs.",
    "paper": "The paper's own settings.",
}


def shown(plan: paper.Plan, rows: Rows) -> TerminalTable:
    """Ours and, in brackets, the paper's numbers: a line for each kind of run, for PDEs a column."""
    if plan.experiment.kind == "pde":
        return _pde_table(plan, rows)
    labels = [name for name in paper.identifying(plan) if name == "recipe" or len({row[name] for row in rows}) > 1]
    names = [name for name in _NAMES if any(name in row["errors"] for row in rows)]
    table = TerminalTable(*labels, *(column for name in names for column in _columns(name)), "runs")
    for row in rows:
        errors = [text for name in names for text in _cells(row["errors"].get(name))]
        table.add_row(*(_label(row[label]) for label in labels), *errors, _runs(row))
    return table


def _pde_table(plan: paper.Plan, rows: Rows) -> TerminalTable:
    """Loss terms are those of the last epoch; what the paper calls MSE is nRMSE."""
    table = TerminalTable("ours (paper's)", *(row["recipe"] for row in rows))
    for name in ("nrmse", "constant_nrmse"):
        table.add_row(_NAMES[name], *(_beside(row["errors"].get(name, {})) for row in rows))
    for name in plan.experiment.terms:
        table.add_row(_term(name), *(_beside(row["terms"][name]) for row in rows))
    table.add_row("runs", *(_runs(row) for row in rows))
    return table


def _beside(found: Mapping[str, Any]) -> str:
    if found.get("mean") is None:
        return f"– ({_number(found.get('published'))})"
    paper_too = f" ({_number(found['published'])})" if found["published"] is not None else ""
    return with_spread(found["mean"], found.get("spread")) + paper_too


def _columns(name: str) -> list[str]:
    return [f"{_NAMES[name]} (paper)", "same way?"]


def _cells(error: Mapping[str, Any] | None) -> list[str]:
    if error is None:
        return ["–", ""]
    way = {True: "yes", False: "no", None: ""}[error.get("same_way")]
    within = ", within spread" if way and error["beyond"] is False else ""
    return [_beside(error), way + within]


def _runs(row: Mapping[str, Any]) -> str:
    notes = [f"{row[word]} {word}" for word in ("diverged", "collapsed") if row.get(word)]
    return f"{row['runs']} ({', '.join(notes)})" if notes else str(row["runs"])


def _number(value: float | None) -> str:
    return "–" if value is None else short(value)


def _label(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _term(name: str) -> str:
    """
    >>> _term("f"), _term("ic_u")
    ('L_f', 'L_IC u')
    """
    first, _, rest = name.partition("_")
    return f"{_TERM[first]} {rest}".strip()


def write_report(plan: paper.Plan, runs: Sequence[Mapping[str, Any]], rows: Rows, path: Path, command: str) -> Path:
    """The page: summary with published numbers and verdicts, the paper's table or figure, and every run."""
    note = f"The paper: “{plan.experiment.claim}” {_NOTE[plan.options.scale]}"
    return write_page(
        [run["folder"] for run in runs],
        path,
        plan.title,
        paper.page_keys(plan),
        figures=_figures(plan, rows),
        tables=[_terms_table(plan, rows)] if plan.experiment.terms else [],
        reference=plan.experiment.recipes[0],
        command=command,
        note=note,
    )


def _terms_table(plan: paper.Plan, rows: Rows) -> Table:
    """The layout of Tables 3 to 5: our line and the paper's for every method."""
    lines: list[list[str | float | None]] = []
    for row in rows:
        error = row["errors"].get("nrmse", {})
        constant = row["errors"].get("constant_nrmse", {}).get("mean")
        terms = row["terms"].values()
        lines.append([row["recipe"], "ours", error.get("mean"), constant, *(term["mean"] for term in terms)])
        if any(term["published"] is not None for term in terms):
            published = (term["published"] for term in terms)
            lines.append([row["recipe"], "paper", error.get("published"), None, *published])
    columns = ["method", "", "nRMSE", "of a constant", *(_term(name) for name in plan.experiment.terms)]
    note = (
        "original: tanh, paper: IReLU, -bn: with BatchNorm. Loss terms are means over the last epoch; where our loss "
        "has several equations, L_f is their sum. The paper calls its nRMSE “MSE”; it prints 10⁻⁴⁵ as “< e-45”."
    )
    return Table("Error and loss terms", columns, lines, note, labels=2)


def _figures(plan: paper.Plan, rows: Rows) -> list[Figure]:
    """Errors against what is varied, one figure an error."""
    sweep = plan.experiment.sweep
    if sweep is None:
        return []
    figures = []
    for name in (paper.FORCES, paper.ENERGY):
        ours: dict[str, list[tuple[float, float, float | None]]] = {}
        theirs: dict[str, list[tuple[float, float, float | None]]] = {}
        for row in rows:
            error = row["errors"].get(name)
            if error is None:
                continue
            series = f"{row['model']} {row['recipe']}, {row['molecule']}"
            ours.setdefault(series, []).append((row[sweep.label], error["mean"], error["spread"]))
            if error["published"] is not None:
                theirs.setdefault(series, []).append((row[sweep.label], error["published"], None))
        if ours:
            title = f"{_NAMES[name].split(',')[0]} against the {sweep.axis}"
            figures.append(
                series_figure(title[0].upper() + title[1:], ours, sweep.axis, _NAMES[name], published=theirs)
            )
    return figures
