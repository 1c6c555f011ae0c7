"""From a configuration to a finished run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from dcnn.errors import InputError
from dcnn.results.domains import as_config, build_task, config_of
from dcnn.train.config import RunConfig
from dcnn.train.console import Console
from dcnn.train.cpu import prepare_cpu
from dcnn.train.loop import Task, train
from dcnn.train.processes import end_with_parent, is_first, make_fabric, starts_processes
from dcnn.train.run import Result, Run


def fit_config(
    config: RunConfig | Mapping[str, Any] | str | Path,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    console: Console | None = None,
    build: Callable[[RunConfig, Path | None], Task] = build_task,
) -> Result:
    """Trains what `config` describes in `folder` and returns its result (also folder/result.json).

    config: a configuration, its values as a dictionary (the recipe fills in the rest), or a YAML file. build: makes
    the task of a configuration, for those that hold objects of the caller's.
    """
    config = cast(RunConfig, as_config(config))
    settings = config.training
    run = Run(folder if folder is not None else new_folder(config))
    fabric = make_fabric(settings, run.folder)
    if is_first() and not resume:
        Run.create(run.folder, config)
    prepare_cpu()
    if settings.threads:
        torch.set_num_threads(settings.threads)
    with run.locked() if is_first() else nullcontext():
        if starts_processes(settings):
            fabric.launch(partial(_train_in_process, config=config, folder=run.folder, resume=resume, build=build))
            return run.result()
        fabric.launch()
        try:
            task = build(config, run.folder if resume else None)
        except InputError:
            if is_first() and not resume:
                run.withdraw()
            raise
        return train(fabric, task, config, run, console or Console(), resume)


def resume_run(folder: str | Path, console: Console | None = None) -> Result:
    """Goes on where the last checkpoint of `folder` stands; a finished run is returned as it is."""
    run = Run.open(folder)
    if run.result_file.exists():
        return run.result()
    return fit_config(config_of(run), run.folder, resume=True, console=console)


def _train_in_process(
    fabric: Any, config: RunConfig, folder: Path, resume: bool, build: Callable[[RunConfig, Path | None], Task]
) -> None:
    end_with_parent()
    prepare_cpu()
    train(fabric, build(config, folder if resume else None), config, Run(folder), Console(), resume)


def new_folder(config: RunConfig) -> Path:
    """A folder below runs/ that says what is trained, and does not exist yet."""
    words = [config.data_name] if config.kind == "pde" else [config.data_name, config.model_name]
    stem = "-".join([*(Path(word).stem for word in words), config.recipe, f"seed{config.seed}"])
    names = (Path("runs") / (stem if n == 1 else f"{stem}-{n}") for n in range(1, 10_000))
    return next(name for name in names if not name.exists())
