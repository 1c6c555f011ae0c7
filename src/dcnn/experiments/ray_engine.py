"""A grid of runs on Ray: a task a cell, retried by Ray, each try going on from the last checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dcnn.errors import InputError
from dcnn.experiments.cluster import connected
from dcnn.experiments.grid import Cell, all_alive
from dcnn.experiments.process import RETRIES
from dcnn.experiments.store import Store, is_url, paced
from dcnn.experiments.worker import CellError, Order, run_cell
from dcnn.train import AtomsConfig, PdeConfig
from dcnn.train.config import to_yaml


def needs(config: AtomsConfig | PdeConfig) -> dict[str, int]:
    """Resources of one cell: a CPU for each thread of each process; a GPU for each if the accelerator is "gpu"."""
    training = config.training
    gpus = training.devices if training.accelerator == "gpu" else 0
    return {"num_cpus": training.devices * (training.threads or 1), "num_gpus": gpus}


def run_on_ray(cells: Sequence[Cell], folder: str, on: str, jobs: int, watch: Callable[[list[str], int], None]) -> None:
    """Runs the cells that have no result in `folder` (a path that every worker sees, or an fsspec URL)."""
    store = Store(folder)
    if folder.startswith("memory://"):
        raise InputError(f"{folder}: the memory of one process is not seen by Ray's workers; give another URL")
    kept = store.names_with("result.json")
    waiting = [cell for cell in cells if cell.name not in kept]
    if not waiting:
        return
    cpus = jobs * max(needs(cell.config)["num_cpus"] for cell in waiting)
    with connected(on, cpus) as ray:
        remote = ray.remote(max_retries=RETRIES, retry_exceptions=[CellError])(run_cell)
        orders = {}
        for cell in waiting:
            if not is_url(folder):  # a worker that does not find it has another file system
                (Path(folder) / cell.name).mkdir(parents=True, exist_ok=True)
            resources = needs(cell.config)
            order = Order(cell.name, to_yaml(cell.config), folder, os.getcwd(), resources["num_gpus"] > 0)
            orders[remote.options(name=cell.name, **resources).remote(order)] = order
        pending = list(orders)
        begun: set[str] = set()
        dead: list[str] = []
        look = paced(lambda: begun.update(store.names_with("output.txt")))
        try:
            while pending:
                ready, pending = ray.wait(pending, timeout=0.5)
                for reference in ready:
                    dead += _death(ray, reference, orders[reference])
                look()
                names = [orders[reference].name for reference in pending]
                watch([name for name in names if name in begun], len(cells) - len(pending) - len(dead))
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)
    all_alive(dead, cells)


def _death(ray: Any, reference: Any, order: Order) -> list[str]:
    """Why the cell died, if it did; input that it refused is raised."""
    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise error.cause from None
        return [str(error.cause) if isinstance(error.cause, CellError) else f"{order.where}: {error.cause}"]
    except ray.exceptions.RayError as error:
        return [f"{order.where}: its worker was lost ({str(error).strip().splitlines()[0]})"]
    return []
