"""The frames a run was tested on: what commands use when no file is named."""

from __future__ import annotations

from pathlib import Path

import typer

from dcnn.atoms import Dataset, Potential
from dcnn.atoms.committee import member_folders
from dcnn.atoms.frames import split_frames
from dcnn.errors import InputError
from dcnn.results import TrainedRun


def own_test_frames(run: Path) -> Dataset:
    """The test frames of a potential's run folder, or of a committee's first, as its configuration splits its data."""
    config = TrainedRun.open(next(iter(member_folders(run)), run)).config
    if config.kind != "atoms":
        raise InputError(f"{run}: a run of kind {config.kind}, not of an interatomic potential")
    return split_frames(config.data)["test"]


def outside_frames(potential: Potential, predicted: Dataset) -> dict[int, list[str]]:
    """Which of the predicted frames (eV, Å) are outside of what the potential was trained on, and in what."""
    found = {n: potential.outside(frame, frame.energy, frame.forces) for n, frame in enumerate(predicted)}
    return {number: words for number, words in found.items() if words}


def say_outside(strange: dict[int, list[str]], count: int) -> None:
    """One line for all frames that are outside, on standard error."""
    if strange:
        number, words = next(iter(strange.items()))
        typer.echo(
            f"dcnn: {len(strange)} of {count} structures are outside of what the potential was trained on, "
            f"for example number {number}: {'; '.join(words)}",
            err=True,
        )
