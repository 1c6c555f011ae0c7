"""The training loop: from the first step to the test, the same for every kind of task."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dcnn._version import __version__
from dcnn.auditing import Audit, Finding
from dcnn.guard import decoding
from dcnn.losses import Term, Weighting
from dcnn.train import checkpoint
from dcnn.train.config import RunConfig, Training
from dcnn.train.console import Console
from dcnn.train.cpu import cpu_clock
from dcnn.train.divergence import keep, look
from dcnn.train.interrupt import Interrupted, Stop, watching_for_stop
from dcnn.train.learning_rate import repeated, stage_at
from dcnn.train.optim import MovingAverage
from dcnn.train.run import Result, Run, finite_or_none
from dcnn.train.step import NotFiniteError, Stepper


class Task(Protocol):
    """What the loop trains: a network, its named terms, the points to take them on, and how it is judged."""

    network: nn.Module
    terms: tuple[Term, ...]
    weighting: Weighting
    monitor: str
    steps_per_epoch: int

    def batches(self, epoch: int, rank: int = 0, world: int = 1, start: int = 0) -> Iterable[Any]:
        """The batches of an epoch from number `start`; the same for the same seed and epoch, as a resumed run asks."""

    def residuals(self, network: nn.Module, batch: Any) -> dict[str, Tensor]:
        """The residual of every term of non-zero weight."""

    def evaluate(self, network: nn.Module, split: str) -> dict[str, Any]:
        """Errors on "validation" or "test", the unit in each name."""

    def begin(self, number: int) -> None:
        """A round of all stages begins; there is more than one only where a PDE is solved in windows of time."""

    def cast(self, dtype: torch.dtype) -> None:
        """Trains in this precision from now on."""

    def state(self) -> dict[str, Any]:
        """What must be stored beside the weights to use the network (label scale, split, …)."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from what :meth:`state` gave when a checkpoint was written."""

    def remember(self, folder: Path) -> None:
        """Keeps in the folder of a new run what is needed to find its data again."""

    def audit(self, network: nn.Module) -> Audit:
        """What keeps the network from learning its derivatives, on the task's own data and terms."""

    def raw_label_findings(self) -> list[Finding]:
        """What is wrong with the labels before they are scaled."""

    def count(self, split: str) -> int | None:
        """How many frames a split has; None where there are none to count."""

    def evaluate_file(self, network: nn.Module, path: Path, **reading: Any) -> dict[str, Any]:
        """Errors on the data of another file, read with these options."""


@dataclass
class Progress:
    """Where a run stands; saved in every checkpoint."""

    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    step: int = 0
    seconds: float = 0.0
    graph_seconds: float = 0.0  # of these, for making graphs of the step
    rate: float = 0.0  # the learning rate of the last step
    stage: int = -1
    calls: int = 0  # evaluations of the graph in this stage
    best: float = math.inf
    since_best: int = 0
    waited: int = 0  # validations without progress since the rate last fell
    drops: int = 0  # how often it fell in this stage
    status: str = "running"
    message: str = ""  # why it diverged

    def share(self, settings: Training, steps_per_epoch: int) -> float:
        """How much of the budget is used, 0 to 1.

        Of minutes, those that train: what compiling takes would otherwise be taken from the warm-up and the high rates.
        """
        if settings.minutes is not None:
            trains = 60 * settings.minutes - self.graph_seconds
            return (self.seconds - self.graph_seconds) / trains if trains > 0 else 1.0
        total = settings.steps if settings.steps is not None else (settings.epochs or 1) * steps_per_epoch
        return self.step / total


def train(fabric: Any, task: Task, config: RunConfig, run: Run, console: Console, resume: bool = False) -> Result:
    """Trains `task` until its budget is used, keeps the best and the last weights, and tests once."""
    return Trainer(fabric, task, config, run, console).train(resume)


