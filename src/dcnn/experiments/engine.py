"""Where a grid of runs is computed: processes of this machine, an embedded Ray, or a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dcnn.errors import DcnnError, InputError
from dcnn.experiments.grid import Cell, collect, run_grid
from dcnn.experiments.store import Store, here, is_url, paced

Watch = Callable[[list[str], int], None]


def run(
    cells: Sequence[Cell],
    folder: str | Path,
    on: str = "local",
    jobs: int = 2,
    watch: Watch = lambda running, done: None,
) -> list[dict[str, Any]]:
    """Runs every cell in `folder/<cell>` and returns {labels, folder, status, test, …} of each, in order.

    folder: a path, or an fsspec URL such as s3://bucket/grid, to which every run is copied while it trains; the
    "folder" of a result is then its copy on this machine, below ``here(folder)``.
    on: "local"; "ray", an embedded Ray; "ray:HOST:PORT" or "ray://HOST:PORT", a cluster.
    jobs: cells at the same time on this machine; a cluster runs as many as it has room for.

    Finished cells are kept, interrupted ones go on from their last checkpoint.
    """
    check(on)
    finished = 0

    def seen(running: list[str], done: int) -> None:
        nonlocal finished
        finished = done
        watch(running, done)

    try:
        if on != "local":
            from dcnn.experiments.ray_engine import run_on_ray

            run_on_ray(cells, str(folder if is_url(folder) else Path(folder).resolve()), on, jobs, seen)
        elif is_url(folder):
            _run_and_copy(cells, str(folder), jobs, seen)
        else:
            return run_grid(cells, Path(folder), jobs, seen)
    except KeyboardInterrupt:
        count = f"{finished} of {len(cells)} runs are finished"
        raise DcnnError(f"interrupted; {count} in {folder}, and the same command goes on from here") from None
    if on != "local" and is_url(folder):
        store = Store(folder)
        for cell in cells:
            store.down(cell.name, here(folder) / cell.name)
    return [collect(cell, here(folder) / cell.name) for cell in cells]


def check(on: str) -> None:
    """Refuses what is not the name of an engine."""
    if on not in ("local", "ray") and not on.startswith("ray:"):
        raise InputError(f"--on {on}: valid are local, ray, ray:HOST:PORT and ray://HOST:PORT")


def publish(folder: str | Path, *paths: Path) -> list[str]:
    """Copies files from ``here(folder)`` (a page, a table) to the folder if that is a URL; returns where they are."""
    if not is_url(folder):
        return [str(path) for path in paths]
    store = Store(folder)
    return [store.put(path, path.relative_to(here(folder)).as_posix()) for path in paths]


def _run_and_copy(cells: Sequence[Cell], url: str, jobs: int, watch: Watch) -> None:
    """The local engine in ``here(url)``, with what changes copied to the URL."""
    store = Store(url)
    for cell in cells:
        store.down(cell.name, here(url) / cell.name)

    def copy() -> None:
        for cell in cells:
            store.up(here(url) / cell.name, cell.name)

    copy_paced = paced(copy)

    def copy_and_watch(running: list[str], done: int) -> None:
        copy_paced()
        watch(running, done)

    try:
        run_grid(cells, here(url), jobs, copy_and_watch)
    finally:
        copy()
