"""`dcnn predict` for a run of a PDE: fields on a grid, or at points of a file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np

from dcnn.errors import InputError
from dcnn.guard import decoding
from dcnn.results import TrainedRun
from dcnn.safe_files import written_beside
from dcnn.train import Run

GRID = 101  # points along each axis, fewer where all would be more than
MOST = 1_000_000


def is_pde(run: Path) -> bool:
    """Whether a path is the run folder of a PDE."""
    folder = Run(run)
    return folder.config_file.exists() and folder.config_values().get("kind") == "pde"


def predict_fields(run: Path, points: Path, output: Path, trust: bool) -> dict[str, Any]:
    """Writes coordinates and fields to .npz or .csv; returns what is in the file."""
    if output.suffix not in (".npz", ".csv"):
        raise InputError(f"{output}: fields are written to .npz or .csv")
    opened = TrainedRun.open(run, trust)
    names = opened.solution.coordinates
    network: Any = opened.network
    domain: dict[str, tuple[float, float]] = network.problem.domain
    if points.name == "grid" and not points.exists():
        count = min(GRID, int(MOST ** (1 / len(names))))
        axes = np.meshgrid(*(np.linspace(domain[name][0], domain[name][1], count) for name in names), indexing="ij")
        at = dict(zip(names, axes, strict=True))
    else:
        at = _points_of(points, names)
    for name in names:
        low, high = domain[name]
        if not np.isfinite(at[name]).all():
            raise InputError(f"{points}: {name} is NaN or infinite in row {np.argwhere(~np.isfinite(at[name]))[0][0]}")
        if outside := int(((at[name] < low) | (at[name] > high)).sum()):
            message = f"{points}: {outside} points have {name} outside of [{low:g}, {high:g}], where it was not trained"
            warn(message, stacklevel=2)
    found = opened.solution(**at)
    fields = found if isinstance(found, dict) else {opened.solution.fields[0]: found}
    with written_beside(output) as partial:
        _write(partial, output.suffix, at | fields)
    return {"file": str(output), "coordinates": list(names), "fields": list(fields), "points": int(at[names[0]].size)}


def _points_of(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The coordinates in a .csv with a header or in an .npz."""
    with decoding(path, "file of points"):
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as held:
                columns = {name: np.asarray(held[name], dtype=np.float64) for name in held.files}
        else:
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            columns = {key: np.array([float(row[key]) for row in rows]) for key in (rows[0] if rows else {})}
    if missing := [name for name in names if name not in columns]:
        held_names = ", ".join(columns) or "nothing"
        raise InputError(f"{path}: no column {', '.join(missing)}; it holds {held_names}. Or write grid for a grid")
    return {name: columns[name] for name in names}


def _write(path: Path, suffix: str, arrays: dict[str, np.ndarray]) -> None:
    if suffix == ".npz":
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        return
    table = np.stack([array.ravel() for array in arrays.values()], 1)
    np.savetxt(path, table, delimiter=",", header=",".join(arrays), comments="")
