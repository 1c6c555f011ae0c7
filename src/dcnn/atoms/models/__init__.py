"""Networks by name: :func:`build` makes one, :func:`register` adds one of your own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from torch import nn

from dcnn.errors import InputError, unknown
from dcnn.plugins import from_file, installed
from dcnn.surgery import swap_activations

#: The networks of the library: where each class stands.
NETWORKS = {
    "schnet": "dcnn.atoms.models.schnet:SchNet",
    "cgcnn": "dcnn.atoms.models.cgcnn:CGCNN",
    "dimenet_plus_plus": "dcnn.atoms.models.dimenet:DimeNetPlusPlus",
    "forcenet": "dcnn.atoms.models.forcenet:ForceNet",
    "gemnet": "dcnn.atoms.models.gemnet:GemNetT",
    "tensornet": "dcnn.atoms.models.tensornet:TensorNet",
}
NAMES = tuple(NETWORKS)
PAPER = NAMES[:5]  # those that the paper trains
FIDELITIES = ("text", "scripts")
ENTRY_POINTS = "dcnn.networks"

Network = type[nn.Module] | nn.Module
_registered: dict[str, Network] = {}


def register(name: str, network: Network) -> None:
    """Makes a class of networks (or a ready module) known by a name, in this process."""
    if name in NETWORKS or ":" in name:
        raise InputError(f"{name!r} cannot be registered: it is a network of dcnn, or looks like a file")
    _registered[name] = network


def find(name: str) -> Network:
    """The class or module of a name: one of ours, a registered or an installed one, or ``file.py:Class``, which runs
    the file.
    """
    if name in NETWORKS:
        module, _, cls = NETWORKS[name].partition(":")
        return getattr(import_module(module), cls)
    if name in _registered:
        return _registered[name]
    if ".py:" in name:
        return from_file(name, "network")
    points = installed(ENTRY_POINTS)
    if name in points:
        return points[name].load()
    raise unknown("network", name, (*NETWORKS, *_registered, *points))


def weights_of(name: str) -> ModuleType:
    """The module that holds PRESETS, ALIASES, ``sizes`` and ``published`` of one of our networks."""
    if name not in NETWORKS:
        raise unknown("network", name, NAMES)
    return import_module(f"dcnn.atoms.models.weights.{name}")


def build(
    name: str | Network,
    preset: str = "small",
    fidelity: str = "text",
    activation: str | nn.Module | None = None,
    normalization: bool | None = None,
    **overrides: Any,
) -> nn.Module:
    """A network with fresh weights; it takes an :class:`AtomsBatch` and returns energies (B,).

    ``name``: one of ours, a registered or installed one, ``"my_net.py:PaiNN"``, or the class itself.
    ``preset``: "small" (100–400 thousand parameters) or "paper" (the sizes of the paper).
    ``fidelity``: "text" is smooth at the cutoff and conservative, "scripts" computes what the published
    code does. ``activation`` takes the places where the paper puts IReLU; None keeps the published
    activations. ``normalization=False`` removes normalization layers; None leaves it to the preset.
    ``overrides`` are constructor arguments under our names or the published ones (``features=64`` or
    ``hidden_channels=64``). A class of your own gets those of these arguments that its constructor takes; an
    activation that it does not take replaces those it has (``swap_activations``).

    >>> build("schnet", features=64, activation="silu").cutoff
    6.0
    """
    ours = isinstance(name, str) and name in NETWORKS
    make = find(name) if isinstance(name, str) else name
    label = name if isinstance(name, str) else getattr(make, "__name__", type(make).__name__)
    presets = weights_of(str(name)).PRESETS if ours else {"small": {}}
    if preset not in presets:
        raise unknown("preset", preset, presets)
    if fidelity not in FIDELITIES:
        raise unknown("fidelity", fidelity, FIDELITIES)
    taken: set[str] = set()
    network = make
    if isinstance(make, nn.Module) and overrides:
        raise InputError(f"{label} is a ready module: {', '.join(overrides)} cannot be given")
    if isinstance(make, type):
        taken = set(inspect.signature(make).parameters)
        options = dict(presets[preset]) | resolve(label, make, weights_of(label).ALIASES if ours else {}, overrides)
        if "fidelity" in taken:
            options["fidelity"] = fidelity
        if normalization is not None and "normalization" in taken:  # SchNet, DimeNet++ and GemNet-T have none
            options["normalization"] = normalization
        if activation is not None and "activation" in taken:
            options["activation"] = activation
        network = make(**options)
    if not isinstance(network, nn.Module) or not isinstance(getattr(network, "cutoff", None), int | float):
        raise InputError(f"{label} is no network: it has to be an nn.Module with a cutoff in Å (self.cutoff = 5.0)")
    if activation is not None and "activation" not in taken:
        swap_activations(network, activation)
    return network


def resolve(
    label: str, make: type[nn.Module], aliases: Mapping[str, str], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Constructor arguments of a network, given under its own names or the published ones."""
    parameters = inspect.signature(make).parameters
    valid = set(parameters)
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    resolved: dict[str, Any] = {}
    for given, value in options.items():
        own = aliases.get(given, given)
        if own not in valid and not anything:
            raise unknown(f"option of {label}", given, valid | set(aliases))
        if own in resolved and resolved[own] != value:
            raise InputError(f"{label}: {own} is given twice, as {resolved[own]!r} and as {given}={value!r}")
        resolved[own] = value
    return resolved
