"""From a configuration to a finished run folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from dcnn.errors import InputError
from dcnn.guard import decoding
from dcnn.results.domains import as_config, build_task, config_of, parse
from dcnn.train import checkpoint
from dcnn.train.config import BUDGET, RunConfig, Training, merge
from dcnn.train.console import Console
from dcnn.train.cpu import prepare_cpu
from dcnn.train.loop import Task, train
from dcnn.train.processes import make_fabric, run_in_processes, starts_processes
from dcnn.train.run import Result, Run
from dcnn.train.text import parse_overrides

Build = Callable[[RunConfig, Path | None], Task]  # the folder: of a run that has begun


def fit_config(
    config: RunConfig | Mapping[str, Any] | str | Path,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    console: Console | None = None,
    build: Build = build_task,
) -> Result:
    """Trains what `config` describes in `folder` and returns its result (also folder/result.json).

    config: a configuration, its values as a dictionary (the recipe fills in the rest), or a YAML file. build: makes
    the task of a configuration, for those that hold objects of the caller's.
    """
    config = cast(RunConfig, as_config(config))
    settings, console = config.training, console or Console()
    run = Run(folder if folder is not None else new_folder(config))
    fabric, starts = make_fabric(settings, run.folder), starts_processes(settings)
    if not starts:
        fabric.launch()
        run = Run(fabric.broadcast(run.folder))  # of several processes the first one names the folder
    first = starts or fabric.is_global_zero
    _prepare(settings)
    with run.locked() if first else nullcontext():
        if first and not resume:
            Run.create(run.folder, config)
        if first and resume:
            run.update(config)
        try:
            if not starts:
                fabric.barrier()  # the folder is there
                task = build(config, run.folder if resume else None)
                return train(fabric, task, config, run, console if first else Console(), resume)
            console.start(run.folder, settings)
            console.note(f"{settings.devices} processes; {run.metrics_file} has a line for every epoch")
            run_in_processes(fabric, partial(_train, config, run.folder, resume, build), run.folder)
        except InputError:
            if first and not resume and not run.last.exists():
                run.withdraw()
            raise
        finally:
            console.stop()
        result = run.result()
        console.finish(result)
        return result


def resume_run(folder: str | Path, console: Console | None = None, overrides: Sequence[str] = ()) -> Result:
    """Goes on where the last checkpoint of `folder` stands; a finished run is returned as it is.

    overrides: `training.epochs=…`, `.steps` or `.minutes`, a new budget; nothing else can change within a run.
    """
    run = Run.open(folder)
    config = config_of(run)
    if overrides:
        wrong = [pair for pair in overrides if pair.partition("=")[0] not in {f"training.{name}" for name in BUDGET}]
        if wrong:
            raise InputError(f"{folder}: {', '.join(wrong)}: only the budget of a run can change; begin a new run")
        config = parse(merge(config.to_dict(), parse_overrides(list(overrides))), str(folder))
        _check_larger(run, config.training)
    elif run.result_file.exists():
        return run.result()
    return fit_config(config, run.folder, resume=True, console=console)


def fit_committee(
    config: RunConfig | Mapping[str, Any] | str | Path,
    folder: str | Path | None = None,
    members: int = 4,
    *,
    console: Console | None = None,
) -> list[Result]:
    """Trains `members` runs on the same split of the same data, with seeds that count up, in folder/member-0, ….

    Called again, it goes on where it was interrupted. `Potential.load(folder)` opens all of them as a committee.
    """
    config = cast(RunConfig, as_config(config))
    if members < 2 or config.kind != "atoms":
        raise InputError(f"a committee is two potentials or more, not {members} of kind {config.kind}")
    folder = Path(folder) if folder is not None else new_folder(config)
    found = []
    for number in range(members):
        own = cast(RunConfig, parse({**config.to_dict(), "seed": config.seed + number}))
        run = Run(folder / f"member-{number}")
        if run.config_file.exists():
            if run.config_values() != own.to_dict():
                raise InputError(f"{run.folder}: holds a run of another configuration; name another folder")
            found.append(resume_run(run.folder, console))
        else:
            found.append(fit_config(own, run.folder, console=console))
    return found


def _check_larger(run: Run, settings: Training) -> None:
    """A new budget must let the run go on."""
    if run.result_file.exists() and (status := run.result().status) != "finished":
        raise InputError(f"{run.folder}: {status}, so that another budget would change nothing")
    if run.last.exists():
        with decoding(run.last, "checkpoint of this run"):
            progress = checkpoint.load(run.last)["progress"]
            done = {"epochs": progress["epoch"], "steps": progress["step"], "minutes": progress["seconds"] / 60}
        for name, spent in done.items():
            if (getattr(settings, name) or math.inf) <= spent:
                raise InputError(f"{run.folder}: {spent:.4g} {name} are done already; give a larger budget")


def _train(config: RunConfig, folder: Path, resume: bool, build: Build, fabric: Any) -> None:
    _prepare(config.training)
    train(fabric, build(config, folder if resume else None), config, Run(folder), Console(), resume)


def _prepare(settings: Training) -> None:
    prepare_cpu()
    if settings.threads:
        torch.set_num_threads(settings.threads)


def new_folder(config: RunConfig) -> Path:
    """A folder below runs/ that says what is trained, and does not exist yet."""
    words = [config.data_name] if config.kind == "pde" else [config.data_name, config.model_name]
    stem = "-".join([*(Path(word).stem for word in words), config.recipe, f"seed{config.seed}"])
    names = (Path("runs") / (stem if n == 1 else f"{stem}-{n}") for n in range(1, 10_000))
    return next(name for name in names if not name.exists())
