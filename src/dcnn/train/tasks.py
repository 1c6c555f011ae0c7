"""From a configuration to the task that the loop trains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from dcnn import atoms
from dcnn.atoms.data.frame_checks import check_geometries
from dcnn.atoms.splits import Split, block_split, random_split, read_split
from dcnn.atoms.task import AtomsTask
from dcnn.atoms.units import ENERGY
from dcnn.errors import InputError
from dcnn.losses import Term
from dcnn.losses import weighting as weightings
from dcnn.scaling import LabelScale
from dcnn.train.config import AtomsConfig, DataConfig, PdeConfig
from dcnn.train.loop import Task


def build_task(config: AtomsConfig | PdeConfig) -> Task:
    """Data, network, scale and terms of a configuration, seeded."""
    torch.manual_seed(config.seed)
    if isinstance(config, AtomsConfig):
        return build_atoms(config)
    from dcnn.train.pde_tasks import build_pde

    return build_pde(config)


def build_atoms(
    config: AtomsConfig, frames: Mapping[str, atoms.Dataset] | None = None, scale: LabelScale | None = None
) -> AtomsTask:
    """The task of a potential; with `frames` and `scale` of a run that is there already, nothing is read or fitted."""
    frames = split_frames(config.data) if frames is None else frames
    if scale is None:
        scale = LabelScale.fit(frames["train"], references=config.scale.references, unit=config.scale.unit)
    model = config.model
    network = atoms.build(
        model.name,
        preset=model.preset,
        fidelity=model.fidelity,
        activation=model.activation,
        normalization=model.normalization,
        **model.overrides,
    )
    loss = config.loss
    terms = (
        Term("energy", loss.energy.weight, loss.energy.norm),
        Term("forces", loss.forces.weight, loss.forces.norm),
    )
    return AtomsTask(
        network,
        scale,
        frames,
        terms,
        weightings.get(loss.weighting, terms, **loss.weighting_options),
        batch_size=config.training.batch_size,
        energy_per_atom=loss.energy_per_atom,
        energy_unit_eV=ENERGY[frames["train"].units.energy],
        seed=config.seed,
        one_shape=config.training.step != "eager",
    )


def split_frames(data: DataConfig) -> dict[str, atoms.Dataset]:
    """Training, validation and test frames; lengths in Å."""
    dataset = _load(data.path, data)
    own_test = isinstance(data.test, str)
    count = len(dataset)
    if data.split in ("random", "blocks"):
        if data.validation >= count:
            raise InputError(f"{data.path}: {data.validation} validation frames of {count} leave none to train on")
        test = data.test if isinstance(data.test, int) else (0 if own_test else None)
        train = data.train
        if train is None:  # all that is left, or four fifths of it where the test frames come from the same file
            train = count - data.validation - test if test is not None else int(0.8 * (count - data.validation))
        sizes = (count, train, data.validation, test, data.split_seed)
        blocks = data.split == "blocks"
        split = block_split(*sizes, order=dataset.trajectory_index()) if blocks else random_split(*sizes)
    else:
        split = _with_validation(read_split(Path(data.split), count), data)
    frames = {"train": dataset[split.train], "validation": dataset[split.valid], "test": dataset[split.test]}
    if own_test:
        frames["test"] = _load(str(data.test), data).to_units(frames["train"].units)
    for part in frames.values():
        check_geometries(part)
    return frames


def _with_validation(split: Split, data: DataConfig) -> Split:
    """A split file that names no validation frames gives up some of its training frames."""
    if len(split.valid):
        return split
    inner = random_split(len(split.train), len(split.train) - data.validation, data.validation, 0, data.split_seed)
    return Split(split.train[inner.train], split.train[inner.valid], split.test, split.origin)


def _load(path: str, data: DataConfig) -> atoms.Dataset:
    if path == "demo":
        return atoms.demo_dataset()
    dataset = atoms.load(path, labels=data.labels, units=data.units, force_sign=data.force_sign or 1)
    return dataset.to_units(length="Ang")
