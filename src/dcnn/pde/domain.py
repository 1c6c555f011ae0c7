"""How PDE networks plug into the commands: their configuration, what a word on a command line means, their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from dcnn.pde import problems
from dcnn.pde.build import build_network, build_pde, stated_problem
from dcnn.pde.config import PdeConfig
from dcnn.pde.network import PdeNetwork
from dcnn.pde.problem import Problem
from dcnn.pde.recipes import recipe
from dcnn.pde.task import PdeTask
from dcnn.pde.windows import Windows
from dcnn.train.checkpoint import load_weights, trained_dtype
from dcnn.train.config import merge
from dcnn.train.settings import validated


def with_recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with those of their recipe where they say nothing."""
    name = values.get("recipe", "best").partition("+")[0]
    return merge(recipe(name, (values.get("problem") or {}).get("name", ""), values), values)


def parse(values: Mapping[str, Any], source: str) -> PdeConfig:
    return validated(PdeConfig, values, source)


def target(word: str) -> dict[str, Any] | None:
    """The values of a configuration that a word on the command line stands for: a problem's name or its file."""
    known = word.endswith(".py") or problems.is_known(word)
    return {"kind": "pde", "problem": {"name": word}} if known else None


def code(config: PdeConfig) -> str | None:
    """The file of a user's that building the problem would run."""
    return config.problem.name if config.problem.name.endswith(".py") else None


def build(
    config: PdeConfig, given: Any = None, state: Mapping[str, Any] | None = None, folder: Path | None = None
) -> PdeTask:
    """The task, for a problem or around a trained network that is given."""
    if isinstance(given, PdeNetwork | Windows):
        return build_pde(config, given)
    return build_pde(config, problem=given)


def network(config: PdeConfig, state: Mapping[str, Any], given: Problem | PdeNetwork | None = None) -> nn.Module:
    """The network of a checkpoint, in the precision it was trained in; `given`: problem or network of the run."""
    found = given if isinstance(given, PdeNetwork) else build_network(config, stated_problem(config, given))
    load_weights(found.to(trained_dtype(state["network"])), state["network"], config.problem.name)
    return found
