"""The paper's own numbers (published.yaml), looked up by what identifies a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dcnn.atoms.label_errors import KCAL_MOL_EV
from dcnn.results.metrics import ENERGY, FORCES

Identity = tuple[Any, ...]


@cache
def numbers() -> dict[str, Any]:
    """The content of published.yaml."""
    return yaml.safe_load(Path(__file__).with_name("published.yaml").read_text())


def published(name: str) -> dict[Identity, dict[str, float]]:
    """Errors of every row of an experiment, under the names of result.json.

    Keys: (molecule, model, recipe) for MD17, with β for fig1; ("oxides", model, recipe) for OC22, converted to
    kcal/mol; (recipe,) for PDEs, which also have their loss terms.

    >>> published("table1")["ethanol", "schnet", "original"]
    {'energy_mae_kcal_mol': 5.97, 'force_mae_kcal_mol_A': 0.68}
    >>> published("table3")["paper",]["nrmse"]
    0.99
    """
    table = numbers().get(name, {})
    if name == "scaling":
        return {}
    if name == "fig1":
        errors = table["schnet"]["original"]
        return {("aspirin", "schnet", "original", float(beta)): _errors(found) for beta, found in errors.items()}
    if name in ("table3", "table4", "table5"):
        return {(recipe,): dict(values) for recipe, values in table.items()}
    if name == "table2":
        return {("oxides", m, r): _errors(found, 1 / KCAL_MOL_EV) for m, r, found in _by_recipe(table)}
    return {
        (molecule, model, recipe): _errors({kind: values[n] for kind, values in found.items()})
        for model, recipe, found in _by_recipe(table)
        for n, molecule in enumerate(numbers()["molecules"])
    }


def _by_recipe(table: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for model, recipes in table.items():
        for recipe, found in recipes.items():
            yield model, recipe, found


def _errors(found: Mapping[str, float], unit: float = 1.0) -> dict[str, float]:
    """Energy and force errors times `unit`; what the paper prints as NaN is left out."""
    named = {ENERGY: found["energy"] * unit, FORCES: found["forces"] * unit}
    return {name: value for name, value in named.items() if not math.isnan(value)}