class Trainer:
    """One run. `fabric` is Lightning's, or what stands for it in one process."""

    def __init__(self, fabric: Any, task: Task, config: RunConfig, run: Run, console: Console) -> None:
        self.fabric, self.task, self.config, self.run, self.console = fabric, task, config, run, console
        self.settings = config.training
        self.stages = repeated(self.settings.stages, config.rounds)
        self.progress, self.log = Progress(), run.logger(writes=fabric.is_global_zero)
        self.clock = cpu_clock() if self.settings.clock == "cpu" else time.perf_counter
        self.stepper: Stepper | None = None
        self.average: MovingAverage | None = None
        self.sums: dict[str, Tensor] = {}  # of the terms over the batches of this epoch

    def train(self, resume: bool = False) -> Result:
        """From the first step, or from the last checkpoint, to the test.

        1. A stage sets precision and optimiser. 2. An epoch makes steps. 3. The validation error decides what is
        kept. 4. At the end the selected weights are tested. A loss or a test error that is not finite ends the run
        with the status "diverged".
        """
        if resume:
            self._resume()
        elif self.fabric.is_global_zero:
            self.task.remember(self.run.folder)
        self.log.info("dcnn %s, torch %s, %d parameters", __version__, torch.__version__, _count(self.task.network))
        self.console.start(self.run.folder, self.settings)
        try:
            with watching_for_stop() as stop:
                while self.progress.status == "running":
                    self._enter_stage()  # 1.
                    row = self._epoch(stop)  # 2.
                    if self._validation_is_due():
                        row |= self._validate()  # 3.
                    self._close_epoch(row)
            return self._test()  # 4.
        finally:
            self._close_stepper()
            self.console.stop()

    def used(self) -> float:
        return self.progress.share(self.settings, self.task.steps_per_epoch)

    # ---- 1. stages -------------------------------------------------------------------------------------------------

    def _enter_stage(self) -> None:
        index, _ = stage_at(self.stages, self.used())
        if self.stepper is None or index != self.progress.stage:
            self.progress.calls = self.progress.waited = self.progress.drops = 0
            self._start_stage(index)

    def _start_stage(self, index: int) -> None:
        stage, number = self.stages[index], index // len(self.settings.stages)
        new_round = index % len(self.settings.stages) == 0
        self._close_stepper()
        self.progress.stage, self.stepper = index, None  # its hooks on the gradients go before new ones are made
        self.task.begin(number)
        left = None if self.settings.minutes is None else self._seconds_left_of_stage
        calls = self.progress.calls
        self.stepper = Stepper(self.fabric, self.task, stage, self.settings, self.log, calls, left, self.clock)
        if self.settings.ema and (self.average is None or new_round):  # on the device, in the precision of the stage
            self.average = MovingAverage(self.task.network, self.settings.ema)
        self.log.info("stage %d: %s in %s", index, stage.optimizer, stage.dtype)
        if self.stepper.graph is not None and self.stepper.graph.compiled:
            self.console.note("the training step is compiled first, which takes a minute or two")

    def _close_stepper(self) -> None:
        if self.stepper is not None:
            self.stepper.close()

    def _seconds_left_of_stage(self) -> float:
        index, within = stage_at(self.stages, self.used())
        trains = 60 * (self.settings.minutes or 0.0) - self.progress.graph_seconds
        return trains * self.stages[index].share * (1 - within)

    # ---- 2. an epoch -----------------------------------------------------------------------------------------------

    def _epoch(self, stop: Stop) -> dict[str, float]:
        """Steps until the epoch, the stage or the budget ends; a row for metrics.csv."""
        task, progress, stepper = self.task, self.progress, self.stepper
        assert stepper is not None
        task.network.train()
        began, before = self.clock(), progress.seconds
        for batch in task.batches(progress.epoch, self.fabric.global_rank, self.fabric.world_size, progress.batch):
            progress.rate = stepper.rate(stage_at(self.stages, self.used())[1], progress.drops)
            try:
                report = stepper(batch, progress.step, progress.rate)
            except NotFiniteError:
                self._diverge(batch)
                break
            if self.average:
                self.average.update(task.network)
            for name, value in report.items():
                self.sums[name] = self.sums[name] + value if name in self.sums else value
            progress.batch, progress.step = progress.batch + 1, progress.step + 1
            used = (before + self.clock() - began, progress.graph_seconds + stepper.graph_seconds())
            progress.seconds, progress.graph_seconds, asked = self._agreed((*used, stop.number))
            self.console.step(self.used(), progress.step)
            if self.used() >= 1 or stage_at(self.stages, self.used())[0] != progress.stage:
                break
            if asked:
                self._interrupt(asked)
        means = {name: float(value) / max(progress.batch, 1) for name, value in self.sums.items()}
        progress.epoch, progress.batch, self.sums = progress.epoch + 1, 0, {}
        row = {"epoch": progress.epoch, "step": progress.step, "seconds": progress.seconds}
        row["learning_rate"] = progress.rate
        if progress.status == "diverged":
            means["loss"] = math.nan
        return row | {f"train_{name}": value for name, value in means.items()}

    def _diverge(self, batch: Any) -> None:
        """Says which term and which layer it was, and keeps the batch; of several processes the one that has it."""
        progress, fabric = self.progress, self.fabric
        rank, world, stages = fabric.global_rank, fabric.world_size, len(self.settings.stages)
        seen = look(self.task, fabric.to_device(batch))
        said = [fabric.broadcast((seen.finite, str(seen)), src=n) for n in range(world)]
        culprit = next((n for n, (finite, _) in enumerate(said) if not finite), 0)
        progress.message = (
            f"step {progress.step}: {said[culprit][1]}; lower training.stages.{progress.stage % stages}.learning_rate, "
            f"set its clip_norm or rescale the labels (`dcnn audit`); look again with `dcnn replay {self.run.folder}`"
        )
        progress.status = "diverged"
        self.log.error(progress.message)
        if rank == culprit:
            place = {"epoch": progress.epoch, "start": progress.batch, "rank": rank, "world": world}
            place["round"] = progress.stage // stages
            keep(self.run, self._weights(), batch, place, progress.message)

    def _interrupt(self, number: int) -> None:
        if self.fabric.is_global_zero:
            self._save_last()
        raise Interrupted(self.run.folder, number)

    def _agreed(self, clocks_and_signal: tuple[float, float, int]) -> tuple[float, float, int]:
        """All processes must stop at the same step: the first one's clock and signal count."""
        agreed: tuple[float, float, int] = self.fabric.broadcast(clocks_and_signal)
        return agreed

    def _close_epoch(self, row: dict[str, float]) -> None:
        progress = self.progress
        if progress.status == "running" and self.used() >= 1:
            progress.status = "finished"
        if progress.status == "running" and progress.since_best >= (self.settings.early_stop or math.inf):
            progress.status = "stopped early"
        if self.fabric.is_global_zero:
            self.run.append(row)
            self.console.row(row, progress.status)
            if self.fabric.loggers:
                self.fabric.log_dict(row, step=progress.step)
            if progress.status != "diverged":
                self._save_last()
        self.fabric.barrier()

    # ---- 3. and 4. what it is worth --------------------------------------------------------------------------------

    def _validation_is_due(self) -> bool:
        epoch = self.progress.epoch
        due = epoch == 1 or epoch % self.settings.evaluate_every == 0 or self.used() >= 1
        return due and self.progress.status == "running"

    def _validate(self) -> dict[str, float]:
        """Validation errors of the (averaged) weights; the best so far are saved."""
        task, progress = self.task, self.progress
        with _evaluated(task.network, self.average):
            errors = task.evaluate(task.network, "validation")
            better = errors[task.monitor] < progress.best  # nan is never better
            progress.since_best = 0 if better else progress.since_best + 1
            progress.waited = 0 if better else progress.waited + 1
            stage = self.stages[progress.stage]
            if stage.schedule == "plateau" and progress.waited > stage.patience:
                progress.waited, progress.drops = 0, progress.drops + 1
            if better:
                progress.best = errors[task.monitor]
                if self.fabric.is_global_zero:
                    checkpoint.save(self.run.best, self._weights())
        return {f"validation_{name}": value for name, value in errors.items() if isinstance(value, float)}

    def _test(self) -> Result:
        """The test set, looked at once, with the selected weights; result.json."""
        task, progress = self.task, self.progress
        self.fabric.barrier()  # best.ckpt is written by the first process
        use_best = self.run.best.exists() and (self.settings.select == "best" or progress.status == "diverged")
        if use_best:
            task.network.load_state_dict(checkpoint.load(self.run.best)["network"])
        with _evaluated(task.network, None if use_best else self.average):
            errors = task.evaluate(task.network, "test")
            if not math.isfinite(errors[task.monitor]):  # batch statistics in training, kept ones here
                progress.status = "diverged"
            elif not use_best and self.fabric.is_global_zero:
                checkpoint.save(self.run.best, self._weights())
        values = {
            "status": progress.status,
            "recipe": self.config.recipe,
            "model": self.config.model_name,
            "data": self.config.data_name,
            "seed": self.config.seed,
            "epochs": progress.epoch,
            "steps": progress.step,
            "seconds": round(progress.seconds, 3),
            "graph_seconds": round(progress.graph_seconds, 3),
            "parameters": _count(task.network),
            "test": errors,
            "dcnn_version": __version__,
            "torch_version": torch.__version__,
        }
        if progress.message:
            values["message"] = progress.message
        result = (
            self.run.finish(finite_or_none(values)) if self.fabric.is_global_zero else Result(self.run.folder, values)
        )
        graphs = progress.graph_seconds / max(progress.seconds, 1e-9)
        self.log.info("%.0f %% of the time went to making graphs of the step", 100 * graphs)
        self.log.info("%s: %s", progress.status, errors)
        self.console.finish(result)
        return result

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def _weights(self) -> dict[str, Any]:
        task = self.task
        return {"config": self.config.to_dict(), "network": task.network.state_dict(), "task": task.state()}

    def _save_last(self) -> None:
        assert self.stepper is not None
        self.progress.calls = self.stepper.graph.calls if self.stepper.graph else 0
        checkpoint.save(
            self.run.last,
            self._weights()
            | {
                "optimizer": self.stepper.optimizer.state_dict(),
                "weighting": self.task.weighting.state_dict(),
                "average": self.average.state_dict() if self.average else None,
                "progress": asdict(self.progress),
                "sums": self.sums,
                "random": torch.get_rng_state(),
            },
        )

    def _resume(self) -> None:
        """Everything as it was when the last checkpoint was written; rows of metrics.csv after it are dropped."""
        if self.run.last.exists():
            state = checkpoint.load(self.run.last)
            with decoding(self.run.last, "checkpoint of this run"):
                self._restore(state)
            self.log.info("resumed after epoch %d, %d batches", self.progress.epoch, self.progress.batch)
        if self.fabric.is_global_zero:
            self.run.forget_after(self.progress.epoch)

    def _restore(self, state: dict[str, Any]) -> None:
        self.progress = Progress(**state["progress"])
        if self.progress.status == "finished" and self.used() < 1:  # its budget was raised
            self.progress.status = "running"
        self._start_stage(self.progress.stage)
        assert self.stepper is not None
        self.task.network.load_state_dict(state["network"])
        self.task.load_state(state["task"])
        self.stepper.optimizer.load_state_dict(state["optimizer"])
        self.task.weighting.load_state_dict(state["weighting"])
        if self.average:
            self.average.load_state_dict(state["average"])
        self.sums = state.get("sums", {})
        torch.set_rng_state(state["random"])


@contextmanager
def _evaluated(network: nn.Module, average: MovingAverage | None) -> Iterator[None]:
    """Evaluation mode, with the averaged weights if there are any."""
    training = network.training
    network.eval()
    with average.applied_to(network) if average else nullcontext():
        yield
    network.train(training)


def _count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
