"""Search for hyper-parameters: Ray Tune draws configurations, ASHA stops those whose validation error lags behind."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcnn.atoms.task import AtomsTask
from dcnn.errors import DcnnError, InputError
from dcnn.experiments.cluster import connected
from dcnn.experiments.process import RETRIES
from dcnn.experiments.ray_engine import needs
from dcnn.experiments.space import Space, corner, overrides, split_space
from dcnn.experiments.store import is_url
from dcnn.pde.task import PdeTask
from dcnn.train import AtomsConfig, PdeConfig, Run
from dcnn.train.config import to_yaml
from dcnn.train.console import Console
from dcnn.train.fit import fit, resolve, resume_run

#: Rungs of ASHA in percent of a trial's budget; at each of them the best third goes on.
FIRST_RUNG, REDUCTION = 11, 3


@dataclass(frozen=True)
class Sweep:
    """What is searched: a target, its recipe, what all trials share, and the space of the rest."""

    target: str
    recipe: str
    model: str | None
    seed: int
    fixed: tuple[str, ...]
    space: Space

    def config(self, sample: dict[str, Any]) -> AtomsConfig | PdeConfig:
        words = [*self.fixed, *overrides(sample)]
        return resolve(self.target, self.recipe, words, model=self.model, seed=self.seed)


def define(
    target: str, pairs: Sequence[str], recipe: str = "best", model: str | None = None, seed: int = 0, budget: str = ""
) -> Sweep:
    """A sweep from the words of the command line, checked; `budget` is one more word that all trials share."""
    space, fixed = split_space(pairs)
    sweep = Sweep(target, recipe, model, seed, (*fixed, *([budget] if budget else [])), space)
    if sweep.config(corner(space)).training.devices > 1:
        raise InputError("training.devices: the trials of a sweep train on one device each")
    return sweep


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    samples: int,
    on: str = "ray",
    jobs: int = 2,
    watch: Callable[[list[str], int], None] = lambda running, done: None,
) -> list[dict[str, Any]]:
    """Trains `samples` trials in `folder/trial-…`, writes folder/best.yaml, and returns the trials, best first.

    Each is {trial, folder, status, score, budget_percent, sample}; `score` is the validation error that the task
    monitors, the test set is no part of it. Status "stopped" means that ASHA saw no future in the trial.
    """
    if is_url(folder):
        raise InputError(f"{folder}: a sweep writes to a folder that all workers see, not to a URL")
    if samples < 1:
        raise InputError(f"--samples {samples}: a sweep needs at least one trial")
    path = Path(folder).resolve()
    if any(path.glob("trial-*")):
        raise InputError(f"{folder}: holds a sweep already; name another folder")
    path.mkdir(parents=True, exist_ok=True)
    resources = needs(sweep.config(corner(sweep.space)))
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")  # the user's relative paths stay true
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # a trial is a run folder, which has it all
    with connected(on, jobs * resources["num_cpus"]):
        trials = _tuner(sweep, path, samples, resources, watch).fit()
        rows = [_row(path, trial) for trial in trials]
    rows.sort(key=lambda row: row["score"])
    if not math.isfinite(rows[0]["score"]):
        reason = next((str(trial.error) for trial in trials if trial.error), "every trial diverged")
        raise DcnnError(f"{folder}: no trial has a validation error: {reason.strip().splitlines()[-1]}")
    (path / "best.yaml").write_text(to_yaml(sweep.config(rows[0]["sample"])))
    return rows


def _tuner(sweep: Sweep, path: Path, samples: int, resources: dict[str, int], watch: Callable[..., None]) -> Any:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.basic_variant import BasicVariantGenerator

    class Watch(tune.Callback):
        """Tells the command how far the trials are."""

        def on_step_end(self, iteration: int, trials: list[Any], **_: Any) -> None:
            running = [_name(trial.trial_id) for trial in trials if trial.status == "RUNNING"]
            watch(running, sum(trial.status in ("TERMINATED", "ERROR") for trial in trials))

    trial = tune.with_parameters(_trial, sweep=sweep, folder=str(path), cwd=os.getcwd())
    space = {
        key: tune.choice(arguments) if name == "choice" else getattr(tune, name)(*arguments)
        for key, (name, arguments) in sweep.space.items()
    }
    return tune.Tuner(
        tune.with_resources(trial, {"cpu": resources["num_cpus"], "gpu": resources["num_gpus"]}),
        param_space=space,
        tune_config=tune.TuneConfig(
            metric="score",
            mode="min",
            num_samples=samples,
            search_alg=BasicVariantGenerator(random_state=sweep.seed),
            scheduler=ASHAScheduler(
                time_attr="budget_percent",
                max_t=100,
                grace_period=FIRST_RUNG,
                reduction_factor=REDUCTION,
                stop_last_trials=False,
            ),
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(path),
            verbose=0,
            callbacks=[Watch()],
            failure_config=tune.FailureConfig(max_failures=RETRIES),
        ),
    )


class Reporting(Console):
    """Hands each validation to `report`: the score of the weights that would be kept, and the budget used."""

    def __init__(self, report: Callable[[dict[str, float]], None], config: AtomsConfig | PdeConfig) -> None:
        task = AtomsTask if isinstance(config, AtomsConfig) else PdeTask
        self.report, self.column = report, f"validation_{task.monitor}"
        self.keeps_best = config.training.select == "best"
        self.used, self.best = 0.0, math.inf

    def step(self, used: float, step: int) -> None:
        self.used = used

    def row(self, row: dict[str, float], status: str) -> None:
        score = row.get(self.column)
        if score is not None and math.isfinite(score):
            self.best = min(score, self.best)
            self.report({"score": self.best if self.keeps_best else score, "budget_percent": 100 * self.used})
        elif status == "diverged":
            self.report({"score": math.inf, "budget_percent": 100 * self.used})


def _trial(sample: dict[str, Any], sweep: Sweep, folder: str, cwd: str) -> None:
    """One trial, in a worker: a run like any other, continued if a worker was lost."""
    from ray import tune

    if Path(cwd).is_dir():
        os.chdir(cwd)
    config = sweep.config(sample)
    if not needs(config)["num_gpus"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    path = Path(folder) / _name(tune.get_context().get_trial_id())
    console = Reporting(tune.report, config)
    if Run(path).config_file.exists():
        resume_run(path, console)
    else:
        fit(config, path, console=console)


def _name(trial_id: str) -> str:
    return f"trial-{trial_id.rpartition('_')[2]}"


def _row(folder: Path, trial: Any) -> dict[str, Any]:
    metrics = trial.metrics or {}
    run = Run(folder / _name(metrics.get("trial_id", Path(trial.path).name)))
    status = "failed" if trial.error else run.result().status if run.result_file.exists() else "stopped"
    return {
        "trial": run.folder.name,
        "folder": str(run.folder),
        "status": status,
        "score": metrics.get("score", math.inf) if status != "failed" else math.inf,
        "budget_percent": metrics.get("budget_percent", 0.0),
        "sample": trial.config,
    }
