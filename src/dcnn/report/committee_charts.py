"""The page of a committee: that of its members, with how well their disagreement tells their errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dcnn.atoms.committee import Committee, member_folders
from dcnn.atoms.frames import kept_frames
from dcnn.report.chart import Chart, Figure
from dcnn.report.page import write_page
from dcnn.results import TrainedRun

MOST_FRAMES, BINS = 200, 10


def write_committee_page(folder: Path | str) -> Path:
    """Writes report.html in the folder of a committee."""
    folder = Path(folder)
    return write_page(member_folders(folder), folder / "report.html", figures=[calibration(folder)], trust=True)


def calibration(folder: Path) -> Figure:
    """Errors of the forces on atoms of the test frames over the standard deviation of the members, in ten bins."""
    first = TrainedRun.open(member_folders(folder)[0])
    frames = kept_frames(first.folder, first.config.data)["test"][:MOST_FRAMES].to_units("eV", "Ang")
    potential = Committee.load(folder, trust=True)
    spread, error = [], []
    for structures, _, found in potential._evaluated(frames):
        assert found.forces_std is not None
        labels = np.concatenate([np.asarray(s.forces) for s in structures])
        spread.append(found.forces_std.numpy())
        error.append(np.linalg.norm(found.forces.numpy() - labels, axis=1))
    bins = np.array_split(np.argsort(np.concatenate(spread)), BINS)
    x, y = (
        np.array([np.sqrt(np.mean(np.concatenate(values)[part] ** 2)) for part in bins if len(part)])
        for values in (spread, error)
    )
    chart = Chart("disagreement of the members (eV/Å)", "error of their mean (eV/Å)", equal=True, height=300)
    chart.diagonal()
    chart.points(x, y, 0)
    ratio = float(np.sqrt(np.sum(y**2) / np.sum(x**2)))
    note = f"Forces on atoms of {len(frames)} test frames, rms in {BINS} bins. Errors are {ratio:.2g} times as large."
    return chart.figure("Calibration of the committee", note)
