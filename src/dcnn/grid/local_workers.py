"""Workers of this machine: a few threads, each of which waits for one training process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from dcnn.grid.worker import Order, run_cell


class LocalWorkers:
    """At most `jobs` cells at the same time; what is left is stopped at the end."""

    def __init__(self, jobs: int) -> None:
        self._pool = ThreadPoolExecutor(jobs)
        self._orders: dict[Future[None], Order] = {}
        self._stops: dict[str, threading.Event] = {}

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(self._stops)
        self._pool.shutdown(cancel_futures=True)

    def submit(self, order: Order) -> None:
        stop = self._stops[order.name] = threading.Event()
        self._orders[self._pool.submit(run_cell, order, stop.is_set)] = order

    @property
    def pending(self) -> list[str]:
        return [order.name for order in self._orders.values()]

    @property
    def running(self) -> list[str]:
        return [order.name for future, order in self._orders.items() if future.running()]

    def finished(self) -> list[tuple[Order, BaseException | None]]:
        """The orders that are done, with what went wrong; waits half a second for the first."""
        done, _ = wait(self._orders, timeout=0.5, return_when=FIRST_COMPLETED)
        return [(self._orders.pop(future), future.exception()) for future in done]

    def stop(self, names: Iterable[str]) -> None:
        for name in names:
            self._stops[name].set()
