"""Charts of whole runs: learning curves, errors at a glance, and figures of one error against one setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dcnn.report.chart import BOTTOM, COLOURS, Chart, Figure
from dcnn.report.reported_run import ReportedRun, entries_of, label_of
from dcnn.results.metrics import BY_NAME, METRICS
from dcnn.results.statistics import ResultRow

MOST_POINTS = 120  # of one curve
_NAMES = {metric.name: metric.label for metric in METRICS} | {
    "loss": "loss on fresh points",
    "residual_rms": "RMS residual on fresh points",
}
Series = Mapping[str, Sequence[tuple[float, float, float | None]]]


def term_curves(entry: ReportedRun) -> list[Figure]:
    """The training terms of one run over its steps: raw values, and the weighted ones where they differ."""
    rows = entry.metrics
    columns = list(rows[0]) if rows else []
    figures = []
    for kind, title in (("raw", "Loss terms"), ("weighted", "Loss terms, weighted")):
        names = [c for c in columns if c.startswith("train_") and c.endswith(f"_{kind}")]
        chart = Chart("training step", "mean over an epoch", log_y=True)
        for n, name in enumerate(names):
            label = name.removeprefix("train_").removesuffix(f"_{kind}").replace("_", " ")
            _curve(chart, entry, name, n, label, "line" if n < 8 else "dashed")
        if kind == "weighted":
            if all(_column(rows, n) == _column(rows, n.replace("_weighted", "_raw")) for n in names):
                continue
            _curve(chart, entry, "train_loss", 6, "total", "dashed")
        if not chart.empty:
            figures.append(chart.figure(title, "In the unit that the run trains in."))
    return figures


def validation_curves(rows: Sequence[ResultRow]) -> list[Figure]:
    """Validation errors over the steps, data by data; one colour a row, one line a seed.

    Both axes are logarithmic: one sees which way a curve goes when it ends.
    """
    figures: list[Figure] = []
    for data, members in _by_data(rows):
        looks = colouring(members)
        for name in _validated(entries_of(members)):
            if name in ("mse", "nrmse_domain") or name.startswith("nrmse_"):
                continue  # in each run's own charts
            chart = Chart("training step", _NAMES.get(name, name.replace("_", " ")), log_x=True, log_y=True)
            for row, (colour, label) in zip(members, looks, strict=True):
                for entry in entries_of([row]):
                    _curve(chart, entry, f"validation_{name}", colour, label, "line")
            _finish(figures, chart, name, entries_of(members), data)
    return figures


def own_validation_curves(entry: ReportedRun) -> list[Figure]:
    """Validation errors of one run: errors of one family (nRMSE of every field, residuals) share a chart."""
    families: dict[str, list[str]] = {}
    for name in _validated([entry]):
        families.setdefault(next((f for f in ("nrmse", "residual_rms") if name.startswith(f)), name), []).append(name)
    figures: list[Figure] = []
    for family, names in families.items():
        chart = Chart("training step", _NAMES.get(family, family.replace("_", " ")), log_y=True)
        for n, name in enumerate(names):
            own = name.removeprefix(family).strip("_").replace("_", " ")
            label = {"": "last 20 times", "domain": "all times"}.get(own, own) if family == "nrmse" else own
            _curve(chart, entry, f"validation_{name}", n, label, "line")
        _finish(figures, chart, family, [entry])
    return figures


def _validated(entries: Sequence[ReportedRun]) -> list[str]:
    """Names of the validation errors; not those in other units, nor what does not change."""
    columns = dict.fromkeys(c for entry in entries for row in entry.metrics[:1] for c in row)
    names = [c.removeprefix("validation_") for c in columns if c.startswith("validation_")]
    fixed = {"efwt", "unit_loss", *(metric.baseline[0] for metric in METRICS if metric.baseline)}
    return [name for name in names if name not in fixed and not name.endswith(("_eV", "_eV_A"))]


def _finish(figures: list[Figure], chart: Chart, name: str, entries: Sequence[ReportedRun], data: str = "") -> None:
    """Adds the chart, if there is anything on it, with a line at the error of what has learnt nothing."""
    if chart.empty:
        return
    metric = BY_NAME.get(name)
    nothing = metric.baseline_of(entry.test for entry in entries) if metric else None
    if nothing is not None and metric is not None and metric.baseline is not None:
        chart.level(nothing, 7, metric.baseline[1])
    title = _NAMES.get(name, name.replace("_", " ")).split(" (")[0]
    title = title[0].upper() + title[1:] if name in ("loss", "residual_rms") else f"Validation {title}"
    figures.append(chart.figure(title + data))


def _by_data(rows: Sequence[ResultRow]) -> list[tuple[str, list[ResultRow]]]:
    """(", name" if there are several, rows) of every data set."""
    by = [entries_of([row])[0].data for row in rows]
    names = list(dict.fromkeys(by))
    several = len(names) > 1
    return [(f", {n}" if several else "", [r for r, d in zip(rows, by, strict=True) if d == n]) for n in names]


def colouring(rows: Sequence[ResultRow]) -> list[tuple[int, str]]:
    """(colour, legend) of every row: each its own while colours last, one a recipe beyond that."""
    if len(rows) <= COLOURS:
        return [(n, label_of(row, rows)) for n, row in enumerate(rows)]
    recipes = list(dict.fromkeys(row.labels["recipe"] for row in rows))
    return [(recipes.index(row.labels["recipe"]), row.labels["recipe"]) for row in rows]


def _curve(chart: Chart, entry: ReportedRun, column: str, colour: int, label: str, style: str) -> None:
    steps, values = _column(entry.metrics, "step"), _column(entry.metrics, column)
    kept = [(s, v) for s, v in zip(steps, values, strict=True) if math.isfinite(v)]
    if not kept:
        return
    count = min(MOST_POINTS, len(kept))
    numbers = np.geomspace(1, len(kept), count) if chart.log_x else np.linspace(1, len(kept), count)
    chosen = np.unique(numbers.round().astype(int)) - 1
    x, y = np.array(kept)[chosen].T
    if len(x) == 1:
        chart.points(x, y, colour, label)
    else:
        chart.line(x, y, colour, label, style)


def _column(rows: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [row.get(name, math.nan) for row in rows]


def at_a_glance(rows: Sequence[ResultRow]) -> list[Figure]:
    """Data by data, one chart an error: a line for each row, a dot for each seed, a stroke at the mean.

    A ring stands where the published number is, a dashed line where what has learnt nothing is.
    """
    figures = []
    for data, members in _by_data(rows):
        looks = colouring(members)
        names = [_shortened(label_of(row, members)) for row in members]
        for index, metric in enumerate(cell.metric for cell in rows[0].cells):
            if metric.name == "efwt" or not metric.compared:
                continue
            chart = _strips(metric.label, names)
            for n, (row, (colour, _)) in enumerate(zip(members, looks, strict=True)):
                cell = row.cells[index]
                if cell.stat is not None:
                    chart.points(cell.stat.values, [n] * len(cell.stat.values), colour)
                    if len(cell.stat.values) > 1:
                        chart.points([cell.stat.mean], [n], colour, style="tick")
                if cell.published is not None:
                    chart.points([cell.published], [n], 7, "published", "ring")
            nothing = metric.baseline_of(entry.test for entry in entries_of(members))
            if nothing is not None and metric.baseline is not None and not chart.empty:
                chart.line([nothing, nothing], [-0.5, len(members) - 0.5], 7, metric.baseline[1], "dashed")
            if not chart.empty:
                figures.append(chart.figure(f"Test {metric.title}{data}"))
    return figures


def _strips(label: str, names: Sequence[str]) -> Chart:
    top, left = 8, min(16 + 6 * max(len(name) for name in names), 160)
    return Chart(label, "", log_x=True, rows=names, height=top + BOTTOM + 24 * len(names), left=left, top=top)


def _shortened(name: str, most: int = 24) -> str:
    return name if len(name) <= most else "…" + name[1 - most :]  # the recipe stands last


def series_figure(
    title: str,
    series: Series,
    x: str,
    y: str,
    *,
    published: Series | None = None,
    log_x: bool = True,
    log_y: bool = True,
    note: str = "",
) -> Figure:
    """Errors against one setting (β, number of frames): name → (x, mean, spread or None) of every point.

    x and y are the names of the axes with their units. `published` series are dashed, with rings.

    >>> figure = series_figure("Error against β", {"SchNet": [(0.1, 3.0, 0.2), (10, 1.0, None)]}, "β", "MAE (kcal/mol)")
    >>> figure.keys[0].text
    'SchNet'
    """
    chart = Chart(x, y, log_x=log_x, log_y=log_y)
    for n, (name, points) in enumerate(series.items()):
        at, mean, spread = _sorted(points)
        chart.line(at, mean, n, name)
        chart.points(at, mean, n)
        known = np.isfinite(spread)
        low = np.maximum(mean - spread, mean * 0.05) if log_y else mean - spread
        chart.spread(at[known], low[known], (mean + spread)[known], n)
    for name, points in (published or {}).items():
        at, mean, _ = _sorted(points)
        colour = list(series).index(name) if name in series else 7
        chart.line(at, mean, colour, f"{name}, published", "dashed")
        chart.points(at, mean, colour, style="ring")
    return chart.figure(title, note)


def _sorted(points: Sequence[tuple[float, float, float | None]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array([[a, b, math.nan if c is None else c] for a, b, c in sorted(points, key=lambda p: p[0])], float)
    return table[:, 0], table[:, 1], table[:, 2]
