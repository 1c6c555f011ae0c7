"""`dcnn.fit`: trains whatever it is given and returns the finished run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from torch import nn

from dcnn.errors import InputError, needs_extra
from dcnn.losses import Term, Weighting
from dcnn.results.domains import as_config, build_task, own_recipe, target_values
from dcnn.results.extended_task import ExtendedTask, Metric, OwnTerm
from dcnn.results.fitting import fit_config, new_folder
from dcnn.results.trained_run import TrainedRun
from dcnn.train.config import RunConfig, merge
from dcnn.train.console import Console
from dcnn.train.loop import Task
from dcnn.train.run import Run
from dcnn.train.text import read_yaml


class FitResult(TrainedRun):
    """A finished run with its page."""

    def report(self, output: str | Path | None = None) -> Path:
        """Writes the page of the run (default: report.html in its folder) and returns its path."""
        with needs_extra("cli"):
            from dcnn.report import write_page

        return write_page([self.folder], output or self.folder / "report.html", trust=True, model=self.model)

    def plot(self) -> Any:
        """Validation errors and loss terms over the steps, as charts that a notebook shows."""
        with needs_extra("cli"):
            from dcnn.report.notebook import curves_of

        return curves_of(self.folder)

    def _repr_html_(self) -> str:
        with needs_extra("cli"):
            from dcnn.report.notebook import ROW, charts, framed, result_table
        plots = self.plot()
        body = result_table(f"{self.folder.name}: {self.status}", self.test) + charts(plots)
        return framed(body, 40 + 28 * len(self.test) + ROW * -(-len(plots) // 2))

    def __repr__(self) -> str:
        errors = ", ".join(f"{name} {value:.4g}" for name, value in self.test.items() if isinstance(value, float))
        return f"<run {self.folder}: {self.status}, test {errors}>"


def fit(
    what: Any,
    folder: str | Path | None = None,
    *,
    model: str | nn.Module | None = None,
    network: nn.Module | None = None,
    x: Any = None,
    labels: Mapping[str, Any] | None = None,
    test: Any = None,
    minutes: float | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    recipe: str | Mapping[str, Any] | None = None,
    seed: int | None = None,
    start_from: str | Path | None = None,
    freeze: Sequence[str] = (),
    terms: Mapping[str, OwnTerm] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    weighting: Callable[[Sequence[Term]], Weighting] | None = None,
    settings: Mapping[str, Any] | None = None,
    console: Console | None = None,
) -> FitResult:
    """Trains `what` in `folder` (default: a new one below runs/) and returns the finished run.

    what: a configuration, its values or its YAML file; a file of frames, a Dataset, a list of ASE Atoms, with `model` a
    name, "file.py:Class" or any module that takes an AtomsBatch and has a cutoff; a `pde.Problem`, class, object or
    name, with `network` any module from points to fields; or a module with points
    `x` and `labels` {"": y, "x": dydx, …}, "grad" for all first derivatives.
    minutes, epochs, steps: the budget, one of them. recipe: a name, a YAML file or values of your own. test: a file, or
    (x, labels). start_from: a run of a potential whose weights are taken, of which `freeze` names parts that stay as
    they are. terms, metrics, weighting: of your own, see :class:`~dcnn.results.extended_task.ExtendedTask`.
    settings: further values of the configuration, nested as in its file.
    """
    budget = {name: value for name, value in (("minutes", minutes), ("epochs", epochs), ("steps", steps)) if value}
    if len(budget) > 1:
        raise InputError(f"give one budget, not {' and '.join(budget)}")
    values = merge(dict(settings or {}), {"training": budget} if budget else {})
    if seed is not None:
        values = merge(values, {"seed": seed})
    if start_from is not None:
        values = merge({"start": {"run": str(start_from), "freeze": list(freeze)}}, values)
    elif freeze:
        raise InputError("freeze keeps weights of an earlier run: give it with start_from")
    if recipe is not None:
        values = merge(_recipe_values(recipe), values)
    described = _described(what, values, model, x, labels, test)
    if network is not None:
        described = _with_network(described, network)
    config = as_config(described.values)
    run = Run(folder if folder is not None else new_folder(config))
    build: Callable[[RunConfig, Path | None], Task] = partial(build_task, given=described.given)
    if terms or metrics or weighting:
        build = partial(_extended, build=build, terms=terms or {}, metrics=metrics or {}, weighting=weighting)
    with described.saved_in(run) as more:
        fit_config(
            as_config(merge(described.values, more)) if more else config, run.folder, console=console, build=build
        )
    return FitResult(run, trust=True, model=described.given)


@dataclass(frozen=True)
class _Described:
    """What `fit` was given: values of a configuration, an object that no file names, and data that no file holds."""

    values: dict[str, Any]
    given: Any = None
    save: Callable[[Path], dict[str, Any]] | None = None  # writes the data into a folder, returns where they are

    @contextmanager
    def saved_in(self, run: Run) -> Iterator[dict[str, Any]]:
        """Inside the block the data are in the folder of the run; they go again if it cannot begin."""
        if self.save is None:
            yield {}
            return
        run.refuse_if_there()
        before = set(run.folder.iterdir()) if run.folder.exists() else set()
        run.folder.mkdir(parents=True, exist_ok=True)
        try:
            yield self.save(run.folder)
        except InputError:
            if not run.config_file.exists():
                for file in set(run.folder.iterdir()) - before:
                    file.unlink()
                if not any(run.folder.iterdir()):
                    run.folder.rmdir()
            raise


def _described(what: Any, values: dict[str, Any], model: Any, x: Any, labels: Any, test: Any) -> _Described:
    """Which kind of run `what` is."""
    if isinstance(what, nn.Module):
        if x is None or labels is None:
            raise InputError("a network is trained on points: fit(network, x=X, labels={'': y, 'x': dydx})")
        return _tensors(what, values, x, labels, test)
    if x is not None or labels is not None:
        raise InputError(f"x and labels go with a network (an nn.Module), not with {type(what).__name__}")
    values, given = _with_model(values, model)
    if test is not None:
        values = merge(values, {"data": {"test": str(test)}})
    if isinstance(what, str | Path) and str(what).endswith((".yaml", ".yml")):
        return _Described(merge(read_yaml(Path(what)), values), given)
    if isinstance(what, str | Path):
        return _Described(merge(target_values(str(what)), values), given)
    if isinstance(what, Mapping):
        return _Described(merge(what, values), given)
    if hasattr(what, "to_dict") and hasattr(what, "training"):
        return _Described(merge(what.to_dict(), values), given)
    return _problem(what, values) or _frames(what, values, given)


def _with_model(values: dict[str, Any], model: Any) -> tuple[dict[str, Any], nn.Module | None]:
    if model is None:
        return values, None
    name = model if isinstance(model, str) else f"object:{type(model).__qualname__}"
    return merge(values, {"model": {"name": name}}), None if isinstance(model, str) else model


def _tensors(network: nn.Module, values: dict[str, Any], x: Any, labels: Any, test: Any) -> _Described:
    from dcnn.sobolev.task import checked_points, write_points

    points, own_test = checked_points(x, labels), None if test is None else checked_points(*test)

    def save(folder: Path) -> dict[str, Any]:
        write_points(folder / "points.npz", *points)
        if own_test is not None:
            write_points(folder / "test.npz", *own_test)
        return {"data": str(folder / "points.npz")}

    named = {"kind": "sobolev", "network": f"object:{type(network).__qualname__}"}
    return _Described(merge(named, values), network, save)


def _problem(what: Any, values: dict[str, Any]) -> _Described | None:
    """A problem as a class or an object; one of ours is named, so that the run can be opened anywhere."""
    if "dcnn.pde.problem" not in sys.modules:  # nobody can have a problem then
        return None
    from dcnn.pde.problem import Problem

    if isinstance(what, type) and issubclass(what, Problem):
        what = what()
    if not isinstance(what, Problem):
        return None
    ours = type(what).__module__.startswith("dcnn.pde.problems.")
    if ours:
        section = {"name": what.name, "parameters": {**what.stated, **what.settings}, "trainable": [*what.unknowns]}
        return _Described(merge({"kind": "pde", "problem": section}, values))
    what.check()
    section = {"name": f"object:{type(what).__qualname__}"}
    return _Described(merge({"kind": "pde", "problem": section}, values), what)


def _with_network(described: _Described, network: nn.Module) -> _Described:
    """A network of the user's for a problem: one of ours as it is (`from_deepxde`), or any module."""
    if described.values.get("kind") != "pde":
        raise InputError("network= goes with a PDE problem; potentials take model=")
    from dcnn.pde.own_network import given_network

    found, section = given_network(as_config(described.values), network, described.given)
    return _Described(merge(section, described.values), found)


