"""Several runs as one number: mean and spread over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Any

from dcnn.results.metrics import METRICS

NAMES = tuple(metric.name for metric in METRICS)


def table(
    runs: Sequence[dict[str, Any]], by: Sequence[str] = ("model", "recipe"), names: Iterable[str] = NAMES
) -> list[dict[str, Any]]:
    """One row per model and recipe: {model, recipe, runs, errors: {name: (mean, spread)}}; spread is None for one run.

    by: the labels that a row stands for. A diverged run counts as a run but not in the mean; `diverged` says how many
    there were.
    """
    rows = []
    for key in dict.fromkeys(tuple(run.get(label) for label in by) for run in runs):
        same = [run for run in runs if tuple(run.get(label) for label in by) == key]
        good = [run for run in same if run["status"] != "diverged"]
        errors = {}
        for name in names:
            values = [run["test"][name] for run in good if isinstance(run["test"].get(name), float)]
            if values:
                errors[name] = (mean(values), stdev(values) if len(values) > 1 else None)
        labels = dict(zip(by, key, strict=True))
        rows.append({**labels, "runs": len(same), "diverged": len(same) - len(good), "errors": errors})
    return rows
