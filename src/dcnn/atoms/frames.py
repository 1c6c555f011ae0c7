"""From the data section of a configuration to training, validation and test frames."""

from __future__ import annotations

from pathlib import Path

from dcnn.atoms.config import DataConfig
from dcnn.atoms.data import demo_dataset, load
from dcnn.atoms.data.frame_checks import check_geometries
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.splits import Split, block_split, random_split, read_split
from dcnn.errors import InputError


def split_frames(data: DataConfig) -> dict[str, Dataset]:
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


def _load(path: str, data: DataConfig) -> Dataset:
    if path == "demo":
        return demo_dataset()
    dataset = load(path, labels=data.labels, units=data.units, force_sign=data.force_sign or 1)
    return dataset.to_units(length="Ang")
