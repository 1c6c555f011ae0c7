"""What a worker does, a thread here or a task of Ray: one cell, in a folder that all see or in one copied to a URL."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from dcnn.errors import DcnnError, InputError
from dcnn.grid.child_process import last_words, start
from dcnn.grid.store import Store, is_url, paced


class CellError(DcnnError):
    """The training process ended without a result and not by the user's mistake: it is tried again."""


@dataclass(frozen=True)
class Order:
    """A cell's name and configuration (YAML), the grid's folder, where relative paths begin, CPUs and GPUs it needs."""

    name: str
    config: str
    folder: str
    cwd: str
    cpus: int
    gpus: int

    @property
    def where(self) -> str:
        return f"{self.folder}/{self.name}"


def run_cell(order: Order, stopped: Callable[[], bool] = lambda: False) -> None:
    """One try of a cell: where the last one left a checkpoint, the training goes on from it. `stopped` ends it."""
    if not is_url(order.folder):
        folder = Path(order.folder) / order.name
        if not folder.is_dir():
            raise InputError(
                f"{order.folder}: worker {socket.gethostname()} does not see this folder; "
                "give one on a shared file system, or a URL such as s3://bucket/grid"
            )
        _train(order, folder, lambda: None, stopped)
        return
    store = Store(order.folder)
    with TemporaryDirectory(prefix="dcnn-") as scratch:
        folder = Path(scratch) / order.name
        store.down(order.name, folder)
        _train(order, folder, lambda: store.up(folder, order.name), stopped)


def _train(order: Order, folder: Path, keep: Callable[[], None], stopped: Callable[[], bool]) -> None:
    """Trains in `folder`; `keep` saves what there is, now and then and at the end."""
    with (folder / "output.txt").open("a") as output:
        output.write(f"worker {os.getpid()} on {socket.gethostname()}\n")
    cwd = order.cwd if Path(order.cwd).is_dir() else None
    process = start(order.config, folder, cwd, {} if order.gpus else {"CUDA_VISIBLE_DEVICES": ""})
    try:
        keep_paced = paced(keep)
        while process.poll() is None and not stopped():
            keep_paced()
            time.sleep(0.2)
    finally:
        process.kill()
        process.communicate()
    keep()
    if not (folder / "result.json").exists() and not stopped():
        kind = InputError if process.returncode == 2 else CellError
        raise kind(f"{order.where}: {last_words(folder)}")
