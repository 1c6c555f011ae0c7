"""`fit`: from a configuration to a finished run folder; what `dcnn train` calls."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from lightning.fabric.strategies import DDPStrategy

from dcnn.errors import InputError
from dcnn.train.config import AtomsConfig, ModelConfig, PdeConfig, Training, merge, parse_overrides, read_yaml, validate
from dcnn.train.console import Console
from dcnn.train.cpu import prepare_cpu
from dcnn.train.loggers import make_loggers
from dcnn.train.loop import train
from dcnn.train.recipes import recipe
from dcnn.train.run import Result, Run
from dcnn.train.tasks import build_task

AnyConfig = AtomsConfig | PdeConfig


def fit(
    config: AnyConfig | dict[str, Any] | str | Path,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    console: Console | None = None,
) -> Result:
    """Trains what `config` describes in `folder` and returns its result (also folder/result.json).

    config: a configuration, its values as a dictionary (the recipe fills in the rest), or a YAML file.
    """
    config = as_config(config)
    path = Path(folder) if folder is not None else _new_folder(config)
    if not resume:
        Run.create(path, config)
    settings = config.training
    prepare_cpu()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    spawned = settings.devices > 1 and not (TorchElasticEnvironment.detect() or SLURMEnvironment.detect())
    fabric = Fabric(
        accelerator=settings.accelerator,
        devices=settings.devices,
        strategy=_strategy(settings, spawned),
        loggers=make_loggers(settings.loggers, path),
    )
    if spawned:
        fabric.launch(partial(_train_in_process, config=config, path=path, resume=resume))
        return Run.open(path).result()
    fabric.launch()
    try:
        task = build_task(config)
    except InputError:
        if not resume:
            Run(path).withdraw()
        raise
    return train(fabric, task, config, Run(path), console or Console(), resume)


def resume_run(folder: str | Path, console: Console | None = None) -> Result:
    """Goes on where the last checkpoint of `folder` stands; a finished run is returned as it is."""
    run = Run.open(folder)
    if run.result_file.exists():
        return run.result()
    return fit(run.config(), run.folder, resume=True, console=console)


def as_config(config: AnyConfig | dict[str, Any] | str | Path) -> AnyConfig:
    """A full configuration from one, from a dictionary or from a YAML file; its recipe fills what is not said."""
    if isinstance(config, (AtomsConfig, PdeConfig)):
        return config
    source = str(config) if isinstance(config, (str, Path)) else "configuration"
    values = read_yaml(Path(config)) if isinstance(config, (str, Path)) else config
    kind = values.get("kind", "pde" if "problem" in values else "atoms")
    subject = (values.get("problem") or {}).get("name", "") if kind == "pde" else _model_name(values)
    return validate(merge(recipe(kind, values.get("recipe", "best"), subject), values), source)


def _model_name(values: dict[str, Any]) -> str:
    return (values.get("model") or {}).get("name", ModelConfig().name)


def resolve(
    target: str, recipe_name: str, overrides: list[str], model: str | None = None, seed: int | None = None
) -> AnyConfig:
    """The configuration of a command line: `target` is a YAML file, a data file, a PDE's name or a problem.py."""
    values = parse_overrides(overrides)
    if model is not None:
        values = merge(values, {"model": {"name": model}})
    if seed is not None:
        values = merge(values, {"seed": seed})
    if target.endswith((".yaml", ".yml")):
        return as_config(merge(read_yaml(Path(target)), values))
    values = merge({"recipe": recipe_name, **target_values(target)}, values)
    return as_config(values)


def target_values(target: str) -> dict[str, Any]:
    """Which data or problem a word on the command line means; a folder of results may have a problem's name."""
    from dcnn.pde import problems

    if target.endswith(".py") or target in problems.NAMES:
        return {"kind": "pde", "problem": {"name": target}}
    if target == "demo" or Path(target).exists():
        return {"kind": "atoms", "data": {"path": target}}
    known = ", ".join(["demo", *problems.NAMES])
    raise InputError(f"{target!r} is neither a file nor one of: {known}")


def _train_in_process(fabric: Fabric, config: AnyConfig, path: Path, resume: bool) -> None:
    prepare_cpu()
    train(fabric, build_task(config), config, Run(path), Console(), resume)


def _strategy(settings: Training, spawned: bool) -> Any:
    if settings.devices == 1 and settings.strategy == "auto":
        return "auto"
    # A loss on forces alone leaves the last bias without a gradient, which DDP must be told.
    return DDPStrategy(start_method="spawn" if spawned else "popen", find_unused_parameters=True)


def _new_folder(config: AnyConfig) -> Path:
    what = [config.data.path, config.model.name] if isinstance(config, AtomsConfig) else [config.problem.name]
    stem = "-".join([*(Path(word).stem for word in what), config.recipe, f"seed{config.seed}"])
    names = (Path("runs") / (stem if n == 1 else f"{stem}-{n}") for n in range(1, 10_000))
    return next(name for name in names if not name.exists())
