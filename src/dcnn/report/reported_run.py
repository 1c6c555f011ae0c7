"""The runs of a page, and what tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dcnn.errors import InputError
from dcnn.results import config_of
from dcnn.results.metrics import Metric
from dcnn.results.statistics import ResultRow
from dcnn.train import Run
from dcnn.train.config import RunConfig

LABELS = ("data", "model", "recipe", "variant")
_NOT_A_VARIANT = ("seed", "recipe", "training.threads", "training.loggers", "training.devices")


@dataclass(frozen=True)
class ReportedRun:
    """One run: its configuration, its result (empty while it is not finished) and its learning curves."""

    run: Run
    config: RunConfig
    values: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> ReportedRun:
        run = Run.open(folder)
        values = run.result().values if run.result_file.exists() else {}
        return cls(run, config_of(run), values)

    @property
    def name(self) -> str:
        return self.run.folder.resolve().name

    @property
    def data(self) -> str:
        return Path(self.config.data_name).stem

    @property
    def model(self) -> str:
        return self.config.model_name

    @property
    def recipe(self) -> str:
        return self.config.recipe

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def status(self) -> str:
        return self.values.get("status", "unfinished")

    @property
    def diverged(self) -> bool:
        return self.status == "diverged"

    @property
    def test(self) -> dict[str, Any]:
        """Errors on the test frames, or against the reference; None for what is not a number."""
        return self.values.get("test", {})

    def error(self, metric: Metric) -> float | None:
        value = self.test.get(metric.name)
        return float(value) if isinstance(value, (int, float)) and not self.diverged else None

    @cached_property
    def metrics(self) -> list[dict[str, float]]:
        return self.run.metrics()


def entries_of(rows: Iterable[ResultRow]) -> list[ReportedRun]:
    return [run["entry"] for row in rows for run in row.runs]


def label_of(row: ResultRow, others: Sequence[ResultRow]) -> str:
    """The labels that tell this row from the others."""
    parts = [str(value) for key, value in row.labels.items() if len({other.labels[key] for other in others}) > 1]
    return " · ".join(part for part in parts if part) or row.labels["recipe"]


def typical(row: ResultRow) -> ReportedRun:
    """The run with the middle error: what a page looks at closely."""
    entries = entries_of([row])
    scored = [(e.error(row.cells[0].metric), n) for n, e in enumerate(entries)] if row.cells else []
    good = sorted((score, n) for score, n in scored if score is not None)
    return entries[good[(len(good) - 1) // 2][1]] if good else entries[0]


def find_runs(paths: Iterable[Path | str]) -> list[ReportedRun]:
    """The runs in these folders: each is a run, or holds runs at any depth (as `dcnn compare` leaves them)."""
    found: dict[Path, ReportedRun] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"{path}: no such folder; give run folders, or a folder that holds them")
        inside = [path] if (path / "config.yaml").exists() else sorted(p.parent for p in path.rglob("config.yaml"))
        if not inside:
            raise InputError(f"{path}: holds no run (no config.yaml); runs are made by `dcnn train` and `dcnn compare`")
        for folder in inside:
            found.setdefault(folder.resolve(), ReportedRun.read(folder))
    if not found:
        raise InputError("give at least one run folder")
    return list(found.values())


def records(entries: Sequence[ReportedRun]) -> list[dict[str, Any]]:
    """What :func:`dcnn.results.statistics.summarise` takes, labelled by data, model, recipe and variant.

    Runs of the same data, model and recipe whose configurations differ (a weight, a number of frames) have variants,
    named by the keys that differ.
    """
    flat = {id(e): flatten(e.config.to_dict()) for e in entries}
    found = []
    for entry in entries:
        name = (entry.data, entry.model, entry.recipe)
        same = [flat[id(e)] for e in entries if (e.data, e.model, e.recipe) == name]
        mine = flat[id(entry)]
        keys = dict.fromkeys(key for other in same for key in other if key not in _NOT_A_VARIANT)
        differing = [key for key in keys if any(other.get(key) != mine.get(key) for other in same)]
        variant = ", ".join(f"{key}={mine.get(key)}" for key in differing[:3])
        labels = dict(zip(LABELS, (*name, variant), strict=True))
        found.append({**labels, "seed": entry.seed, "status": entry.status, "test": entry.test, "entry": entry})
    return found


def flatten(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """
    >>> flatten({"seed": 0, "loss": {"energy": {"weight": 1}}})
    {'seed': 0, 'loss.energy.weight': 1}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{before}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat
