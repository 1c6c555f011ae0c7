"""The paper's five networks: :func:`build` makes one by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from torch import nn

from dcnn.errors import InputError, unknown

#: Name of every network, with the module that holds it and its class.
MODELS = {
    "schnet": ("dcnn.atoms.models.schnet", "SchNet"),
    "cgcnn": ("dcnn.atoms.models.cgcnn", "CGCNN"),
    "dimenet_plus_plus": ("dcnn.atoms.models.dimenet", "DimeNetPlusPlus"),
    "forcenet": ("dcnn.atoms.models.forcenet", "ForceNet"),
    "gemnet": ("dcnn.atoms.models.gemnet", "GemNetT"),
}
NAMES = tuple(MODELS)
FIDELITIES = ("text", "scripts")


def module_of(name: str) -> ModuleType:
    """The module of a network; it defines PRESETS, ALIASES and the class."""
    if name not in MODELS:
        raise unknown("network", name, NAMES)
    return import_module(MODELS[name][0])


def build(
    name: str,
    preset: str = "small",
    fidelity: str = "text",
    activation: str | nn.Module | None = None,
    normalization: bool | None = None,
    **overrides: Any,
) -> nn.Module:
    """A network with fresh weights; it takes an :class:`AtomsBatch` and returns energies (B,).

    ``preset``: "small" (100–400 thousand parameters) or "paper" (the sizes of the paper).
    ``fidelity``: "text" is smooth at the cutoff and conservative, "scripts" computes what the published
    code does. ``activation`` takes the places where the paper puts IReLU; None keeps the published
    activations. ``normalization=False`` removes normalization layers; None leaves it to the preset.
    ``overrides`` are constructor arguments under our names or the published ones (``features=64`` or
    ``hidden_channels=64``).

    >>> build("schnet", features=64, activation="silu").cutoff
    6.0
    """
    module = module_of(name)
    make = getattr(module, MODELS[name][1])
    if preset not in module.PRESETS:
        raise unknown("preset", preset, module.PRESETS)
    if fidelity not in FIDELITIES:
        raise unknown("fidelity", fidelity, FIDELITIES)
    taken = set(inspect.signature(make).parameters)
    options = dict(module.PRESETS[preset]) | resolve(name, overrides)
    if "fidelity" in taken:
        options["fidelity"] = fidelity
    if normalization is not None and "normalization" in taken:  # SchNet, DimeNet++ and GemNet have none
        options["normalization"] = normalization
    if activation is not None:
        options["output_activation" if "output_activation" in taken else "activation"] = activation
    return make(**options)


def resolve(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of a network, given under its own names or the published ones."""
    module = module_of(name)
    valid = set(inspect.signature(getattr(module, MODELS[name][1])).parameters)
    aliases: dict[str, str] = getattr(module, "ALIASES", {})
    resolved: dict[str, Any] = {}
    for given, value in options.items():
        own = aliases.get(given, given)
        if own not in valid:
            raise unknown(f"option of {name}", given, valid | set(aliases))
        if own in resolved and resolved[own] != value:
            raise InputError(f"{name}: {own} is given twice, as {resolved[own]!r} and as {given}={value!r}")
        resolved[own] = value
    return resolved
