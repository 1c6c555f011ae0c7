"""From the data section of a configuration to training, validation and test frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dcnn.atoms.config import DataConfig
from dcnn.atoms.data import demo_dataset, load
from dcnn.atoms.data.fingerprint import load_split
from dcnn.atoms.data.frame_checks import check_geometries
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.splits import Split, block_split, random_split, read_split
from dcnn.errors import InputError

SPLIT = "split.json"  # in a run folder: the numbers of its frames and fingerprints of their files


def split_frames(data: DataConfig) -> dict[str, Dataset]:
    """Training, validation and test frames; lengths in Å."""
    dataset = load_frames(data.path, data)
    count = len(dataset)
    validation = 0 if isinstance(data.validation, str) else data.validation
    if data.split in ("random", "blocks"):
        if validation >= count:
            raise InputError(f"{data.path}: {validation} validation frames of {count} leave none to train on")
        test = 0 if isinstance(data.test, str) else data.test
        train = data.train
        if train is None:  # all that is left, or four fifths of it where the test frames come from the same file
            train = count - validation - test if test is not None else int(0.8 * (count - validation))
        sizes = (count, train, validation, test, data.split_seed)
        blocks = data.split == "blocks"
        split = block_split(*sizes, order=dataset.trajectory_index()) if blocks else random_split(*sizes)
    else:
        split = _with_validation(read_split(Path(data.split), count), validation, data.split_seed)
    frames = {"train": dataset[split.train], "validation": dataset[split.valid], "test": dataset[split.test]}
    for name, file in (("validation", data.validation), ("test", data.test)):
        if isinstance(file, str):
            frames[name] = load_frames(file, data).to_units(frames["train"].units)
    for part in frames.values():
        check_geometries(part)
    return frames


def kept_frames(folder: Path, data: DataConfig) -> dict[str, Dataset]:
    """The frames that a run was split into; files that have changed since are refused."""
    frames = load_split(folder / SPLIT, lambda files: load_frames("demo" if files == ["demo"] else files, data))
    return {name: part.to_units(frames["train"].units) for name, part in frames.items()}


def _with_validation(split: Split, validation: int, seed: int) -> Split:
    """A split file that names no validation frames gives up some of its training frames."""
    if len(split.valid) or not validation:
        return split
    inner = random_split(len(split.train), len(split.train) - validation, validation, 0, seed)
    return Split(split.train[inner.train], split.train[inner.valid], split.test, split.origin)


def load_frames(path: str | Sequence[str], data: DataConfig) -> Dataset:
    """The frames of a file as a configuration reads it; lengths in Å."""
    if path == "demo":
        return demo_dataset()
    keys = data.model_dump(include={"energy_key", "forces_key", "stress_key", "virial_key"})
    dataset = load(path, labels=data.labels, units=data.units, force_sign=data.force_sign or 1, **keys)
    return dataset.to_units(length="Ang")
