"""Several runs as one number, and whether two of them differ: the one place that says so.

Two means differ "beyond the spread" if Welch's 95 % interval of their difference leaves out zero: of two set-ups that
are the same, one pair in twenty does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, Literal

from dcnn.results.metrics import Metric, short, shown_metrics, with_spread

LEVEL = 0.05  # how often set-ups that do not differ are said to
RunRecord = Mapping[str, Any]  # labels, "seed", "status" and "test"
Direction = Literal["better", "worse", "equal"]


@dataclass(frozen=True)
class Stat:
    """The values of one error over runs, by seed."""

    values: tuple[float, ...]
    seeds: tuple[Any, ...] = ()

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def spread(self) -> float | None:
        """Sample standard deviation; None for a single run."""
        return stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        return with_spread(self.mean, self.spread)


@dataclass(frozen=True)
class Verdict:
    """How an error compares with another. `beyond` is None, and there is no interval, where a spread is not known."""

    direction: Direction
    text: str
    beyond: bool | None = None
    interval: tuple[float, float] | None = None  # of the difference of the means, 95 %
    degrees_of_freedom: float | None = None
    paired: bool = False

    @property
    def certainty(self) -> str:
        if self.interval is None or self.degrees_of_freedom is None:
            return "spread unknown"
        words = "beyond the spread" if self.beyond else "within the spread"
        low, high = (short(end) for end in self.interval)
        pairs = "paired by seed, " if self.paired else ""
        return f"{words} (difference {low} to {high}, {pairs}{self.degrees_of_freedom:.1f} degrees of freedom)"


@dataclass(frozen=True)
class ErrorCell:
    """One error of one row: ours, the published one, and both compared with the reference row."""

    metric: Metric
    stat: Stat | None
    published: float | None = None
    verdict: Verdict | None = None
    published_verdict: Verdict | None = None
    best: bool = False
    ratio: float | None = None
    published_ratio: float | None = None

    @property
    def agrees(self) -> bool | None:
        """Whether the comparison goes the published way; None if one of the two is not known."""
        if self.verdict is None or self.published_verdict is None:
            return None
        return self.verdict.direction == self.published_verdict.direction

    def to_dict(self) -> dict[str, Any]:
        assert self.stat is not None
        found = {"mean": self.stat.mean, "spread": self.stat.spread, "published": self.published}
        if self.verdict is None:
            return found
        return found | {
            "ratio": self.ratio,
            "beyond": self.verdict.beyond,
            "interval": self.verdict.interval,
            "degrees_of_freedom": self.verdict.degrees_of_freedom,
            "published_ratio": self.published_ratio,
            "same_way": self.agrees,
        }


@dataclass(frozen=True)
class ResultRow:
    """Runs that differ in nothing but their seed, their errors, and the row they are compared with."""

    labels: dict[str, Any]
    runs: tuple[RunRecord, ...]
    cells: tuple[ErrorCell, ...]
    reference: ResultRow | None = None

    def cell(self, name: str) -> ErrorCell | None:
        """The error of this name, if a run has it."""
        return next((cell for cell in self.cells if cell.metric.name == name and cell.stat is not None), None)

    @property
    def count(self) -> str:
        """How many runs there are, and what became of those that are no use."""
        notes = [f"{number} {word}" for word in ("diverged", "unfinished") if (number := self.number_of(word))]
        notes += [
            f"{number} collapsed" for number in [sum(bool(r["test"].get("collapsed")) for r in self.runs)] if number
        ]
        return f"{len(self.runs)} ({', '.join(notes)})" if notes else str(len(self.runs))

    def number_of(self, status: str) -> int:
        return sum(run["status"] == status for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        errors = {cell.metric.name: cell.to_dict() for cell in self.cells if cell.stat is not None}
        against = {"against": self.reference.labels} if self.reference else {}
        return {
            **self.labels,
            "runs": len(self.runs),
            "diverged": self.number_of("diverged"),
            **against,
            "errors": errors,
        }


def summarise(
    runs: Sequence[RunRecord],
    by: Sequence[str],
    reference: str | None = None,
    published: Mapping[tuple[Any, ...], Mapping[str, float]] | None = None,
    paired: bool = False,
) -> list[ResultRow]:
    """A row for each combination of the labels `by`, in the order of the runs.

    A row is compared with the one of the `reference` recipe (standard, or else original) that shares most labels, the
    first of them (what the data are) in any case; where that recipe was not run, with the best. published: errors by
    the values of `by`. paired: differences are taken seed by seed. Diverged runs are counted, not averaged.
    """
    metrics = [metric for metric in shown_metrics(run["test"] for run in runs) if metric.name != "nrmse_domain"]
    members: dict[tuple[Any, ...], list[RunRecord]] = {}
    for run in runs:
        members.setdefault(tuple(run.get(label) for label in by), []).append(run)
    plain = [
        ResultRow(
            dict(zip(by, key, strict=True)),
            tuple(same),
            tuple(ErrorCell(m, statistic(same, m), (published or {}).get(key, {}).get(m.name)) for m in metrics),
        )
        for key, same in members.items()
    ]
    rows = []
    for row in plain:
        rivals = [other for other in plain if by[0] == "recipe" or other.labels[by[0]] == row.labels[by[0]]]
        against = _reference_of(row, rivals, reference)
        cells = []
        for index, cell in enumerate(row.cells):
            others = [other.cells[index].stat for other in rivals]
            cell = replace(cell, best=len(plain) > 1 and _is_best(cell, others))
            cells.append(_compared(cell, against.cells[index], paired) if against else cell)
        rows.append(replace(row, cells=tuple(cells), reference=against))
    return rows


def statistic(runs: Sequence[RunRecord], metric: Metric) -> Stat | None:
    """Over the runs that did not diverge and have the error."""
    good = [
        run for run in runs if run["status"] != "diverged" and isinstance(run["test"].get(metric.name), (int, float))
    ]
    values = tuple(float(run["test"][metric.name]) for run in good)
    return Stat(values, tuple(run.get("seed") for run in good)) if good else None


def compare(metric: Metric, ours: Stat, theirs: Stat, paired: bool = False) -> Verdict:
    """Welch's interval of the difference of two means, or that of the mean difference of runs with the same seed.

    >>> force = Metric("f", "force MAE")
    >>> compare(force, Stat((1.0, 1.1, 0.9)), Stat((3.0, 3.2, 2.8))).certainty
    'beyond the spread (difference −2.42 to −1.58, 2.9 degrees of freedom)'
    >>> compare(force, Stat((1.0, 2.0)), Stat((2.0, 3.5))).beyond
    False
    """
    direction, text = _direction(metric, ours.mean, theirs.mean), _how_much(ours.mean, theirs.mean)
    difference = ours.mean - theirs.mean
    by_seed = dict(zip(theirs.seeds, theirs.values, strict=False))
    shared = [value - by_seed[seed] for seed, value in zip(ours.seeds, ours.values, strict=False) if seed in by_seed]
    if paired and len(shared) > 1:
        difference, error, freedom = fmean(shared), stdev(shared) / math.sqrt(len(shared)), float(len(shared) - 1)
    elif ours.spread is None or theirs.spread is None:
        return Verdict(direction, text)
    else:
        paired = False
        variances = [stat.spread**2 / len(stat.values) for stat in (ours, theirs)]  # type: ignore[operator]
        error = math.sqrt(sum(variances))
        parts = zip(variances, (ours, theirs), strict=True)
        below = sum(variance**2 / (len(stat.values) - 1) for variance, stat in parts)
        freedom = error**4 / below if below else float(len(ours.values) + len(theirs.values) - 2)
    reach = _quantile(freedom) * error
    interval = (difference - reach, difference + reach)
    return Verdict(direction, text, not interval[0] <= 0 <= interval[1], interval, freedom, paired)


def _quantile(freedom: float) -> float:
    """Of Student's t, two-sided."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - LEVEL / 2))


