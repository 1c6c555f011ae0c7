"""How Sobolev training plugs into `fit` and into the opening of runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from dcnn.errors import InputError
from dcnn.scaling import LabelScale
from dcnn.sobolev.config import RECIPE, SobolevConfig
from dcnn.sobolev.scaled_network import GRADIENT, FieldScales, ScaledNetwork
from dcnn.sobolev.task import SobolevTask, letters_of, read_points, split_points
from dcnn.train.checkpoint import load_weights, trained_dtype
from dcnn.train.config import from_values, merge


def with_recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    return merge(RECIPE, values)


def parse(values: Mapping[str, Any], source: str) -> SobolevConfig:
    try:
        return from_values(SobolevConfig, values)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def target(word: str) -> dict[str, Any] | None:
    """Tensors have no word on a command line."""
    return None


def code(config: SobolevConfig) -> str | None:
    return None


def build(
    config: SobolevConfig, given: Any = None, state: Mapping[str, Any] | None = None, folder: Path | None = None
) -> SobolevTask:
    """The task of a run around the user's network, or around the one that was trained."""
    if given is None:
        raise _needs_network(config)
    net = given.net if isinstance(given, ScaledNetwork) else given
    points = split_points(*read_points(Path(config.data)), config)
    own = Path(config.data).with_name("test.npz")
    if own.exists():
        points["test"] = read_points(own)
    return SobolevTask(config, net, points, _scale(state) if state is not None else None)


def network(config: SobolevConfig, state: Mapping[str, Any], given: Any = None) -> nn.Module:
    """The trained network in the units of its labels; `given`: one of the kind that was trained."""
    if given is None:
        raise _needs_network(config)
    load_weights(given.to(trained_dtype(state["network"])), state["network"], config.network)
    return ScaledNetwork(given, _scale(state))


def labels(config: SobolevConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the coordinates and of the fields of the solution."""
    x, known = read_points(Path(config.data))
    fields = max(label.shape[1] for name, label in known.items() if name != GRADIENT or len(known) == 1)
    return tuple(letters_of(x, known, config.coordinates)), tuple(f"y{n}" if n else "y" for n in range(fields))


def _scale(state: Mapping[str, Any]) -> FieldScales:
    return FieldScales(LabelScale.from_dict(stored) for stored in state["task"]["scale"])


def _needs_network(config: SobolevConfig) -> InputError:
    return InputError(f"the network of this run is a {config.model_name} of your own: give one as model=…")
