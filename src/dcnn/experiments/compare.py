"""The same network, data and budget under several recipes and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, stdev
from typing import Any

from dcnn.errors import InputError
from dcnn.experiments.grid import Cell
from dcnn.train.fit import resolve

#: The errors a table shows, and what to call them; the first is the one that recipes are ranked by.
SHOWN = {
    "force_mae_kcal_mol_A": "force MAE (kcal/mol/Å)",
    "energy_mae_kcal_mol": "energy MAE (kcal/mol)",
    "efwt": "EFwT",
    "nrmse": "nRMSE",
    "mse": "MSE",
    "constant_nrmse": "nRMSE of the constant",
}


def cells_of(
    target: str,
    recipes: Sequence[str],
    models: Sequence[str | None],
    seeds: int,
    budget: str | None = None,
    overrides: Sequence[str] = (),
) -> list[Cell]:
    """Every recipe × model × seed; `budget` is an override such as "training.minutes=3"."""
    if seeds < 1 or not recipes:
        raise InputError("compare needs at least one recipe and one seed")
    extra = [*overrides, *([budget] if budget else [])]
    cells = []
    for model in models:
        for recipe in recipes:
            for seed in range(seeds):
                config = resolve(target, recipe, list(extra), model=model, seed=seed)
                labels = {"model": model} if model else {}
                cells.append(Cell({**labels, "recipe": recipe, "seed": seed}, config))
    return cells


def table(
    runs: Sequence[dict[str, Any]], by: Sequence[str] = ("model", "recipe"), names: Iterable[str] = SHOWN
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