def _frames(what: Any, values: dict[str, Any], given: nn.Module | None) -> _Described:
    """Frames in memory; the run keeps a copy of them."""
    with needs_extra("cli,atoms"):
        from dcnn.atoms import Dataset, write
        from dcnn.atoms.structures import Structure
    if not isinstance(what, Dataset):
        if not isinstance(what, Sequence) or not len(what):
            raise InputError(
                f"cannot train on {type(what).__name__}: give a file, frames, a Problem, or a network with x and labels"
            )
        what = Dataset([f if isinstance(f, Structure) else Structure.from_ase(f) for f in what], name="frames")

    def save(folder: Path) -> dict[str, Any]:
        write(what, folder / "frames.traj")
        return {"data": {"path": str(folder / "frames.traj")}}

    return _Described(merge({"kind": "atoms", "data": {"path": what.name or "frames"}}, values), given, save)


def _recipe_values(recipe: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(recipe, Mapping):
        return own_recipe(recipe)
    if recipe.endswith((".yaml", ".yml")):
        return own_recipe(read_yaml(Path(recipe)), Path(recipe).stem)
    return {"recipe": recipe}


def _extended(config: RunConfig, folder: Path | None, build: Callable[..., Task], **own: Any) -> Task:
    return cast(Task, ExtendedTask(build(config, folder), **own))
