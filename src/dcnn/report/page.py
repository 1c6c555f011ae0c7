"""One self-contained HTML page from any run folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from dcnn.report.chart import Figure
from dcnn.report.curves import at_a_glance, validation_curves
from dcnn.report.details import examine
from dcnn.report.entries import ReportedRun, RunGroup, find_runs, groups, ranking, shown_metrics
from dcnn.report.numbers import duration, short
from dcnn.report.summary import Published, Row, summarise
from dcnn.report.table import Table
from dcnn.safe_files import write_whole

MOST_BYTES = 1_900_000
_PARTS = ("data", "model", "recipe")
MOST_SECTIONS = 12  # runs that are looked at closely; each takes seconds and about 100 kB


def write_page(
    runs: Sequence[Path | str],
    path: Path | str,
    title: str = "",
    published: Published | None = None,
    *,
    figures: Sequence[Figure] = (),
    tables: Sequence[Table] = (),
    reference: str = "original",
    command: str | None = None,
    note: str = "",
    trust: bool = False,
    model: Any = None,
) -> Path:
    """Writes `path`: a table of all runs, their learning curves, and a close look at one run of each kind.

    runs: run folders, or folders that hold them. title: made from the runs if not given. published: numbers to
    stand beside ours, by (data, model, recipe) or (data, model, recipe, variant) → {"force_mae_kcal_mol_A": 0.68, …}.
    figures: shown after the table, e.g. from :func:`series_figure`. tables: shown before them. reference: the
    recipe that the others are compared with; where it was not run, the best.
    command: what was typed to get all this. trust: Python files that the runs name may be run for their predictions.
    model: the network or problem of a run that was given it as an object.
    """
    entries = find_runs(runs)
    kinds = groups(entries)
    # The best first: they are what a reader opens, and what is kept if the page gets too long.
    order = sorted(kinds, key=_score)[:MOST_SECTIONS]
    alone = len(kinds) == 1
    sections = [examine(kind.typical, _title(kind, kinds), alone, trust, model) for kind in order]
    rows = summarise(kinds, published, reference)
    context = _context(entries, rows, title or _heading(kinds)) | {
        "figures": [*figures, *([] if alone else at_a_glance(rows) if rows[0].cells else [])],
        "tables": tables,
        "curves": [] if alone else validation_curves(kinds),
        "command": command,
        "note": note,
        "left_out": len(kinds) - len(sections),
    }
    text = _render(sections=sections, **context)
    while len(text.encode()) > MOST_BYTES and sections:
        sections.pop()
        context["left_out"] += 1
        text = _render(sections=sections, **context)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    return path


def write_run_page(folder: Path | str, trust: bool = False) -> Path:
    """Writes report.html in a run folder: its errors, curves, predictions, audit and configuration."""
    return write_page([folder], Path(folder) / "report.html", trust=trust)


def _heading(kinds: Sequence[RunGroup]) -> str:
    """What the runs are about: `ethanol: schnet, best`, `advection: original, paper, best`."""
    data, models, recipes = (list(dict.fromkeys(getattr(k, name) for k in kinds)) for name in _PARTS)
    words = [*(models if len(models) == 1 or len(recipes) == 1 else []), *recipes]
    return f"{', '.join(data)}: {', '.join(words)}"


def _score(group: RunGroup) -> float:
    metric = ranking(group.entries)
    error = group.typical.error(metric) if metric else None
    if metric is None or error is None:
        return float("inf")
    return error if metric.lower_is_better else -error


def _title(group: RunGroup, others: Sequence[RunGroup]) -> str:
    if len(others) == 1:
        return "The run" if len(group.entries) == 1 else f"A typical run (seed {group.typical.seed})"
    seed = f", seed {group.typical.seed} of {len(group.entries)}" if len(group.entries) > 1 else ""
    return group.label(others) + seed


def _context(entries: Sequence[ReportedRun], rows: Sequence[Row], title: str) -> dict[str, Any]:
    metrics = [cell.metric for cell in rows[0].cells]
    columns = [name for name in ("data", "model", "variant") if len({getattr(r.group, name) for r in rows}) > 1]
    references = list(dict.fromkeys(row.reference.recipe for row in rows if row.reference))
    return {
        "title": title,
        "entries": entries,
        "rows": rows,
        "metrics": metrics,
        "run_metrics": shown_metrics(entries),
        "columns": columns,
        "references": references,
        "single_seeds": any(c.verdict is not None and c.verdict.beyond is None for row in rows for c in row.cells),
        "has_published": any(cell.published is not None for row in rows for cell in row.cells),
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
