"""From a table's name and a scale to the runs that make it up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dcnn.atoms.config import AtomsConfig
from dcnn.atoms.recipes import ATOMS
from dcnn.errors import InputError, unknown
from dcnn.grid.cells import GridCell
from dcnn.paper import sources as files
from dcnn.paper.definitions import MOLECULES, SCALES, Experiment
from dcnn.pde.recipes import PDE
from dcnn.results import as_config
from dcnn.train.config import merge
from dcnn.train.text import parse_overrides

SEEDS = {"smoke": 1, "small": 2, "long": 2, "paper": 1}
LONG_STEPS = {"molecules": 30_000, "oxides": 30_000, "pde": 15_000}
SMOKE_MINUTES = {"molecules": 0.05, "oxides": 0.05, "pde": 0.1}
# Potentials at small: a fourth of the paper's batches and ten times its rate, since a minute has thousands of steps and
# not 125,000.
_SMALL_TRAINING = {
    "batch_size": 5,
    "stages": [{"optimizer": "adam", "learning_rate": 1e-3, "schedule": "constant"}],
    "step": "traced",
}
_RESCALED = ("paper", "rescaled")
# Reference solutions of a smoke test: computed in seconds.
_SMOKE_PROBLEM: dict[str, dict[str, Any]] = {
    "compressible": {"resolution": 128},
    "diffusion_reaction": {"resolution": 32},
}


@dataclass(frozen=True)
class Options:
    """How much of an experiment is run; None takes what the scale says."""

    scale: str = "smoke"
    models: tuple[str, ...] | None = None
    molecules: tuple[str, ...] | None = None
    recipes: tuple[str, ...] | None = None
    seeds: int | None = None
    fidelity: str = "text"
    minutes: float | None = None
    data: Path | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment, and the title under which they may be shown."""

    experiment: Experiment
    options: Options
    cells: tuple[GridCell, ...]
    title: str


def plan(experiment: Experiment, options: Options) -> Plan:
    """Every cell of `experiment` at a scale; names that do not exist and data that are missing are refused here."""
    if options.scale not in SCALES:
        raise unknown("scale", options.scale, SCALES)
    if options.fidelity not in ("text", "scripts"):
        raise unknown("fidelity", options.fidelity, ("text", "scripts"))
    if options.seeds is not None and options.seeds < 1:
        raise InputError(f"--seeds {options.seeds}: at least one seed is needed")
    if options.data is not None and (options.scale == "smoke" or experiment.kind == "pde"):
        what = "the frames of the package" if experiment.kind != "pde" else "dcnn's own solvers"
        raise InputError(f"--data {options.data}: {experiment.name} at {options.scale} takes {what}; leave it out")
    if options.minutes is not None and options.scale in ("long", "paper"):
        raise InputError(f"--scale {options.scale} goes by steps; leave --minutes out or use --scale small")
    if options.steps is not None and options.scale != "long":
        raise InputError(f"--steps {options.steps}: for --scale long; {options.scale} has a budget of its own")
    if options.steps is not None and options.steps < 1:
        raise InputError(f"--steps {options.steps}: at least one step is needed")
    make = {"molecules": _molecules, "oxides": _oxides, "pde": _pde}[experiment.kind]
    cells, words = make(experiment, options)
    budget = _words(_budget(experiment, options))
    return Plan(experiment, options, tuple(cells), f"{experiment.title} ({options.scale}: {words}; {budget} a run)")


def _molecules(experiment: Experiment, options: Options) -> tuple[list[GridCell], str]:
    scale, varied = options.scale, experiment.varied
    names = _chosen("molecule", options.molecules, experiment.molecules[scale], MOLECULES)
    models = _chosen(f"network of {experiment.name}", options.models, experiment.models, experiment.models)
    values: Sequence[float | None] = varied.values[scale] if varied else [None]
    resized = varied is not None and varied.key == "data.train"
    cells, words = [], []
    for name in names:
        wanted = [v for v in values if not (resized and scale == "paper") or v * 1.25 <= files.conformations(name)]  # type: ignore[operator]
        most = int(max(v for v in wanted if v is not None)) if resized else None
        source = _smoke(name, most) if scale == "smoke" else None
        for value in wanted:
            if scale != "smoke":  # at the paper's scale each size has index lists of its own
                size = int(value) if resized and scale == "paper" and value is not None else most
                source = files.molecule(name, scale, files.folders(options.data), size)
            assert source is not None
            words.append(source.words)
            for model, recipe, seed in product(models, _recipes(experiment, options), _seeds(options)):
                changed = parse_overrides([f"{varied.key}={value:g}"]) if varied and value is not None else {}
                config = _potential(experiment, options, source, model, recipe, seed, 1e6, changed)
                swept = {varied.label: value} if varied else {}
                cells.append(
                    GridCell({"molecule": name, "model": model, "recipe": recipe, **swept, "seed": seed}, config)
                )
    return cells, ", ".join(dict.fromkeys(words))


def _smoke(name: str, train: int | None) -> files.Source:
    if name != "ethanol":
        raise InputError(f"--molecules {name}: the smoke scale has only the ethanol frames of the package; use small")
    return files.demo(train or 400)


