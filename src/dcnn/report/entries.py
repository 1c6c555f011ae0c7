"""The runs of a page, and what tells them apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dcnn.errors import InputError
from dcnn.results import config_of
from dcnn.results.metrics import METRICS, Metric
from dcnn.train import Run
from dcnn.train.config import RunConfig

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


@dataclass(frozen=True)
class RunGroup:
    """Runs that differ in nothing but their seed."""

    data: str
    model: str
    recipe: str
    variant: str
    entries: tuple[ReportedRun, ...] = field(repr=False)

    @property
    def key(self) -> tuple[str, ...]:
        """What published numbers are looked up by: (data, model, recipe), and the variant if there is one."""
        return (self.data, self.model, self.recipe, *([self.variant] if self.variant else []))

    def label(self, others: Sequence[RunGroup]) -> str:
        """The parts of the key that tell this group from the others."""
        columns = zip(*((g.data, g.model, g.recipe, g.variant) for g in others), strict=True)
        own = (self.data, self.model, self.recipe, self.variant)
        parts = [part for part, column in zip(own, columns, strict=True) if len(set(column)) > 1 and part]
        return " · ".join(parts) or self.recipe

    @property
    def typical(self) -> ReportedRun:
        """The run with the middle error: what a page looks at closely."""
        metric = ranking(self.entries)
        scored = [(e.error(metric), n) for n, e in enumerate(self.entries)] if metric else []
        good = sorted((score, n) for score, n in scored if score is not None)
        return self.entries[good[(len(good) - 1) // 2][1]] if good else self.entries[0]


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


def groups(entries: Sequence[ReportedRun]) -> list[RunGroup]:
    """Runs that share everything but the seed, in the order in which they were given.

    Runs of the same data, model and recipe whose configurations differ (a weight, a number of frames) become
    groups of their own, told apart by the keys that differ.
    """
    flat = {id(e): flatten(e.config.to_dict()) for e in entries}
    found: dict[tuple[str, str, str, str], list[ReportedRun]] = {}
    for entry in entries:
        name = (entry.data, entry.model, entry.recipe)
        same = [flat[id(e)] for e in entries if (e.data, e.model, e.recipe) == name]
        mine = flat[id(entry)]
        keys = dict.fromkeys(key for other in same for key in other if key not in _NOT_A_VARIANT)
        differing = [key for key in keys if any(other.get(key) != mine.get(key) for other in same)]
        variant = ", ".join(f"{key}={mine.get(key)}" for key in differing[:3])
        found.setdefault((*name, variant), []).append(entry)
    return [RunGroup(*key, entries=tuple(members)) for key, members in found.items()]


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


def shown_metrics(entries: Sequence[ReportedRun]) -> list[Metric]:
    """The errors of `METRICS` that at least one run has."""
    return [metric for metric in METRICS if any(metric.name in entry.test for entry in entries)]


def ranking(entries: Sequence[ReportedRun]) -> Metric | None:
    """The error by which runs are put in order."""
    shown = shown_metrics(entries)
    return shown[0] if shown else None
