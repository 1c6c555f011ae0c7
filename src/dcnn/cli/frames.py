"""The frames a run was tested on: what commands use when no file is named."""

from __future__ import annotations

from pathlib import Path

from dcnn.atoms import Dataset
from dcnn.errors import InputError
from dcnn.train.config import AtomsConfig
from dcnn.train.run import Run
from dcnn.train.tasks import split_frames


def own_test_frames(run: Path) -> Dataset:
    """The test frames of a potential's run folder, as its configuration splits its data."""
    config = Run.open(run).config()
    if not isinstance(config, AtomsConfig):
        raise InputError(f"{run}: a run of a PDE, not of an interatomic potential")
    return split_frames(config.data)["test"]
