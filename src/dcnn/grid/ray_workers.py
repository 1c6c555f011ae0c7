"""Workers of a Ray: a task a cell, tried anew by the engine when its worker or node is lost."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from dcnn.errors import InputError
from dcnn.grid.cluster import connected
from dcnn.grid.store import Store, paced
from dcnn.grid.worker import CellError, Order, run_cell


class RayWorkers:
    """As many cells at the same time as Ray has room for; what is left is cancelled at the end."""

    def __init__(self, on: str, cpus: int, store: Store) -> None:
        if store.folder.startswith("memory://"):
            raise InputError(
                f"{store.folder}: the memory of one process is not seen by Ray's workers; give another URL"
            )
        self._on, self._cpus, self._exit = on, cpus, ExitStack()
        self._orders: dict[Any, Order] = {}
        self._begun: set[str] = set()
        self._look = paced(lambda: self._begun.update(store.names_with("output.txt")))

    def __enter__(self) -> RayWorkers:
        self._ray = self._exit.enter_context(connected(self._on, self._cpus))
        # One way to try again, for lost nodes and for processes that die: the engine's.
        self._remote = self._ray.remote(max_retries=0)(run_cell)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(self.pending)
        self._exit.close()

    def submit(self, order: Order) -> None:
        options = {"name": order.name, "num_cpus": order.cpus, "num_gpus": order.gpus}
        self._orders[self._remote.options(**options).remote(order)] = order

    @property
    def pending(self) -> list[str]:
        return [order.name for order in self._orders.values()]

    @property
    def running(self) -> list[str]:
        self._look()
        return [name for name in self.pending if name in self._begun]

    def finished(self) -> list[tuple[Order, BaseException | None]]:
        """The orders that are done, with what went wrong; waits half a second for the first."""
        ready, _ = self._ray.wait(list(self._orders), timeout=0.5)
        return [(order := self._orders.pop(reference), self._failure(reference, order)) for reference in ready]

    def stop(self, names: Iterable[str]) -> None:
        wanted = set(names)
        for reference, order in self._orders.items():
            if order.name in wanted:
                self._ray.cancel(reference, force=True)

    def _failure(self, reference: Any, order: Order) -> Exception | None:
        errors = self._ray.exceptions
        try:
            self._ray.get(reference)
        except errors.RayTaskError as error:
            known = isinstance(error.cause, (InputError, CellError))
            return error.cause if known else CellError(f"{order.where}: {error.cause}")
        except errors.RayError as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            return CellError(f"{order.where}: its worker was lost ({reason})")
        return None
