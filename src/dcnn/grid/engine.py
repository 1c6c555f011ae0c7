"""Where a grid of runs is computed: processes of this machine, an embedded Ray, or a Ray cluster."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dcnn.errors import DcnnError, InputError
from dcnn.grid.cells import GridCell, collect
from dcnn.grid.local_workers import LocalWorkers
from dcnn.grid.ray_workers import RayWorkers
from dcnn.grid.store import Store, is_url, local_copy
from dcnn.grid.worker import Order
from dcnn.train.text import to_yaml

#: How often a run that dies is started again from its last checkpoint.
RETRIES = 2

#: Runs at the same time on this machine.
JOBS = 2

Watch = Callable[[list[str], int], None]


def run(
    cells: Sequence[GridCell],
    folder: str | Path,
    on: str = "local",
    jobs: int | None = None,
    watch: Watch = lambda running, done: None,
) -> list[dict[str, Any]]:
    """Runs every cell in `folder/<cell>` and returns {labels, folder, status, test, …} of each, in order.

    folder: a path, or an fsspec URL such as s3://bucket/grid, to which every run is copied while it trains; the
    "folder" of a result is then its copy on this machine, below ``local_copy(folder)``.
    on: "local"; "ray", an embedded Ray; "ray:HOST:PORT" or "ray://HOST:PORT", a cluster.
    jobs: cells at the same time on this machine, 2 if not given; a cluster runs as many as it has room for.

    Finished cells are kept, interrupted ones go on from their last checkpoint. `watch` is called about twice a second
    with the names of the running cells and the number of finished ones.
    """
    compute(cells, folder, on, jobs, watch)
    return [collect(cell, folder_of(cell, folder)) for cell in cells]


def compute(
    cells: Sequence[GridCell],
    folder: str | Path,
    on: str = "local",
    jobs: int | None = None,
    watch: Watch = lambda running, done: None,
    lagging: Callable[[list[str]], Iterable[str]] = lambda running: (),
) -> None:
    """Trains the cells that have no result; `lagging` says which of those that run are to be given up.

    A cell that dies is started again from its last checkpoint, twice at the most, and then left while the others go
    on; input that it refuses ends the grid at once. A cell whose loss diverged is a result like any other.
    """
    check(on)
    if jobs is not None and (jobs < 1 or on not in ("local", "ray")):
        why = "at least one run must be possible at a time" if jobs < 1 else "a cluster runs as many as it has room for"
        raise InputError(f"--jobs {jobs}: {why}")
    jobs = jobs or JOBS
    store = Store(folder if is_url(folder) else Path(folder).resolve())
    kept = store.names_with("result.json")
    orders = [_order(cell, store) for cell in cells if cell.name not in kept]
    done, tries, dead, given_up = 0, Counter[str](), list[str](), set[str]()
    try:
        if orders:
            cpus = jobs * max(order.cpus for order in orders)
            with LocalWorkers(jobs) if on == "local" else RayWorkers(on, cpus, store) as workers:
                for order in orders:
                    workers.submit(order)
                while workers.pending:
                    for order, error in workers.finished():
                        if error is None or order.name in given_up:
                            continue
                        if isinstance(error, InputError):
                            raise error
                        tries[order.name] += 1
                        if tries[order.name] <= RETRIES:
                            workers.submit(order)
                        else:
                            dead.append(str(error))
                    done = len(cells) - len(workers.pending) - len(dead)
                    running = workers.running
                    watch(running, done)
                    stopped = [name for name in lagging(running) if name not in given_up]
                    given_up.update(stopped)
                    workers.stop(stopped)
    except KeyboardInterrupt:
        count = f"{done} of {len(cells)} runs are finished"
        raise DcnnError(f"interrupted; {count} in {folder}, and the same command goes on from here") from None
    if dead:
        count = f"{len(dead)} of {len(cells)} runs died {RETRIES + 1} times"
        raise DcnnError("\n".join([f"{count}; the others are kept, and the same command tries these again:", *dead]))
    if is_url(folder):
        for cell in cells:
            store.down(cell.name, folder_of(cell, folder))


def folder_of(cell: GridCell, folder: str | Path) -> Path:
    """Where a cell's run is on this machine."""
    return local_copy(folder) / cell.name


def check(on: str) -> None:
    """Refuses what is not the name of an engine."""
    if on not in ("local", "ray") and not on.startswith("ray:"):
        raise InputError(f"--on {on}: valid are local, ray, ray:HOST:PORT and ray://HOST:PORT")


def publish(folder: str | Path, *paths: Path) -> list[str]:
    """Copies files from ``local_copy(folder)`` (a page, a table) to a folder that is a URL; returns where they are."""
    if not is_url(folder):
        return [str(path) for path in paths]
    store = Store(folder)
    return [store.put(path, path.relative_to(local_copy(folder)).as_posix()) for path in paths]


def _order(cell: GridCell, store: Store) -> Order:
    """A CPU for each thread of each process; a GPU for each process if the accelerator is "gpu"."""
    if not is_url(store.folder):  # a worker that does not find it has another file system
        (Path(store.folder) / cell.name).mkdir(parents=True, exist_ok=True)
    training = cell.config.training
    gpus = training.devices if training.accelerator == "gpu" else 0
    cpus = training.devices * (training.threads or 1)
    return Order(cell.name, to_yaml(cell.config.to_dict()), store.folder, os.getcwd(), cpus, gpus)
