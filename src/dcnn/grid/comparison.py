"""The same network, data and budget under several recipes and seeds."""

from __future__ import annotations

from collections.abc import Sequence

from dcnn.errors import InputError
from dcnn.grid.cells import GridCell
from dcnn.results import resolve
from dcnn.train.config import BUDGET

#: What is compared if nothing is said, for each kind of run.
RECIPES = {"atoms": ("original", "paper", "standard", "best"), "pde": ("original", "paper", "best")}


def budget_words(overrides: Sequence[str], epochs: int | None, minutes: float | None) -> list[str]:
    """`overrides` with the budget of --epochs or --minutes; two budgets are refused, since one would be ignored.

    >>> budget_words(["data.train=50"], None, 2.5)
    ['data.train=50', 'training.minutes=2.5']
    """
    options = {"--epochs": ("epochs", epochs), "--minutes": ("minutes", minutes)}
    given = [option for option, (_, value) in options.items() if value is not None]
    words = [word for word in overrides if word.partition("=")[0] in {f"training.{name}" for name in BUDGET}]
    if len(given) + len(words) > 1:
        raise InputError(f"{' and '.join([*given, *words])}: give one budget, epochs, steps or minutes")
    return [*overrides, *(f"training.{name}={value}" for name, value in options.values() if value is not None)]


def recipes_for(target: str, overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """The recipes that are compared for this target if none are named."""
    return RECIPES[resolve(target, None, list(overrides)).kind]


def cells_of(
    target: str, recipes: Sequence[str], models: Sequence[str | None], seeds: int, overrides: Sequence[str] = ()
) -> list[GridCell]:
    """Every recipe × model × seed. A configuration file is taken with each recipe below what it says itself."""
    if seeds < 1 or not recipes:
        raise InputError("compare needs at least one recipe and one seed")
    cells: list[GridCell] = []
    for model in models:
        for recipe in recipes:
            for seed in range(seeds):
                config = resolve(target, None, [*overrides, f"recipe={recipe}"], model=model, seed=seed)
                labels = {"model": model} if model else {}
                cells.append(GridCell({**labels, "recipe": recipe, "seed": seed}, config))
    seen: dict[str, GridCell] = {}
    for cell in cells:
        same = seen.setdefault(cell.config.model_copy(update={"recipe": ""}).model_dump_json(), cell)
        if same is not cell:
            raise InputError(
                f"{target}: {_words(same)} and {_words(cell)} are the same run: what the two differ in is set, "
                "or a name is given twice; leave it out"
            )
    return cells


def _words(cell: GridCell) -> str:
    return " ".join(str(value) for value in cell.labels.values())
