"""Search for hyper-parameters: configurations are drawn, trained as a grid, and given up when they lag behind."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.atoms.config import AtomsConfig
from dcnn.errors import DcnnError, InputError
from dcnn.grid import engine
from dcnn.grid.cells import GridCell
from dcnn.grid.halving import Halving
from dcnn.grid.space import Space, corner, drawn, overrides, split_space
from dcnn.grid.store import Store, local_copy
from dcnn.pde.config import PdeConfig
from dcnn.results import resolve
from dcnn.safe_files import write_whole
from dcnn.train.text import to_yaml

#: (what decides which weights are kept, what trials are compared by): neither depends on weights of the loss that a
#: trial may have drawn for itself.
MONITORED = (
    ("validation_force_mae_kcal_mol_A", "validation_force_mae_kcal_mol_A"),
    ("validation_loss", "validation_unit_loss"),
)


@dataclass(frozen=True)
class SearchPlan:
    """What is searched: a target, its recipe, what all trials share, and the space of the rest."""

    target: str
    recipe: str | None
    model: str | None
    seed: int
    fixed: tuple[str, ...]
    space: Space

    def config(self, sample: dict[str, Any]) -> AtomsConfig | PdeConfig:
        words = [*self.fixed, *overrides(sample), *([f"recipe={self.recipe}"] if self.recipe else [])]
        return resolve(self.target, None, words, model=self.model, seed=self.seed)

    def cells(self, samples: int) -> list[tuple[GridCell, dict[str, Any]]]:
        """The trials and what was drawn for them: the first ones of a longer search are those of a shorter one."""
        random = np.random.default_rng(self.seed)
        found = [drawn(self.space, random) for _ in range(samples)]
        return [(GridCell({"trial": f"trial-{n:05d}"}, self.config(sample)), sample) for n, sample in enumerate(found)]


def define(
    target: str, pairs: Sequence[str], recipe: str | None = None, model: str | None = None, seed: int = 0
) -> SearchPlan:
    """A search from the words of the command line, checked."""
    space, fixed = split_space(pairs)
    for key, (_, arguments) in space.items():
        if key.startswith("loss.weights") and 0 in arguments:
            raise InputError(f"{key}: a term of weight 0 is not computed, and its trial would win; take a small weight")
    plan = SearchPlan(target, recipe, model, seed, tuple(fixed), space)
    plan.config(corner(space))
    return plan


def run_search(
    plan: SearchPlan,
    folder: str | Path,
    samples: int,
    on: str = "local",
    jobs: int | None = None,
    watch: engine.Watch = lambda running, done: None,
) -> list[dict[str, Any]]:
    """Trains `samples` trials in `folder/trial-…`, writes best.yaml, and returns the trials, best first.

    Each is {trial, folder, status, score, budget_percent, sample}; `score` is the validation error of the weights that
    are kept: of forces, or the loss of a PDE network with weight 1 for every term in its natural unit. The test set is
    no part of it. Status "stopped" means that the trial lagged behind. The same call goes on with what is there.
    """
    if samples < 1:
        raise InputError(f"--samples {samples}: a search needs at least one trial")
    trials = plan.cells(samples)
    configs = {cell.name: cell.config for cell, _ in trials}
    halving, store, lagging = Halving(), Store(folder), set[str]()

    def look(names: Iterable[str]) -> set[str]:
        seen = [name for name in names if halving.lags(name, history(store.read(name, "metrics.csv"), configs[name]))]
        lagging.update(seen)
        return lagging

    look(configs)  # what an interrupted search has left
    engine.compute([cell for cell, _ in trials if cell.name not in lagging], folder, on, jobs, watch, look)
    finished = store.names_with("result.json")
    rows = []
    for cell, sample in trials:
        found = history(store.read(cell.name, "metrics.csv"), cell.config)
        share, score = found[-1] if found else (0.0, math.inf)
        status = engine.collect(cell, engine.folder_of(cell, folder))["status"] if cell.name in finished else "stopped"
        where = {"trial": cell.labels["trial"], "folder": str(engine.folder_of(cell, folder)), "status": status}
        rows.append({**where, "score": score, "budget_percent": 100 * share, "sample": sample})
    rows.sort(key=lambda row: row["score"])
    if not math.isfinite(rows[0]["score"]):
        raise DcnnError(f"{folder}: no trial has a validation error: every one diverged")
    best = local_copy(folder) / "best.yaml"
    write_whole(best, to_yaml(plan.config(rows[0]["sample"]).to_dict()))
    engine.publish(folder, best)
    return rows


def history(metrics: str, config: AtomsConfig | PdeConfig) -> list[tuple[float, float]]:
    """(share of the budget, score of the weights that would be kept) after every validation in a metrics.csv."""
    training = config.training
    found, kept = [], (math.inf, math.inf)
    for row in csv.DictReader(metrics.splitlines()):
        spent = {"seconds": 60 * (training.minutes or 0), "epoch": training.epochs, "step": training.steps}
        share = next(float(row[column]) / whole for column, whole in spent.items() if whole)
        names = next((names for names in MONITORED if row.get(names[0])), None)
        if names is not None:
            monitored, score = (float(row[name]) for name in names)
            if training.select == "last" or monitored < kept[0]:
                kept = (monitored, score)
            found.append((share, kept[1]))
        elif not math.isfinite(float(row["train_loss"] or math.nan)):
            found.append((share, math.inf))
    return found
