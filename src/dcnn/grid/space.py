"""What a sweep searches: `key=choice(a, b)`, `key=uniform(low, high)` and the like among the words of a command."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from dcnn.errors import InputError, unknown

#: randint leaves the upper bound out, as Python's range does.
DISTRIBUTIONS = ("choice", "uniform", "loguniform", "randint")

Space = dict[str, tuple[str, list[Any]]]


def split_space(pairs: Sequence[str]) -> tuple[Space, list[str]]:
    """Keys to search, each as (distribution, arguments), and the overrides that all trials share.

    >>> split_space(["model.activation=choice(silu, tanh)", "data.train=50"])
    ({'model.activation': ('choice', ['silu', 'tanh'])}, ['data.train=50'])
    """
    space: Space = {}
    fixed = []
    for pair in pairs:
        key, _, text = pair.partition("=")
        found = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text)
        if not found:
            fixed.append(pair)
            continue
        name, inside = found.groups()
        if name not in DISTRIBUTIONS:
            raise unknown(f"distribution in {pair!r}:", name, DISTRIBUTIONS)
        space[key] = (name, _arguments(pair, name, inside))
    if not space:
        raise InputError(
            "a sweep needs a key to search, for example training.stages.0.learning_rate=loguniform(1e-4,1e-2)"
        )
    return space, fixed


def _arguments(pair: str, name: str, inside: str) -> list[Any]:
    if name == "choice":
        try:
            values = yaml.safe_load(f"[{inside}]")
        except yaml.YAMLError:
            raise InputError(f"{pair!r}: the choices cannot be read") from None
        if not values:
            raise InputError(f"{pair!r}: no choice given")
        return values
    try:
        low, high = (int(part) if name == "randint" else float(part) for part in inside.split(","))
    except ValueError:
        raise InputError(f"{pair!r}: {name} takes two numbers, low and high") from None
    if not low < high or (name == "loguniform" and low <= 0):
        raise InputError(f"{pair!r}: {name} needs {'0 < ' if name == 'loguniform' else ''}low < high")
    return [low, high]


def overrides(sample: dict[str, Any]) -> list[str]:
    """A point of the space as key=value words.

    >>> overrides({"training.stages.0.learning_rate": 1e-05, "model.activation": "silu"})
    ['training.stages.0.learning_rate=1.0e-05', 'model.activation=silu']
    """
    dumped = {key: yaml.safe_dump(value, default_flow_style=True) for key, value in sample.items()}
    return [f"{key}={text.removesuffix('...' + chr(10)).strip()}" for key, text in dumped.items()]


def corner(space: Space) -> dict[str, Any]:
    """One point of the space: the first choices and lower bounds."""
    return {key: arguments[0] for key, (_, arguments) in space.items()}


def drawn(space: Space, random: np.random.Generator) -> dict[str, Any]:
    """One point of the space, drawn."""
    point: dict[str, Any] = {}
    for key, (name, arguments) in space.items():
        if name == "choice":
            point[key] = arguments[int(random.integers(len(arguments)))]
        elif name == "randint":
            point[key] = int(random.integers(*arguments))
        elif name == "uniform":
            point[key] = float(random.uniform(*arguments))
        else:
            low, high = (math.log(end) for end in arguments)
            point[key] = math.exp(random.uniform(low, high))
    return point
