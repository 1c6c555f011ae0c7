"""Results on a terminal: one table for every command that compares runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table as TerminalTable

from dcnn.report import Table
from dcnn.results.metrics import METRICS, short
from dcnn.results.statistics import ErrorCell, ResultRow


def result_table(rows: Sequence[ResultRow], title: str = "") -> TerminalTable:
    """Mean ± spread over seeds (and the paper's number), below it the comparison with the reference row."""
    labels = [key for key in rows[0].labels if key == "recipe" or len({row.labels[key] for row in rows}) > 1]
    metrics = [cell.metric for cell in rows[0].cells]
    table = TerminalTable(*labels, *(metric.label for metric in metrics), "runs", title=title, caption=_caption(rows))
    for row in rows:
        names = (
            f"{row.labels[key]:g}" if isinstance(row.labels[key], float) else str(row.labels[key]) for key in labels
        )
        table.add_row(*names, *(_shown(cell) for cell in row.cells), row.count)
    return table


def terminal_table(table: Table) -> TerminalTable:
    """A table of the page."""
    shown = TerminalTable(*table.columns, title=table.title, caption=table.note)
    for row in table.rows:
        shown.add_row(*(value if isinstance(value, str) else short(value) for value in row))
    return shown


def _shown(cell: ErrorCell) -> str:
    paper = f" (paper {short(cell.published)})" if cell.published is not None else ""
    if cell.stat is None:
        return f"–{paper}"
    lines = [f"{cell.stat}{paper}"]
    if cell.verdict is not None:
        sure = {True: "", False: ", within spread", None: " (?)"}[cell.verdict.beyond]
        freedom = f", df {cell.verdict.degrees_of_freedom:.1f}" if cell.verdict.degrees_of_freedom is not None else ""
        lines.append(f"{cell.verdict.text}{sure}{freedom}")
    if cell.agrees is not None:
        lines.append("the paper's way" if cell.agrees else "not the paper's way")
    return "\n".join(lines)


def _caption(rows: Sequence[ResultRow]) -> str:
    """What the rows are compared with, and what has learnt nothing."""
    words = []
    references = dict.fromkeys(row.reference.labels["recipe"] for row in rows if row.reference)
    if references:
        words.append(f"compared with {', '.join(references)} by Welch's 95 % interval, df: its degrees of freedom")
    tests = [run["test"] for row in rows for run in row.runs]
    for metric in METRICS:
        value = metric.baseline_of(tests)
        if metric.baseline and value is not None and len({row.labels.get("molecule") for row in rows}) == 1:
            words.append(f"{metric.baseline[1]}: {short(value)} {metric.unit}".strip())
    return "; ".join(words)
