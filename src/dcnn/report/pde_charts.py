"""A trained PDE network against its reference: fields, errors, residuals, slices at times."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dcnn.pde.solution import Solution
from dcnn.pde.solution_errors import nrmse, predict
from dcnn.pde.task import PdeTask
from dcnn.report.chart import Array, Chart, Figure, heat_map
from dcnn.report.raster import DIVERGING
from dcnn.report.reported_run import ReportedRun

MOST_POINTS = 96  # along one axis of a map
TIMES = 3  # maps of a field in the plane
SLICES = 4
CHUNK = 16384


@dataclass(frozen=True)
class Fields:
    """The network, the reference (if known) and the residuals on one grid; arrays follow the order of its axes."""

    grid: dict[str, Array]
    network: dict[str, Array]
    reference: dict[str, Array]
    residuals: dict[str, Array]

    @property
    def space(self) -> list[str]:
        return [axis for axis in self.grid if axis != "t"]


def evaluate(task: PdeTask) -> Fields:
    """Everything on a part of the reference's grid, or on a grid of its own where there is no reference.

    Of a parameter that has a range, at the middle of it.
    """
    grid = _grid(task)
    points = grid.points()
    axes = {name: values for name, values in grid.grid.items() if name not in task.truth.ranges}
    shape = tuple(map(len, axes.values()))
    values = predict(task.network, points)  # (N, fields)
    names = task.truth.fields
    outside = ~task.truth.inside(torch.as_tensor(points)).numpy()
    values[outside] = np.nan
    known = grid.fields if task.reference is not None else {}
    return Fields(
        axes,
        {name: values[:, n].reshape(shape) for n, name in enumerate(names)},
        {name: values.reshape(shape) for name, values in known.items()},
        {name: np.where(outside, np.nan, r).reshape(shape) for name, r in _residuals(task, points).items()},
    )


def _grid(task: PdeTask) -> Solution:
    problem = task.truth
    found = task.reference
    if found is None:
        axes = {name: np.linspace(*problem.domain[name], MOST_POINTS) for name in problem.coordinates}
        axes |= {name: np.array([np.mean(bounds)]) for name, bounds in problem.ranges.items()}
        several = len(axes) - len(problem.ranges) > 2
        found = Solution({k: v[:: MOST_POINTS // 2] if several and k == "t" else v for k, v in axes.items()}, {})
    for axis in problem.ranges:
        found = found.at(axis, np.array([len(found.grid[axis]) // 2]))
    few = TIMES if len(found.grid) - len(problem.ranges) > 2 else MOST_POINTS
    for axis, values in found.grid.items():
        most = few if axis == "t" else MOST_POINTS
        if len(values) > most:
            found = found.at(axis, np.unique(np.linspace(0, len(values) - 1, most).round().astype(int)))
    return found


def _residuals(task: PdeTask, points: Array) -> dict[str, Array]:
    problem = task.truth
    network: Any = task.network  # one, or one for each window of time
    rows = torch.as_tensor(points).to(next(network.parameters()))
    # What couples all points (a quirk of the scripts, batch statistics) must see them at once.
    size = len(rows) if problem.needs_everywhere or network.batch_norm else CHUNK
    parts: dict[str, list[np.ndarray]] = {}
    for part in rows.split(size):
        partials = network.partials(network.at(part, problem.wanted))
        for name, residual in problem.evaluate(partials, part).items():
            parts.setdefault(name, []).append(residual.detach().double().cpu().numpy())
    return {name: np.concatenate(found) for name, found in parts.items()}


# ---- charts ----------------------------------------------------------------------------------------------------------


def figures(found: Fields) -> list[list[Figure]]:
    """Rows of charts: network, reference and error of each field; residuals; slices and the error over time."""
    rows: list[list[Figure]] = []
    if len(found.space) == 1 and "t" in found.grid:
        rows = _maps(found, "t", found.space[0], None, "")
    elif len(found.space) == 2:
        times = found.grid.get("t", np.empty(0))
        for n in range(max(len(times), 1)):
            at = f", t = {times[n]:.3g}" if len(times) else ""
            rows += _maps(found, found.space[0], found.space[1], n if len(times) else None, at)
    more = [*_slices(found), *_over_time(found), *_phases(found)]
    if rows and len(rows[-1]) == 1:  # a single residual shares its row
        return [*rows[:-1], [*rows[-1], *more]]
    return [*rows, more]


def _maps(found: Fields, x: str, y: str, time: int | None, at: str) -> list[list[Figure]]:
    """Maps over (x, y); `time` picks one where arrays have a third axis."""
    axes = list(found.grid)

    def plane(values: Array) -> Array:
        part = values if time is None else values[..., time]
        return part if axes.index(x) < axes.index(y) else part.T

    x_axis, y_axis = (x, found.grid[x]), (y, found.grid[y])
    rows = []
    for name, values in found.network.items():
        mine = plane(values)
        theirs = plane(found.reference[name]) if name in found.reference else None
        low, high = _limits(mine if theirs is None else theirs)
        maps = [heat_map(f"{name}{at}: network", mine, x_axis, y_axis, low, high)]
        if theirs is not None:
            maps.append(heat_map(f"{name}{at}: reference", theirs, x_axis, y_axis, low, high))
            maps.append(_signed(f"{name}{at}: error", mine - theirs, x_axis, y_axis, "network − reference"))
        rows.append(maps)
    note = "Left side minus right side of the equation; 0 for a solution."
    rows.append(
        [_signed(f"residual of {name}{at}", plane(r), x_axis, y_axis, note) for name, r in found.residuals.items()]
    )
    return rows


def _limits(values: Array) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _signed(title: str, values: Array, x: tuple[str, Array], y: tuple[str, Array], note: str) -> Figure:
    finite = np.abs(values[np.isfinite(values)])
    reach = float(np.quantile(finite, 0.995)) if finite.size and finite.max() > 0 else 1.0
    return heat_map(title, values, x, y, -reach, reach, DIVERGING, note)


def _slices(found: Fields) -> list[Figure]:
    """Each field along the first axis (through the middle of the others) at a few times."""
    axes = list(found.grid)
    along = found.space[0] if found.space else "t"
    times = found.grid.get("t") if found.space else None
    chosen = [0] if times is None else np.unique(np.linspace(0, len(times) - 1, SLICES).round().astype(int)).tolist()
    figures = []
    for name, values in found.network.items():
        chart = Chart(along, name)
        for colour, n in enumerate(chosen):
            cut = tuple(slice(None) if a == along else n if a == "t" else len(found.grid[a]) // 2 for a in axes)
            label = "network" if times is None else f"t = {times[n]:.3g}"
            chart.line(found.grid[along], values[cut], colour, label)
            if name in found.reference:
                chart.line(found.grid[along], found.reference[name][cut], colour, style="reference")
        middle = [f"{a} = {found.grid[a][len(found.grid[a]) // 2]:.2g}" for a in found.space[1:]]
        where = f" at {', '.join(middle)}" if middle else ""
        dotted = " Dotted: reference." if name in found.reference else ""
        if not chart.empty:
            figures.append(chart.figure(f"{name} along {along}{where}", f"Solid: network.{dotted}"))
    return figures


def _phases(found: Fields) -> list[Figure]:
    """Of an ordinary equation: each field against the next."""
    names = [] if found.space else list(found.network)
    figures = []
    for a, b in itertools.pairwise(names):
        chart = Chart(a, b)
        chart.line(found.network[a], found.network[b], 0, "network")
        if a in found.reference and b in found.reference:
            chart.line(found.reference[a], found.reference[b], 0, style="reference")
        figures.append(chart.figure(f"{b} against {a}", "Solid: network. Dotted: reference."))
    return figures


def _over_time(found: Fields) -> list[Figure]:
    """nRMSE at every time, beside that of the constant that knows the mean of each field."""
    if "t" not in found.grid or not found.space or not found.reference or len(found.grid["t"]) < 5:
        return []
    truth = np.stack(list(found.reference.values()))  # (fields, …, t)
    mine = np.stack([found.network[name] for name in found.reference])
    constant = np.broadcast_to(
        np.nanmean(truth.reshape(len(truth), -1), 1).reshape(-1, *[1] * (truth.ndim - 1)), truth.shape
    )
    times = found.grid["t"]
    chart = Chart("t", "nRMSE", log_y=True)
    for values, colour, label, style in ((mine, 0, "network", "line"), (constant, 7, "best constant", "dashed")):
        late = [nrmse(values[..., n], truth[..., n], timed=False).mean() for n in range(len(times))]
        chart.line(times, late, colour, label, style)
    return [chart.figure("Error over time", "Root mean square error over that of the reference, mean over fields.")]


def error_rows(entry: ReportedRun) -> list[tuple[str, float]]:
    """(name, value) of the errors that belong side by side."""
    names = {
        "nrmse": "nRMSE, last 20 times",
        "constant_nrmse": "nRMSE of the best constant",
        "nrmse_domain": "nRMSE, all times",
        "mse": "MSE",
        "loss": "loss on fresh points",
    }
    found = [(title, entry.test[key]) for key, title in names.items() if isinstance(entry.test.get(key), float)]
    for key, value in entry.test.items():
        if isinstance(value, float) and key.startswith(("nrmse_", "residual_rms_", "parameter_")) and key not in names:
            found.append((key.replace("_", " "), value))
    return found + [(f"nRMSE, {label}", value) for label, value in entry.test.get("by_parameter", {}).items()]


def over_range(errors: dict[str, float]) -> list[Figure]:
    """The error against a parameter that has a range, if it is one."""
    named = [label.split("=") for label in errors]
    if any(len(each) != 2 for each in named):
        return []
    chart = Chart(named[0][0], "nRMSE", log_y=True)
    chart.line([float(value) for _, value in named], list(errors.values()), 0, "network")
    return [chart.figure(f"Error over the range of {named[0][0]}", "Fields are shown at the middle of the range.")]