def _oxides(experiment: Experiment, options: Options) -> tuple[list[GridCell], str]:
    if options.molecules is not None:
        raise InputError(f"{experiment.name} has no molecules; leave --molecules out")
    source = files.oxides(options.scale, options.data)
    models = _chosen(f"network of {experiment.name}", options.models, experiment.models, experiment.models)
    constant = 1e4 if options.scale == "paper" else "power_of_ten"
    cells = []
    for model, recipe, seed in product(models, _recipes(experiment, options), _seeds(options)):
        changed = _oc22_settings(model) if options.scale == "paper" else {}
        config = _potential(experiment, options, source, model, recipe, seed, constant, changed)
        cells.append(GridCell({"molecule": "oxides", "model": model, "recipe": recipe, "seed": seed}, config))
    return cells, source.words


def _oc22_settings(model: str) -> dict[str, Any]:
    """Sec. 5.1.2: smaller batches for two networks, a smaller learning rate for one."""
    changed: dict[str, Any] = {}
    if model in ("dimenet_plus_plus", "forcenet"):
        changed = {"training": {"batch_size": 10}}
    if model == "forcenet":
        stages = [{"optimizer": "adam", "learning_rate": 1e-5, "schedule": "constant"}]
        changed = merge(changed, {"training": {"stages": stages}})
    return changed


def _potential(
    experiment: Experiment,
    options: Options,
    source: files.Source,
    model: str,
    recipe: str,
    seed: int,
    constant: float | str,
    changed: dict[str, Any],
) -> AtomsConfig:
    values: dict[str, Any] = {
        "kind": "atoms",
        "recipe": recipe,
        "seed": seed,
        "data": source.data,
        "model": {
            "name": model,
            "preset": "paper" if options.scale == "paper" else "small",
            "fidelity": options.fidelity,
            "overrides": source.overrides,
        },
        "training": _budget(experiment, options),
    }
    if options.scale == "small" and recipe != "best":
        values["training"] |= _SMALL_TRAINING
    if recipe in _RESCALED and options.scale != "smoke":
        values["scale"] = {"unit": constant}  # the paper's C, larger than it need be for small molecules
    config = as_config(merge(values, changed))
    assert isinstance(config, AtomsConfig)
    return config


def _pde(experiment: Experiment, options: Options) -> tuple[list[GridCell], str]:
    for option, given in (("--molecules", options.molecules), ("--models", options.models)):
        if given is not None:
            raise InputError(f"{experiment.name} is a PDE; leave {option} out")
    problem: dict[str, Any] = {"name": experiment.problem, "fidelity": options.fidelity}
    if options.scale == "smoke":
        problem["parameters"] = _SMOKE_PROBLEM.get(experiment.problem, {})
    budget = _budget(experiment, options)
    cells = []
    for recipe, seed in product(_recipes(experiment, options), _seeds(options)):
        values = {"kind": "pde", "recipe": recipe, "seed": seed, "problem": problem, "training": budget}
        if options.scale == "smoke":
            values["steps_per_epoch"] = 20
        cells.append(GridCell({"problem": experiment.problem, "recipe": recipe, "seed": seed}, as_config(values)))
    return cells, "data from dcnn's own solvers"


def _budget(experiment: Experiment, options: Options) -> dict[str, Any]:
    """How long a cell trains: minutes, or the paper's number of epochs or steps.

    Minutes are of the processor, which is fair on a busy machine; a smoke test must end in time. Where there are many
    steps, they are compiled, and errors are evaluated at every tenth epoch.
    """
    pde = experiment.kind == "pde"
    if options.scale == "long":
        steps = options.steps or LONG_STEPS[experiment.kind]
        return {"steps": steps, "step": "compiled", **({} if pde else {"evaluate_every": 10})}
    if options.scale == "paper":
        return {"steps": experiment.steps, "step": "compiled"} if pde else {"epochs": 50}
    smoke = options.scale == "smoke"
    usual = SMOKE_MINUTES[experiment.kind] if smoke else experiment.minutes
    minutes = usual if options.minutes is None else options.minutes
    return {"minutes": minutes, "clock": "wall" if smoke else "cpu"}


def _recipes(experiment: Experiment, options: Options) -> tuple[str, ...]:
    valid = PDE if experiment.kind == "pde" else ATOMS
    return _chosen("recipe", options.recipes, experiment.recipes, valid)


def _seeds(options: Options) -> range:
    return range(options.seeds if options.seeds is not None else SEEDS[options.scale])


def _chosen(kind: str, given: tuple[str, ...] | None, default: Sequence[str], valid: Iterable[str]) -> tuple[str, ...]:
    if given is None:
        return tuple(default)
    names = list(valid)
    for name in given:
        if name not in names:
            raise unknown(kind, name, names)
    return given


def _words(budget: dict[str, Any]) -> str:
    minutes = budget.get("minutes")
    if minutes is not None:
        return f"{60 * minutes:g} s" if minutes < 1 else f"{minutes:g} min"
    return f"{budget['steps']:,} steps" if "steps" in budget else f"{budget['epochs']} epochs"
