"""A close look at one run: curves, predictions against labels or reference, audit, configuration."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any

from dcnn.auditing import Audit
from dcnn.errors import InputError
from dcnn.report import atoms_charts as potential
from dcnn.report import pde_charts as pde
from dcnn.report.chart import Figure
from dcnn.report.curves import own_validation_curves, term_curves
from dcnn.report.molecule import molecule
from dcnn.report.reported_run import ReportedRun
from dcnn.report.ticks import duration
from dcnn.results import TrainedRun
from dcnn.results.metrics import short
from dcnn.train.text import to_yaml


@dataclass
class RunSection:
    """What the template shows of one run."""

    title: str
    entry: ReportedRun
    facts: list[tuple[str, str]] = field(default_factory=list)
    curves: list[Figure] = field(default_factory=list)
    figures: list[list[Figure]] = field(default_factory=list)  # rows
    elements: list[dict[str, Any]] = field(default_factory=list)
    errors: list[tuple[str, float]] = field(default_factory=list)
    molecule: dict[str, Any] | None = None
    audit: Audit | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def config(self) -> str:
        return to_yaml(self.entry.config.to_dict())

    @property
    def command(self) -> str:
        folder = self.entry.run.folder
        if self.entry.status == "unfinished":
            return f"dcnn train --resume {shlex.quote(str(folder))}"
        return f"dcnn train {shlex.quote(str(folder / 'config.yaml'))} -o {shlex.quote(f'{folder}-again')}"


def examine(
    entry: ReportedRun, title: str = "", alone: bool = False, trust: bool = False, model: Any = None
) -> RunSection:
    """Everything about one run; what cannot be had (its data file is gone, say) is noted and left out.

    alone: validation curves are shown here, because there is no comparison that shows them. trust: a Python file that
    the run names may be run for its predictions.
    """
    section = RunSection(title or entry.name, entry, _facts(entry), term_curves(entry))
    if alone:
        section.curves += own_validation_curves(entry)
    if entry.diverged:
        step = entry.values.get("steps", "?")
        section.notes.append(f"Diverged: the loss was no number any more at step {step}. There is nothing to compare.")
        return section
    if not entry.run.best.exists():
        section.notes.append("No checkpoint yet: predictions are shown once the first epoch is through.")
        return section
    try:
        run = TrainedRun(entry.run, trust, model)
        _PREDICTIONS[entry.config.kind](section, run.task)
        section.audit = run.audit()
    except InputError as error:
        section.notes.append(f"Predictions and audit are left out: {error}")
    return section


def _facts(entry: ReportedRun) -> list[tuple[str, str]]:
    values = entry.values
    found = [("status", entry.status), ("data", entry.data), ("model", entry.model), ("recipe", entry.recipe)]
    found.append(("seed", str(entry.seed)))
    if values:
        found += [
            ("parameters", f"{values['parameters']:,}".replace(",", "\u202f")),
            ("steps", f"{values['steps']:,}".replace(",", "\u202f")),
            ("training time", duration(values["seconds"])),
            ("of it for compiling", duration(values.get("graph_seconds", 0.0))),
            ("dcnn, torch", f"{values['dcnn_version']}, {values['torch_version']}"),
        ]
    return found


def _potential(section: RunSection, task: Any) -> None:
    found = potential.predict(task)
    section.figures = [potential.figures(found)]
    section.elements = potential.element_table(found)
    section.molecule = molecule(found)


def _field(section: RunSection, task: Any) -> None:
    section.errors = pde.error_rows(section.entry)
    test = section.entry.test
    if test.get("collapsed"):
        section.notes.append(
            "Collapsed: the network is one constant everywhere (DC901). It has not learnt the equation."
        )
    elif (test.get("nrmse") or 0) >= (test.get("constant_nrmse") or float("inf")):
        ours, constant = short(test["nrmse"]), short(test["constant_nrmse"])
        section.notes.append(f"No better than a constant: nRMSE {ours} against {constant} for the mean of each field.")
    if task.reference is None:
        section.notes.append("This problem has no reference solution: fields and residuals are shown without errors.")
    section.figures = pde.figures(pde.evaluate(task))
    if test.get("by_parameter"):
        section.figures.append(pde.over_range(test["by_parameter"]))


def _points(section: RunSection, task: Any) -> None:
    """Errors of values and derivatives beside those of a constant."""
    names = [name.removeprefix("rmse_") for name in section.entry.test if name.startswith("rmse_")]
    for name in names:
        section.errors.append((f"rms error of {name}", section.entry.test[f"rmse_{name}"]))
        section.errors.append((f"rms error of {name}, constant", section.entry.test[f"constant_rmse_{name}"]))


_PREDICTIONS = {"atoms": _potential, "pde": _field, "sobolev": _points}
