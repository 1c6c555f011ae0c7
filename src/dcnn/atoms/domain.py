"""How potentials plug into the commands: their configuration, what a word on a command line means, their tasks."""

from __future__ import annotations

from collections.abc import Mapping
from glob import glob
from pathlib import Path
from typing import Any

from torch import nn

from dcnn.atoms.config import AtomsConfig, ModelConfig
from dcnn.atoms.fine_tuning import with_origin
from dcnn.atoms.frames import SPLIT, kept_frames
from dcnn.atoms.potential import restored_network
from dcnn.atoms.recipes import recipe
from dcnn.atoms.task import AtomsTask, build_atoms
from dcnn.scaling import LabelScale
from dcnn.train import checkpoint
from dcnn.train.config import merge
from dcnn.train.run import Run
from dcnn.train.settings import validated


def with_recipe(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with those of their recipe where they say nothing; a run to start from brings its network."""
    begun = bool((values.get("start") or {}).get("run"))
    values = with_origin(values) if begun else values
    network = (values.get("model") or {}).get("name", ModelConfig().name)
    filled = merge(recipe(values.get("recipe", "best").partition("+")[0], network), values)
    return {**filled, "model": values["model"]} if begun else filled


def parse(values: Mapping[str, Any], source: str) -> AtomsConfig:
    return validated(AtomsConfig, values, source)


def target(word: str) -> dict[str, Any] | None:
    """The values of a configuration that a word on the command line stands for: frames (a file, 'run*.xyz') or demo."""
    there = word == "demo" or Path(word).exists() or bool(glob(word))
    return {"kind": "atoms", "data": {"path": word}} if there else None


def code(config: AtomsConfig) -> str | None:
    """The file of a user's that building the network would run."""
    return config.model.name if ".py:" in config.model.name else None


def build(
    config: AtomsConfig,
    given: nn.Module | None = None,
    state: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> AtomsTask:
    """The task, around a network that is `given`; if it was trained, with the label scale that it was trained with.

    folder: of a run that has begun; its own split of the frames is taken.
    """
    if state is None and config.start.run and folder is not None and Run(folder).last.exists():
        state = checkpoint.load(Run(folder).last)  # the run to start from may be gone
    scale = LabelScale.from_dict(state["task"]["scale"]) if state is not None else None
    kept = folder is not None and (folder / SPLIT).exists()
    frames = kept_frames(folder, config.data) if folder is not None and kept else None
    return build_atoms(config, frames, scale, given)


def network(config: AtomsConfig, state: Mapping[str, Any], given: nn.Module | None = None) -> nn.Module:
    """The network of a checkpoint, in the precision it was trained in; `given`: one that takes the weights."""
    return restored_network({**state, "config": config.to_dict()}, config.model.name, given, trust=True)
