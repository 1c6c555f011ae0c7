"""One update of the weights, and all that it needs in a stage."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.losses import Fixed, term_values
from dcnn.train.batch_statistics import statistics_names
from dcnn.train.config import Stage, Training
from dcnn.train.gauss_newton import must_be_squares, weighted_residuals
from dcnn.train.graphs import AGAIN, graph_step
from dcnn.train.learning_rate import learning_rate
from dcnn.train.optim import make_optimizer

if TYPE_CHECKING:
    from dcnn.train.loop import Task


SEARCHING = ("lbfgs", "broyden", "gauss_newton")  # one step tries several weights


class NotFiniteError(ArithmeticError):
    """The loss or its gradient is not finite; the weights are those before the step."""


class Residuals(nn.Module):
    """The network with the derivatives its loss needs, in one forward.

    DDP must wrap this and not the bare network: derivatives taken outside a DDP forward give wrong gradients.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.network = task.network
        self._residuals = task.residuals

    def forward(self, batch: Any) -> dict[str, Tensor]:
        return self._residuals(self.network, batch)


class Stepper:
    """The module, the optimiser, the graph and the clip of one stage.

    It is made with each stage and not once: DDP exchanges the gradients that were wanted, in the precision that there
    was, when it was made. calls: evaluations in the same stage before the run was interrupted. left: seconds of the
    clock until the stage ends, if they are known.
    """

    def __init__(
        self,
        fabric: Any,
        task: Task,
        stage: Stage,
        settings: Training,
        log: logging.Logger,
        calls: int = 0,
        left: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.fabric, self.task, self.stage = fabric, task, stage
        if fabric.world_size > 1 and type(task.weighting) is not Fixed:
            raise InputError("loss.weighting: weights that follow the terms need one process; set training.devices=1")
        dtype: torch.dtype = getattr(torch, stage.dtype)
        task.cast(dtype)
        residuals = Residuals(task)
        self.module = fabric.setup_module(residuals, move_to_device=True)
        task.weighting.to(next(task.network.parameters()).device, dtype)
        self.parameters = [p for p in (*task.network.parameters(), *task.weighting.parameters()) if p.requires_grad]
        self.optimizer = fabric.setup_optimizers(make_optimizer(stage, self.parameters))
        kind: str = settings.step
        if stage.optimizer == "gauss_newton":
            must_be_squares(task, stage, fabric.world_size)
            kind = "eager"
        if fabric.world_size > 1 and statistics_names(residuals):
            kind = "eager"  # which takes those of the first process for all
        after = max(0, AGAIN - calls)  # a run that had a graph goes on with one
        # Of processor time nothing is won; several processes would change over at different steps; and a GPU is not
        # there for a process that begins as a copy of this one.
        on_cpu = self.parameters[0].device.type == "cpu"
        background = settings.clock != "cpu" and fabric.world_size == 1 and on_cpu
        self.graph = graph_step(kind, residuals, task.terms, task.weighting, log, after, left, clock, background)

    def rate(self, within: float, drops: int) -> float:
        """The learning rate when `within` of the stage is done, after `drops` plateaus; a line search has one rate."""
        if self.stage.optimizer in SEARCHING:
            return self.stage.learning_rate
        return learning_rate(self.stage, within, drops)

    def close(self) -> None:
        """Nothing is left running."""
        if self.graph is not None:
            self.graph.close()

    def graph_seconds(self) -> float:
        """Seconds of the clock that graphs have taken since this was last asked."""
        if self.graph is None:
            return 0.0
        seconds, self.graph.seconds = self.graph.seconds, 0.0
        return seconds

    def __call__(self, batch: Any, step: int, rate: float) -> dict[str, Tensor]:
        """One update; returns the loss and every term's raw and weighted value, detached.

        A loss or a gradient that is not finite stops before the update; a line search may try such weights on its way.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        batch = self.fabric.to_device(batch)
        searching = self.stage.optimizer in SEARCHING
        report: dict[str, Tensor] = {}

        def closure() -> Tensor:
            self.optimizer.zero_grad()
            loss, values = self._gradients(batch, step)
            finite = math.isfinite(float(loss.detach()) + self._clipped())
            if not finite and not (searching and report):
                raise NotFiniteError
            if finite:
                report.update(self.task.weighting.report(values), loss=loss.detach())
            return loss

        def linearised(jacobian: bool) -> tuple[Tensor, Tensor | None]:
            r, J, values = weighted_residuals(self.task, self.module, batch, self.parameters, step, jacobian)
            if jacobian:
                loss = self.task.weighting.combine(values, self.parameters, step)
                if not math.isfinite(float(loss)):
                    raise NotFiniteError
                report.update(self.task.weighting.report(values), loss=loss)
            return r, J

        self.optimizer.step(linearised if self.stage.optimizer == "gauss_newton" else closure)
        return report

    def _clipped(self) -> float:
        """The norm of the gradient, which is shortened to the clip of the stage if it is longer."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        total = nn.utils.get_total_norm(gradients)
        norm, longest = float(total), self.stage.clip_norm
        if longest is not None and norm > longest:
            nn.utils.clip_grads_with_norm_(self.parameters, longest, total)
        return norm

    def _gradients(self, batch: Any, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the values of its terms; the gradients are left in the parameters.

        Both are means over all processes, so that a line search, and a loss that is not finite, are the same for all.
        """
        task = self.task
        if self.graph is not None:
            values = self.graph(batch, step)
            loss = task.weighting.combine(values, self.parameters, step)
            self._average([p.grad for p in self.parameters if p.grad is not None])
        else:
            residuals = self.module(batch)
            values = term_values(task.terms, residuals)
            loss = task.weighting.combine(values, self.parameters, step, residuals)
            self.fabric.backward(loss, inputs=self.parameters)  # the gradient at the points of the batch is not needed
        if self.fabric.world_size > 1:
            loss, values = loss.detach().clone(), {name: value.detach().clone() for name, value in values.items()}
            self._average([loss, *values.values()])
        return loss, values

    def _average(self, tensors: list[Tensor]) -> None:
        """Puts the mean over all processes in the place of each tensor, by one message."""
        if self.fabric.world_size == 1:
            return
        mean = self.fabric.all_reduce(torch.cat([t.flatten() for t in tensors]), reduce_op="mean")
        for tensor, part in zip(tensors, mean.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))


def term_losses(task: Task, batch: Any) -> Callable[[nn.Module, Any], dict[str, Tensor]]:
    """What an audit calls as `losses`: every term of the task on the batch, weighted."""

    def losses(network: nn.Module, _: Any) -> dict[str, Tensor]:
        values = term_values(task.terms, task.residuals(network, batch))
        return {term.name: term.weight_at(0) * values[term.name] for term in task.terms if term.name in values}

    return losses
