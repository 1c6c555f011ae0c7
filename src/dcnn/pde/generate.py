"""Many solutions of one problem in one PDEBench file; what was computed before an interruption is kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml

from dcnn.errors import InputError
from dcnn.pde import pdebench
from dcnn.pde.cache import read_solution, write_solution
from dcnn.pde.problem import Problem
from dcnn.pde.solution import Solution
from dcnn.safe_files import written_beside


class _Parts(Sequence[Solution]):
    """Samples that wait, one file each, to be put together."""

    def __init__(self, folder: Path, count: int):
        self.folder, self.length = folder, count

    def path(self, index: int) -> Path:
        return self.folder / f"{index:06d}.npz"

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if index >= self.length:
            raise IndexError(index)
        found = read_solution(self.path(index))
        if found is None:
            raise OSError(f"{self.path(index)} cannot be read")
        return found


def generate(problem: Problem, path: str | Path, samples: int = 1, seed: int = 0) -> Iterator[int]:
    """Solve `samples` instances of `problem` and write them to `path`; yields the number of those ready.

    Every sample is first kept by itself in the folder `path`.parts; `path` appears when all are there. After an
    interruption the same call continues with the first sample that is missing.
    """
    path = Path(path)
    settings = _settings(problem, samples, seed)
    if path.exists():
        _must_agree(_settings_of(path), settings, path)
        yield samples
        return
    parts = _Parts(path.with_name(path.name + ".parts"), samples)
    note = parts.folder / "settings.json"
    if note.exists():
        _must_agree(json.loads(note.read_text()), settings, parts.folder)
    yield 0
    for index in range(samples):
        if read_solution(parts.path(index)) is None:
            write_solution(parts.path(index), _solve(problem, index, seed))
            note.write_text(json.dumps(settings))  # not before a first success: wrong settings leave no trace
        yield index + 1
    attributes = {**problem.parameters, "problem": problem.name, "seed": seed, "dcnn": json.dumps(settings)}
    with written_beside(path) as partial:
        pdebench.write(partial, parts, attributes, [_config(problem, parts[0], seed + i) for i in range(samples)])
    shutil.rmtree(parts.folder)


def _solve(problem: Problem, index: int, seed: int) -> Solution:
    changes = {key: value for key, value in (("sample", index), ("seed", seed)) if key in problem.options}
    found = problem.with_settings(**changes).solve()
    if found is None:
        raise InputError(f"{problem.where}: no known solution (its `solve` returns none), nothing to write")
    for name, values in found.fields.items():
        if not np.isfinite(values).all():
            raise ArithmeticError(f"{problem.where}: sample {index}: the solution of {name!r} is not finite")
    return found


def _settings(problem: Problem, samples: int, seed: int) -> dict[str, Any]:
    if samples < 1:
        raise InputError(f"samples must be at least 1, found {samples}")
    if samples > 1 and "sample" not in problem.options:
        raise InputError(f"{problem.where} has one solution only; its file cannot hold {samples} samples")
    if problem.ranges:
        raise InputError(f"{problem.where}: {', '.join(problem.ranges)} must be a number here, not a range")
    return {**problem.identity(), "sample": "all", "seed": seed, "samples": samples}


def _settings_of(path: Path) -> dict[str, Any]:
    try:
        with h5py.File(path, "r") as file:
            return json.loads(file.attrs.get("dcnn", "{}"))
    except OSError:
        return {}


def _must_agree(found: dict[str, Any], settings: dict[str, Any], path: Path) -> None:
    wanted = json.loads(json.dumps(settings))
    different = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
    if different:
        told = ", ".join(f"{key} {found.get(key)} (now {wanted.get(key)})" for key in sorted(different))
        raise InputError(f"{path} exists and was made with other settings: {told}. Remove it or choose another name.")


def _config(problem: Problem, solution: Solution, seed: int) -> str:
    """The settings of one sample as PDEBench writes them beside its 2-D data."""
    ends = {"x": ("x_left", "x_right"), "y": ("y_bottom", "y_top")}
    sim: dict[str, Any] = {key.replace("_", ""): value for key, value in problem.parameters.items()}
    for axis, names in ends.items():
        if axis in solution.grid:
            sim |= dict(zip(names, problem.domain[axis], strict=True)) | {f"{axis}dim": len(solution.grid[axis])}
    if "t" in solution.grid:
        sim |= {"t": problem.domain["t"][1], "tdim": len(solution.grid["t"])}
    return yaml.safe_dump({"name": problem.name, "sim": {**sim, "seed": seed}})
