"""One self-contained HTML page from any run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from dcnn.report.chart import Figure
from dcnn.report.curves import at_a_glance, validation_curves
from dcnn.report.details import examine
from dcnn.report.reported_run import LABELS, ReportedRun, entries_of, find_runs, label_of, records, typical
from dcnn.report.table import Table
from dcnn.report.ticks import duration
from dcnn.results.metrics import short, shown_metrics
from dcnn.results.statistics import ResultRow, summarise
from dcnn.safe_files import write_whole

MOST_BYTES = 1_900_000
MOST_SECTIONS = 12  # runs that are looked at closely; each takes seconds and about 100 kB


def write_page(
    runs: Sequence[Path | str],
    path: Path | str,
    title: str = "",
    published: Mapping[tuple[str, ...], Mapping[str, float]] | None = None,
    *,
    reference: str | None = None,
    paired: bool = False,
    **more: Any,
) -> Path:
    """Writes `path`: a table of all runs, their learning curves, and a close look at one run of each kind.

    runs: run folders, or folders that hold them. published: numbers to stand beside ours, by (data, model, recipe) or
    (data, model, recipe, variant) → {"force_mae_kcal_mol_A": 0.68, …}. reference: the recipe that the others are
    compared with; standard, else original, else the best. paired: they are compared seed by seed. more: see
    :func:`write_rows_page`.
    """
    known = {(*key, "")[: len(LABELS)]: errors for key, errors in (published or {}).items()}
    return write_rows_page(summarise(records(find_runs(runs)), LABELS, reference, known, paired), path, title, **more)


def write_rows_page(
    rows: Sequence[ResultRow],
    path: Path | str,
    title: str = "",
    *,
    figures: Sequence[Figure] = (),
    tables: Sequence[Table] = (),
    command: str | None = None,
    note: str = "",
    trust: bool = False,
    model: Any = None,
) -> Path:
    """The page of results that are summarised already; each run of a row has an "entry" or names its "folder".

    title: made from the runs if not given. figures: shown after the table, e.g. from :func:`series_figure`. tables:
    shown before them. command: what was typed to get all this. trust: Python files that the runs name may be run for
    their predictions. model: the network or problem of a run that was given it as an object.
    """
    rows = [replace(row, runs=tuple(_with_entry(run) for run in row.runs)) for row in rows]
    # The best first: they are what a reader opens, and what is kept if the page gets too long.
    order = sorted(rows, key=_score)[:MOST_SECTIONS]
    alone = len(rows) == 1
    sections = [examine(typical(row), _title(row, rows), alone, trust, model) for row in order]
    context = _context(rows, title or _heading(rows)) | {
        "figures": [*figures, *([] if alone else at_a_glance(rows) if rows[0].cells else [])],
        "tables": tables,
        "curves": [] if alone else validation_curves(rows),
        "command": command,
        "note": note,
        "left_out": len(rows) - len(sections),
    }
    text = _render(sections=sections, **context)
    while len(text.encode()) > MOST_BYTES and sections:
        sections.pop()
        context["left_out"] += 1
        text = _render(sections=sections, **context)
    write_whole(Path(path), text)
    return Path(path)


def write_run_page(folder: Path | str, trust: bool = False) -> Path:
    """Writes report.html in a run folder: its errors, curves, predictions, audit and configuration."""
    return write_page([folder], Path(folder) / "report.html", trust=trust)


def _with_entry(run: Mapping[str, Any]) -> Mapping[str, Any]:
    return run if "entry" in run else {**run, "entry": ReportedRun.read(Path(run["folder"]))}


def _heading(rows: Sequence[ResultRow]) -> str:
    """What the runs are about: `ethanol: schnet, best`, `advection: original, paper, best`."""
    data, models, recipes = (
        list(dict.fromkeys(getattr(e, name) for e in entries_of(rows))) for name in ("data", "model", "recipe")
    )
    words = [*(models if len(models) == 1 or len(recipes) == 1 else []), *recipes]
    return f"{', '.join(data)}: {', '.join(words)}"


def _score(row: ResultRow) -> float:
    error = typical(row).error(row.cells[0].metric) if row.cells else None
    if error is None:
        return float("inf")
    return error if row.cells[0].metric.lower_is_better else -error


def _title(row: ResultRow, others: Sequence[ResultRow]) -> str:
    seed, count = typical(row).seed, len(row.runs)
    if len(others) == 1:
        return "The run" if count == 1 else f"A typical run (seed {seed})"
    return label_of(row, others) + (f", seed {seed} of {count}" if count > 1 else "")


def _context(rows: Sequence[ResultRow], title: str) -> dict[str, Any]:
    entries = entries_of(rows)
    cells = [cell for row in rows for cell in row.cells]
    references = list(dict.fromkeys(row.reference.labels["recipe"] for row in rows if row.reference))
    return {
        "title": title,
        "entries": entries,
        "rows": rows,
        "metrics": [cell.metric for cell in rows[0].cells],
        "run_metrics": shown_metrics(entry.test for entry in entries),
        "columns": [k for k in rows[0].labels if k != "recipe" and len({row.labels[k] for row in rows}) > 1],
        "run_columns": [name for name in ("data", "model") if len({getattr(e, name) for e in entries}) > 1],
        "references": references,
        "baselines": [
            f"{text} {short(value)} {cell.metric.unit}".strip()
            for cell in rows[0].cells
            if cell.metric.baseline
            and (text := cell.metric.baseline[1])
            and (value := cell.metric.baseline_of(entry.test for entry in entries)) is not None
        ],
        "single_seeds": any(cell.verdict is not None and cell.verdict.beyond is None for cell in cells),
        "has_published": any(cell.published is not None for cell in cells),
        "same_data": entries[0].data if len({e.data for e in entries}) == 1 else None,
        "same_model": entries[0].model if len({e.model for e in entries}) == 1 else None,
        "seconds": sum(entry.values.get("seconds", 0.0) for entry in entries),
        "versions": sorted({e.values["dcnn_version"] for e in entries if "dcnn_version" in e.values}),
    }


def _render(**context: Any) -> str:
    environment = Environment(
        loader=PackageLoader("dcnn.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"short": short, "duration": duration}
    return environment.get_template("page.html").render(**context)
