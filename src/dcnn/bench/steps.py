"""One update of a task's network, in each of the ways that a run can make it (``training.step``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import torch

from dcnn.errors import DcnnError, unknown
from dcnn.losses import term_values
from dcnn.train.config import Stage
from dcnn.train.cpu import prepare_cpu
from dcnn.train.graphs import graph_step
from dcnn.train.loop import Task
from dcnn.train.optim import make_optimizer
from dcnn.train.step import Residuals

LEARNING_RATE = 1e-3  # of both sides of a comparison, so that both update their weights alike
KINDS = ("eager", "traced", "compiled")


def prepare(kind: str, threads: int) -> None:
    """This process, for steps of this kind."""
    if kind not in KINDS:
        raise unknown("kind of step", kind, KINDS)
    torch.set_num_threads(threads)
    prepare_cpu()


def training_step(task: Task, batches: Sequence[Any], kind: str) -> Callable[[], object]:
    """A function that makes one step of Adam, on the batches in turn.

    Graphs are made here, one for batches of several sizes, which leaves their gradients.
    """
    parameters = [p for p in task.network.parameters() if p.requires_grad]
    optimizer = make_optimizer(Stage(learning_rate=LEARNING_RATE), parameters)
    module, turn = Residuals(task), cycle(batches)
    graph = graph_step(kind, module, task.terms, task.weighting, logging.getLogger(__name__), len(batches) - 1)
    if graph is None and kind != "eager":
        raise DcnnError(f"there is no {kind} step of this network (dropout, or weights that depend on values)")
    if graph is not None:
        for batch in batches:
            graph(batch, 0)
        if graph.failed or not graph.graphs or graph.compiled != (kind == "compiled"):
            raise DcnnError(f"the {kind} step could not be made (the warning above says why); try --step traced")

    def usual() -> None:
        optimizer.zero_grad()
        residuals = module(next(turn))
        values = term_values(task.terms, residuals)
        task.weighting.combine(values, parameters, 0, residuals).backward(inputs=parameters)
        optimizer.step()

    def by_graph() -> None:
        assert graph is not None
        graph(next(turn), 0)
        optimizer.step()

    return usual if graph is None else by_graph
