"""Training that begins with the weights of an earlier run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from dcnn.atoms.config import ScaleConfig, StartConfig
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.potential import Potential
from dcnn.atoms.units import ENERGY
from dcnn.errors import InputError, unknown
from dcnn.guard import decoding
from dcnn.scaling import LabelScale
from dcnn.train import checkpoint
from dcnn.train.config import merge

FITTED = 1000  # frames that references are fitted to


def with_origin(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a configuration with the network of the run that they start from, and the digest of its weights."""
    start, own = dict(values["start"]), dict(values.get("model") or {})
    file = _weights_of(start["run"])
    state = checkpoint.load(file)
    with decoding(file, "checkpoint of a potential"):
        if state["config"]["kind"] != "atoms":
            raise InputError(f"{start['run']}: holds a network of kind {state['config']['kind']!r}, not a potential")
        model = dict(state["config"]["model"])
    named = own.get("name")
    if named not in (None, model["name"]):
        raise InputError(f"{start['run']}: holds the weights of {model['name']}, which {named} cannot take")
    if ".py:" in model["name"] and named is None:
        raise InputError(
            f"{start['run']}: its network is {model['name']}, code that training would run; "
            f"name it yourself (--model {model['name']}) if you know it"
        )
    if (asked := merge(model, own)) != model:
        changed = ", ".join(f"model.{key}" for key in model if asked.get(key) != model[key])
        raise InputError(f"{start['run']}: {changed or 'model'}: the weights are of another network")
    start.setdefault("digest", _digest(file))
    return {**values, "model": model, "start": start}


def _weights_of(run: str | Path) -> Path:
    file = Path(run)
    file = file / "checkpoints" / "best.ckpt" if file.is_dir() else file
    if not file.exists():
        raise InputError(f"{run}: no such run folder or checkpoint to start from")
    return file


def _digest(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()


def started(
    start: StartConfig, scale: ScaleConfig, frames: Dataset, given: nn.Module | None = None
) -> tuple[nn.Module, LabelScale]:
    """The network with the weights of ``start.run``, and a scale that fits it to the new frames.

    One unit of the network's output stays as many eV as it was, so that its forces are what they were; the references
    are fitted to what the network leaves of the new energies, which may be of another method with another zero.
    ``given``: a network that takes the weights.
    """
    assert start.run is not None
    if start.digest is not None and _digest(_weights_of(start.run)) != start.digest:
        raise InputError(
            f"{start.run}: other weights than this configuration was made with; drop start.digest to take them"
        )
    old = Potential.load(start.run, network=given, trust=True)
    bare = Potential(old.network, LabelScale(old.scale.constant), old.energy_unit_eV, dtype=old.dtype)
    unit_eV = ENERGY[frames.units.energy]
    some = frames[np.linspace(0, len(frames) - 1, min(len(frames), FITTED)).astype(int)]
    known = bare.predict(some)
    rest = [
        replace(frame, energy=frame.energy - found.energy / unit_eV)  # type: ignore[operator]
        for frame, found in zip(some, known, strict=True)
        if frame.energy is not None
    ]
    constant = old.scale.constant * old.energy_unit_eV / unit_eV
    if not rest:  # forces alone
        return old.network.train().requires_grad_(), LabelScale(constant)
    kind: Any = scale.references if scale.references in (None, "mean") else "elements"  # free atoms are of no use here
    fitted = LabelScale.fit(rest, references=kind, unit=constant)
    return old.network.train().requires_grad_(), fitted


def freeze(network: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Keeps parts of a network as they are, by the names of modules or parameters (``embedding``, ``blocks.0*``)."""
    names = [name for name, _ in network.named_parameters()]
    frozen = []
    for pattern in patterns:
        found = [name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not found:
            raise unknown("start.freeze: part of the network", pattern, sorted({n.rpartition(".")[0] for n in names}))
        frozen += found
    for name in frozen:
        network.get_parameter(name).requires_grad_(False)
    if not any(p.requires_grad for p in network.parameters()):
        raise InputError("start.freeze: nothing is left to train")
    return frozen
