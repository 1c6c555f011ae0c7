"""Processes that make batches ahead of the step. Their number changes nothing but the time."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.errors import DcnnError, InputError
from dcnn.train.processes import end_with_parent

AHEAD = 2  # batches that each worker is ahead


class DataWorkers:
    """``make(task)`` of many tasks in ``count`` processes, in the order of the tasks."""

    def __init__(self, make: Callable[[Any], AtomsBatch], count: int) -> None:
        context = multiprocessing.get_context("fork")  # frames in memory are shared, not copied
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        self._last: AtomsBatch | None = None
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(make, theirs, [ours, *self._pipes], os.getpid()), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __call__(self, tasks: Iterable[Any]) -> Iterator[AtomsBatch]:
        waiting: deque[int] = deque()
        try:
            for number, task in enumerate(tasks):
                worker = number % len(self._pipes)
                with suppress(OSError):  # it is dead, which receiving says
                    self._pipes[worker].send(task)
                waiting.append(worker)
                if len(waiting) == AHEAD * len(self._pipes):
                    yield self._received(waiting.popleft())
            while waiting:
                yield self._received(waiting.popleft())
        finally:
            for worker in waiting:  # an epoch that ended early
                with suppress(DcnnError):
                    self._received(worker)

    def _received(self, worker: int) -> AtomsBatch:
        try:
            found = self._pipes[worker].recv()
        except (EOFError, OSError):
            process = self._processes[worker]
            process.join(1)
            raise DcnnError(
                f"data worker {worker} (process {process.pid}) ended with exit code {process.exitcode}, perhaps for "
                "want of memory; lower data.workers, or go on with --resume"
            ) from None
        if isinstance(found, Exception):
            raise found
        batch = _with_tensors(found)
        last = self._last
        if last is not None and all(_equal(getattr(last, n), getattr(batch, n)) for n in ("z", "pair_i", "pair_j")):
            batch = replace(batch, edges=last.edges)  # what a network derived from it holds still
        batch._edges()
        self._last = batch
        return batch

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join()

    def __del__(self) -> None:
        self.close()


def _serve(make: Callable[[Any], AtomsBatch], pipe: Any, others: list[Any], parent: int) -> None:
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the first process ends all in order
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # copies of the other ends, which would keep a closed pipe open
        other.close()
    torch.set_num_threads(1)  # threads do not survive a fork
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has closed its end
        while True:
            task = pipe.recv()
            try:
                pipe.send(_without_tensors(make(task)))
            except InputError as error:
                pipe.send(error)


def _without_tensors(batch: AtomsBatch) -> AtomsBatch:
    """Arrays in the place of tensors: they go through a pipe, tensors through shared memory, which is scarce."""
    held = {entry.name: getattr(batch, entry.name) for entry in fields(batch)}
    arrays: dict[str, Any] = {name: value.numpy() for name, value in held.items() if isinstance(value, Tensor)}
    return replace(batch, **arrays, edges=None)


def _with_tensors(batch: AtomsBatch) -> AtomsBatch:
    held = {entry.name: getattr(batch, entry.name) for entry in fields(batch)}
    made: dict[str, Any] = {n: torch.from_numpy(value) for n, value in held.items() if isinstance(value, np.ndarray)}
    return replace(batch, **made)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)
