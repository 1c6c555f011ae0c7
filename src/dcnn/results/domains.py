"""The kinds of runs there are, and which of them a configuration or a word on a command line is about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from dcnn.errors import InputError, needs_extra, unknown
from dcnn.losses.weighting import GONE
from dcnn.train.config import RunConfig, merge
from dcnn.train.loop import Task
from dcnn.train.run import Run
from dcnn.train.text import parse_overrides, read_yaml

KINDS = ("pde", "atoms")  # a problem's name comes before a file of that name


class Domain(Protocol):
    """What a package of one kind of runs offers in its module `domain`."""

    def with_recipe(self, values: Mapping[str, Any]) -> dict[str, Any]: ...
    def parse(self, values: Mapping[str, Any], source: str) -> Any: ...
    def target(self, word: str) -> dict[str, Any] | None: ...
    def code(self, config: Any) -> str | None: ...
    def build(
        self, config: Any, given: Any = None, state: Mapping[str, Any] | None = None, folder: Path | None = None
    ) -> Any: ...
    def network(self, config: Any, state: Mapping[str, Any], given: Any = None) -> nn.Module: ...


def domain(kind: str) -> Domain:
    """The domain of a kind of runs; its package is imported when it is first asked for."""
    if kind == "sobolev":
        import dcnn.sobolev.domain

        return dcnn.sobolev.domain
    with needs_extra(f"cli,{kind}"):
        if kind == "atoms":
            import dcnn.atoms.domain

            return dcnn.atoms.domain
        if kind == "pde":
            import dcnn.pde.domain

            return dcnn.pde.domain
    raise unknown("kind of run", kind, (*KINDS, "sobolev"))


def parse(values: Mapping[str, Any], source: str = "configuration") -> Any:
    """The typed configuration of complete values, or one message that names every wrong field of `source`."""
    return domain(_kind(values)).parse(values, source)


def as_config(config: RunConfig | Mapping[str, Any] | str | Path) -> Any:
    """A full configuration from one, from a dictionary or from a YAML file; its recipe fills what is not said."""
    if isinstance(config, str | Path):
        values, source = read_yaml(Path(config)), str(config)
    elif isinstance(config, Mapping):
        values, source = dict(config), "configuration"
    else:
        return config
    return parse(domain(_kind(values)).with_recipe(values), source)


def config_of(run: Run) -> Any:
    """The typed configuration of a run folder; a weighting that is gone matters for going on with training alone."""
    values = run.config_values()
    loss = values.get("loss") or {}
    if loss.get("weighting") in GONE:
        values = {**values, "loss": {**loss, "weighting": "fixed", "weighting_options": {}}}
    return parse(values, str(run.config_file))


def build_task(config: RunConfig, folder: Path | None = None, given: Any = None) -> Task:
    """Data, network, scale and terms of a configuration, seeded.

    folder: of a run that has begun, for the data it was split into. given: a network or problem that is an object.
    """
    torch.manual_seed(config.seed)
    task: Task = domain(config.kind).build(config, given, folder=folder)
    return task


def resolve(
    target: str,
    recipe: str | None,
    overrides: list[str],
    model: str | None = None,
    seed: int | None = None,
    start: Mapping[str, Any] | None = None,
) -> Any:
    """The configuration of a command line: `target` is a YAML file, a data file, a PDE's name or a problem.py.

    start: the run to begin with, {"run": …, "freeze": […]}.
    """
    values = parse_overrides(overrides)
    if start:
        values = merge({"start": dict(start)}, values)
    if recipe is not None and recipe.endswith((".yaml", ".yml")):
        values = merge(own_recipe(read_yaml(Path(recipe)), Path(recipe).stem), values)
        recipe = None
    if model is not None:
        values = merge(values, {"model": {"name": model}})
    if seed is not None:
        values = merge(values, {"seed": seed})
    if target.endswith((".yaml", ".yml")):
        if recipe is not None:
            raise InputError(f"{target} states its own recipe, so --recipe {recipe} would change nothing: set it there")
        return as_config(merge(read_yaml(Path(target)), values))
    return as_config(merge({"recipe": recipe or "best", **target_values(target)}, values))


def own_recipe(values: Mapping[str, Any], name: str = "own") -> dict[str, Any]:
    """A user's recipe as values of a configuration: on top of the one that its key `recipe` names, or of `best`."""
    return {**values, "recipe": f"{values.get('recipe', 'best')}+{name}"}


def target_values(target: str) -> dict[str, Any]:
    """Which data or problem a word on the command line means; a folder of results may have a problem's name."""
    for kind in KINDS:
        if (found := domain(kind).target(target)) is not None:
            return found
    from dcnn.pde import problems

    raise InputError(f"{target!r} is neither a file nor one of: {', '.join(['demo', *problems.NAMES])}")


def _kind(values: Mapping[str, Any]) -> str:
    return str(values.get("kind", "pde" if "problem" in values else "atoms"))
