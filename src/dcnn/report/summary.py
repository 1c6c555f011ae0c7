"""What the runs say: mean and spread over seeds, which way a comparison goes, and whether it exceeds the spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from dcnn.report.entries import RunGroup, ranking, shown_metrics
from dcnn.report.numbers import short, with_spread
from dcnn.results.metrics import Metric

Published = Mapping[tuple[str, ...], Mapping[str, float]]


@dataclass(frozen=True)
class Stat:
    """Mean over seeds and sample standard deviation (None for a single run)."""

    mean: float
    spread: float | None
    values: tuple[float, ...]

    def __str__(self) -> str:
        return with_spread(self.mean, self.spread)


@dataclass(frozen=True)
class Verdict:
    """How an error compares with the reference's. `beyond` is None where a spread is not known."""

    direction: Literal["better", "worse", "equal"]
    text: str
    beyond: bool | None = None

    @property
    def certainty(self) -> str:
        return {True: "beyond the spread", False: "within the spread", None: "spread unknown"}[self.beyond]


@dataclass(frozen=True)
class ErrorCell:
    """One error of one group: ours, the published one, and both compared with the reference row."""

    metric: Metric
    stat: Stat | None
    published: float | None = None
    verdict: Verdict | None = None
    published_verdict: Verdict | None = None
    best: bool = False

    @property
    def agrees(self) -> bool | None:
        """Whether the comparison goes the published way; None if one of the two is not known."""
        if self.verdict is None or self.published_verdict is None:
            return None
        return self.verdict.direction == self.published_verdict.direction


@dataclass(frozen=True)
class Row:
    group: RunGroup
    cells: tuple[ErrorCell, ...]
    reference: RunGroup | None  # what this row is compared with; None for the reference itself

    @property
    def runs(self) -> str:
        count = len(self.group.entries)
        notes = []
        for word in ("diverged", "unfinished"):
            number = sum(entry.status == word for entry in self.group.entries)
            notes += [f"{number} {word}"] if number else []
        return f"{count} ({', '.join(notes)})" if notes else str(count)


def summarise(groups: Sequence[RunGroup], published: Published | None = None, reference: str = "original") -> list[Row]:
    """A row for each group; it is compared with the `reference` recipe on the same data, or else with the best."""
    entries = [entry for group in groups for entry in group.entries]
    metrics = [m for m in shown_metrics(entries) if m.name != "nrmse_domain"]
    stats = {id(group): {m.name: statistic(group, m) for m in metrics} for group in groups}
    known = published or {}
    rows = []
    for group in groups:
        against = _reference_of(group, groups, reference)
        cells = []
        for metric in metrics:
            ours = stats[id(group)][metric.name]
            theirs = stats[id(against)][metric.name] if against else None
            paper = _published(known, group, metric)
            paper_reference = _published(known, against, metric) if against else None
            rivals = [stats[id(g)][metric.name] for g in groups if g.data == group.data]
            compared = metric.name != "constant_nrmse"
            cells.append(
                ErrorCell(
                    metric,
                    ours,
                    paper,
                    compare(metric, ours, theirs) if ours and theirs and compared else None,
                    _compare_numbers(metric, paper, paper_reference),
                    best=compared and ours is not None and len(groups) > 1 and _is_best(metric, ours, rivals),
                )
            )
        rows.append(Row(group, tuple(cells), against))
    return rows


def statistic(group: RunGroup, metric: Metric) -> Stat | None:
    """Over the runs that did not diverge."""
    found = [value for value in (entry.error(metric) for entry in group.entries) if value is not None]
    if not found:
        return None
    return Stat(fmean(found), stdev(found) if len(found) > 1 else None, tuple(found))


def compare(metric: Metric, ours: Stat, theirs: Stat) -> Verdict:
    """The difference of two means exceeds the spread if it is larger than √(s₁² + s₂²).

    >>> force = Metric("f", "force MAE")
    >>> compare(force, Stat(1.0, 0.1, ()), Stat(3.0, 0.2, ()))
    Verdict(direction='better', text='3× lower', beyond=True)
    """
    beyond = None
    if ours.spread is not None and theirs.spread is not None:
        beyond = abs(ours.mean - theirs.mean) > math.hypot(ours.spread, theirs.spread)
    return Verdict(_direction(metric, ours.mean, theirs.mean), _how_much(ours.mean, theirs.mean), beyond)


def _compare_numbers(metric: Metric, ours: float | None, theirs: float | None) -> Verdict | None:
    if ours is None or theirs is None:
        return None
    return Verdict(_direction(metric, ours, theirs), _how_much(ours, theirs))


def _direction(metric: Metric, ours: float, theirs: float) -> Literal["better", "worse", "equal"]:
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


def _reference_of(group: RunGroup, groups: Sequence[RunGroup], recipe: str) -> RunGroup | None:
    """The group to compare with: same data and, if possible, same model and variant; None for itself."""
    rivals = [g for g in groups if g.data == group.data]
    named = [g for g in rivals if g.recipe == recipe]
    if named:
        chosen = max(named, key=lambda g: (g.model == group.model, g.variant == group.variant))
        # A recipe that was run in several variants is not compared with one of its own.
        return None if group.recipe == recipe else chosen
    metric = ranking([entry for g in rivals for entry in g.entries])
    scored = [(stat.mean, n) for n, g in enumerate(rivals) if metric and (stat := statistic(g, metric))]
    if metric is None or not scored:
        return None
    best = rivals[(min if metric.lower_is_better else max)(scored)[1]]
    return None if best is group else best


def _published(known: Published, group: RunGroup, metric: Metric) -> float | None:
    return known.get(group.key, {}).get(metric.name)


def _is_best(metric: Metric, ours: Stat, rivals: Sequence[Stat | None]) -> bool:
    means = [stat.mean for stat in rivals if stat is not None]
    best = (min if metric.lower_is_better else max)(means)
    return ours.mean == best and means.count(best) == 1
