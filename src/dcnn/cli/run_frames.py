"""The frames a run was tested on: what commands use when no file is named."""

from __future__ import annotations

from pathlib import Path

from dcnn.atoms import Dataset
from dcnn.atoms.frames import split_frames
from dcnn.errors import InputError
from dcnn.results import TrainedRun


def own_test_frames(run: Path) -> Dataset:
    """The test frames of a potential's run folder, as its configuration splits its data."""
    config = TrainedRun.open(run).config
    if config.kind != "atoms":
        raise InputError(f"{run}: a run of kind {config.kind}, not of an interatomic potential")
    return split_frames(config.data)["test"]
