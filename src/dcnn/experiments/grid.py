"""A grid of runs on this machine: one process a cell, finished cells kept, killed cells continued."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcnn.errors import DcnnError, InputError
from dcnn.experiments.process import RETRIES, last_words, start
from dcnn.train import AtomsConfig, PdeConfig, Run
from dcnn.train.config import to_yaml


@dataclass(frozen=True)
class Cell:
    """One run of a grid: the labels under which it is shown, and its configuration."""

    labels: dict[str, Any]
    config: AtomsConfig | PdeConfig

    @property
    def name(self) -> str:
        return "-".join(str(value) for value in self.labels.values()).replace("/", "_")


@dataclass
class _Running:
    cell: Cell
    folder: Path
    process: subprocess.Popen[bytes]
    tries: int


def run_grid(
    cells: Sequence[Cell],
    folder: Path,
    jobs: int = 2,
    watch: Callable[[list[str], int], None] = lambda running, done: None,
) -> list[dict[str, Any]]:
    """Runs every cell in `folder/<cell>` and returns {labels, folder, status, test, …} of each, in order.

    A cell that has a result is not run again. A process that dies is started again from its last checkpoint, twice at
    the most, and then left while the others go on; input that it refuses ends the grid at once. A cell whose loss
    diverged is a result like any other. `watch` is called with the names of the running cells and the number of
    finished ones about twice a second.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [(cell, folder / cell.name, 0) for cell in cells if not (folder / cell.name / "result.json").exists()]
    running: list[_Running] = []
    dead: list[str] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell, path, tries = waiting.pop(0)
                running.append(_Running(cell, path, start(to_yaml(cell.config), path), tries))
            time.sleep(0.5)
            for entry in [entry for entry in running if entry.process.poll() is not None]:
                running.remove(entry)
                entry.process.communicate()
                if (entry.folder / "result.json").exists():
                    continue
                reason = f"{entry.folder}: {last_words(entry.folder)}"
                if entry.process.returncode == 2:
                    raise InputError(reason)
                if entry.tries < RETRIES:
                    waiting.append((entry.cell, entry.folder, entry.tries + 1))
                else:
                    dead.append(reason)
            watch([entry.cell.name for entry in running], len(cells) - len(waiting) - len(running) - len(dead))
    finally:
        for entry in running:
            entry.process.terminate()
            entry.process.communicate()
    all_alive(dead, cells)
    return [collect(cell, folder / cell.name) for cell in cells]


def all_alive(dead: Sequence[str], cells: Sequence[Cell]) -> None:
    """Refuses to make a table of a grid in which cells died; `dead` says which and why."""
    if dead:
        count = f"{len(dead)} of {len(cells)} runs died {RETRIES + 1} times"
        raise DcnnError("\n".join([f"{count}; the others are kept, and the same command tries these again:", *dead]))


def collect(cell: Cell, folder: Path) -> dict[str, Any]:
    """What a finished cell has to say."""
    return {**cell.labels, "folder": str(folder), **Run(folder).result().values, "recipe": cell.config.recipe}


def write_json(path: Path, runs: Sequence[dict[str, Any]], **more: Any) -> None:
    path.write_text(json.dumps({**more, "runs": list(runs)}, indent=2) + "\n")