def _compared(cell: ErrorCell, reference: ErrorCell, paired: bool) -> ErrorCell:
    metric, ours, theirs = cell.metric, cell.stat, reference.stat
    if not metric.compared:
        return cell
    if ours and theirs:
        ratio = ours.mean / theirs.mean if theirs.mean else None
        cell = replace(cell, verdict=compare(metric, ours, theirs, paired), ratio=ratio)
    if cell.published is not None and reference.published is not None:
        paper = Verdict(_direction(metric, *(pair := (cell.published, reference.published))), _how_much(*pair))
        ratio = cell.published / reference.published if reference.published else None
        cell = replace(cell, published_verdict=paper, published_ratio=ratio)
    return cell


def _direction(metric: Metric, ours: float, theirs: float) -> Direction:
    if ours == theirs:
        return "equal"
    return "better" if (ours < theirs) == metric.lower_is_better else "worse"


def _how_much(ours: float, theirs: float) -> str:
    if ours == theirs:
        return "equal"
    side = "lower" if ours < theirs else "higher"
    if min(ours, theirs) <= 0:
        return f"{short(abs(ours - theirs))} {side}"
    ratio = max(ours, theirs) / min(ours, theirs)
    return f"{abs(ours / theirs - 1) * 100:.0f} % {side}" if ratio < 1.995 else f"{short(ratio, 2)}× {side}"


def _reference_of(row: ResultRow, rivals: Sequence[ResultRow], recipe: str | None) -> ResultRow | None:
    """The row to compare with; None for the reference itself, and for a recipe in several variants with its own."""
    run = [other.labels["recipe"] for other in rivals]
    recipe = recipe or next((name for name in ("standard", "original") if name in run), None)
    named = [other for other in rivals if other.labels["recipe"] == recipe]
    if named:
        shared = [sum(row.labels[key] == other.labels[key] for key in row.labels) for other in named]
        return None if row.labels["recipe"] == recipe else named[shared.index(max(shared))]
    best = next(
        (other for other in rivals if other.cells and _is_best(other.cells[0], [r.cells[0].stat for r in rivals])), None
    )
    return None if best is row else best


def _is_best(cell: ErrorCell, rivals: Sequence[Stat | None]) -> bool:
    means = [stat.mean for stat in rivals if stat is not None]
    best = (min if cell.metric.lower_is_better else max)(means, default=None)
    return cell.stat is not None and cell.metric.compared and cell.stat.mean == best and means.count(best) == 1
