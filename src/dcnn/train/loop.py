"""The training loop: one function from the first step to the test, for potentials and PDE networks alike."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

import dcnn._version
from dcnn import checkpoint
from dcnn.losses import Term, Weighting, term_values
from dcnn.train.config import AtomsConfig, PdeConfig, Stage, Training
from dcnn.train.console import Console
from dcnn.train.cpu import cpu_clock
from dcnn.train.graphs import GraphStep, graph_step, resolved
from dcnn.train.optim import MovingAverage, make_optimizer
from dcnn.train.run import Result, Run, finite_or_none
from dcnn.train.schedule import learning_rate, repeated, stage_at


class Task(Protocol):
    """What the loop trains: a network, its named terms, the points to take them on, and how it is judged."""

    network: nn.Module
    terms: tuple[Term, ...]
    weighting: Weighting
    monitor: str
    steps_per_epoch: int

    def batches(self, epoch: int, rank: int, world: int) -> Iterable[Any]:
        """The batches of an epoch; the same for the same seed and epoch, so that a resumed run repeats them."""

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


@dataclass
class Progress:
    """Where a run stands; saved in every checkpoint."""

    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    stage: int = -1
    best: float = math.inf
    since_best: int = 0
    status: str = "running"

    def share(self, settings: Training, steps_per_epoch: int) -> float:
        """How much of the budget is used, 0 to 1."""
        if settings.minutes is not None:
            return self.seconds / (60 * settings.minutes)
        total = settings.steps if settings.steps is not None else (settings.epochs or 1) * steps_per_epoch
        return self.step / total


def train(
    fabric: Fabric, task: Task, config: AtomsConfig | PdeConfig, run: Run, console: Console, resume: bool = False
) -> Result:
    """Trains `task` until its budget is used, keeps the best and the last weights, and tests once.

    1. A stage sets precision and optimiser. 2. A step evaluates the residuals, combines the terms, and updates
    weights and their average. 3. After an epoch the validation error decides what is kept. 4. At the end the
    selected weights are tested. A loss that is not finite ends the run with status "diverged", which
    it also has if the test error is not finite.
    """
    settings, network = config.training, task.network
    stages = repeated(settings.stages, config.rounds)
    progress, log = Progress(), run.logger()
    average = MovingAverage(network, settings.ema) if settings.ema else None
    module: Any = None
    optimizer: Any = None
    if resume and run.last.exists():
        state = checkpoint.load(run.last)
        progress = Progress(**state["progress"])
        module, optimizer = _start_stage(fabric, task, stages[progress.stage], progress.stage // len(settings.stages))
        _restore(state, task, optimizer, average)
        run.forget_after(progress.epoch)
        log.info("resumed after epoch %d", progress.epoch)
    log.info("dcnn %s, torch %s, %d parameters", dcnn._version.__version__, torch.__version__, _count(network))
    console.start(run.folder, settings)
    graphs: dict[int, GraphStep | None] = {}  # of the current stage
    clock = cpu_clock() if settings.clock == "cpu" else time.perf_counter

    while progress.status == "running":
        index, _ = stage_at(stages, progress.share(settings, task.steps_per_epoch))
        stage = stages[index]
        if index != progress.stage:  # 1.
            progress.stage = index
            module = None  # its hooks on the gradients go before new ones are made
            module, optimizer = _start_stage(fabric, task, stage, index // len(settings.stages))
            log.info("stage %d: %s in %s", index, stage.optimizer, stage.dtype)

        network.train()
        if index not in graphs:
            residuals = Residuals(task)
            kind = resolved(settings.step, settings.minutes)
            graphs = {index: graph_step(kind, residuals, task.terms, task.weighting, fabric.world_size, log)}
            if kind == "compiled" and graphs[index] is not None:
                console.note("the training step is compiled first, which takes a minute or two")
        began, sums, steps, rate = clock(), dict[str, Tensor](), 0, 0.0
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        elapsed_before = progress.seconds
        for batch in task.batches(progress.epoch, fabric.global_rank, fabric.world_size):  # 2.
            _, within = stage_at(stages, progress.share(settings, task.steps_per_epoch))
            rate = stage.learning_rate if stage.optimizer == "lbfgs" else learning_rate(stage, within)
            for group in optimizer.param_groups:
                group["lr"] = rate
            report = _step(
                fabric, module, task, optimizer, parameters, batch, stage.clip_norm, progress.step, graphs[index]
            )
            if average:
                average.update(network)
            for name, value in report.items():
                sums[name] = sums[name] + value if name in sums else value
            steps, progress.step = steps + 1, progress.step + 1
            progress.seconds = _agreed(fabric, elapsed_before + clock() - began)
            used = progress.share(settings, task.steps_per_epoch)
            console.step(used, progress.step)
            if used >= 1 or stage_at(stages, used)[0] != index:
                break
        progress.epoch += 1

        means = {name: float(value) / steps for name, value in sums.items()}
        row = {"epoch": progress.epoch, "step": progress.step, "seconds": progress.seconds, "learning_rate": rate}
        row |= {f"train_{name}": value for name, value in means.items()}
        finished = progress.share(settings, task.steps_per_epoch) >= 1
        if not math.isfinite(means["loss"]):
            progress.status = "diverged"
        elif progress.epoch == 1 or progress.epoch % settings.evaluate_every == 0 or finished:  # 3.
            row |= _validate(task, average, progress, run, config, fabric)
        if progress.status == "running" and finished:
            progress.status = "finished"
        if settings.early_stop and progress.since_best >= settings.early_stop:
            progress.status = "stopped early"
        if fabric.is_global_zero:
            _log_row(fabric, run, console, row, progress)
            if progress.status != "diverged":
                checkpoint.save(run.last, _snapshot(config, task, optimizer, average, progress))
        fabric.barrier()
    return _test(task, average, config, run, progress, console, fabric)  # 4.


def _start_stage(fabric: Fabric, task: Task, stage: Stage, number: int) -> tuple[Any, Any]:
    """Module and optimiser of a stage in round `number`.

    The module is set up here and not once: DDP exchanges the gradients that were wanted, in the precision that there
    was, when it was made.
    """
    task.begin(number)
    task.cast(getattr(torch, stage.dtype))
    module = fabric.setup_module(Residuals(task), move_to_device=True)
    task.weighting.to(next(task.network.parameters()).device, getattr(torch, stage.dtype))
    parameters = [*task.network.parameters(), *task.weighting.parameters()]
    return module, fabric.setup_optimizers(make_optimizer(stage, [p for p in parameters if p.requires_grad]))


def _step(
    fabric: Fabric,
    module: Any,
    task: Task,
    optimizer: Any,
    parameters: list[Tensor],
    batch: Any,
    clip_norm: float | None,
    step: int,
    graph: GraphStep | None,
) -> dict[str, Tensor]:
    """One update; returns the loss and every term's raw and weighted value, detached."""
    batch = fabric.to_device(batch)
    report: dict[str, Tensor] = {}

    def closure() -> Tensor:
        optimizer.zero_grad()
        if graph is not None:
            values = graph(batch, step)  # leaves the gradients in the parameters
            loss = task.weighting.combine(values, parameters, step)
        else:
            residuals = module(batch)
            values = term_values(task.terms, residuals)
            loss = task.weighting.combine(values, parameters, step, residuals)
            fabric.backward(loss, inputs=parameters)  # the gradient at the points of the batch is not needed
        if clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, clip_norm, foreach=True)
        report.update(task.weighting.report(values), loss=loss.detach())
        return loss

    optimizer.step(closure)
    return report


def _validate(
    task: Task,
    average: MovingAverage | None,
    progress: Progress,
    run: Run,
    config: AtomsConfig | PdeConfig,
    fabric: Fabric,
) -> dict[str, float]:
    """Validation errors of the (averaged) weights; the best so far are saved."""
    with _evaluated(task.network, average):
        errors = task.evaluate(task.network, "validation")
        score = errors[task.monitor]
        progress.since_best = 0 if score < progress.best else progress.since_best + 1
        if score < progress.best or (not run.best.exists() and fabric.is_global_zero):
            progress.best = score
            if fabric.is_global_zero:
                checkpoint.save(run.best, _weights(config, task))
    return {f"validation_{name}": value for name, value in errors.items() if isinstance(value, float)}


def _test(
    task: Task,
    average: MovingAverage | None,
    config: AtomsConfig | PdeConfig,
    run: Run,
    progress: Progress,
    console: Console,
    fabric: Fabric,
) -> Result:
    """The test set, looked at once, with the selected weights; result.json."""
    use_best = config.training.select == "best" and run.best.exists()
    if use_best:
        task.network.load_state_dict(checkpoint.load(run.best)["network"])
    with _evaluated(task.network, None if use_best else average):
        errors = task.evaluate(task.network, "test")
        if not use_best and fabric.is_global_zero:
            checkpoint.save(run.best, _weights(config, task))
    if not math.isfinite(errors[task.monitor]):  # the loss may be finite: batch statistics in training, kept ones here
        progress.status = "diverged"
    values = {
        "status": progress.status,
        "recipe": config.recipe,
        "model": config.model.name if isinstance(config, AtomsConfig) else config.network.activation,
        "data": config.data.path if isinstance(config, AtomsConfig) else config.problem.name,
        "seed": config.seed,
        "epochs": progress.epoch,
        "steps": progress.step,
        "seconds": round(progress.seconds, 3),
        "parameters": _count(task.network),
        "test": errors,
        "dcnn_version": dcnn._version.__version__,
        "torch_version": torch.__version__,
    }
    result = run.finish(finite_or_none(values)) if fabric.is_global_zero else Result(run.folder, values)
    run.logger().info("%s: %s", progress.status, errors)
    console.finish(result)
    return result


@contextmanager
def _evaluated(network: nn.Module, average: MovingAverage | None) -> Iterator[None]:
    """Evaluation mode, with the averaged weights if there are any."""
    training = network.training
    network.eval()
    with average.applied_to(network) if average else nullcontext():
        yield
    network.train(training)


def _weights(config: AtomsConfig | PdeConfig, task: Task) -> dict[str, Any]:
    return {"config": config.model_dump(mode="json"), "network": task.network.state_dict(), "task": task.state()}


def _snapshot(
    config: AtomsConfig | PdeConfig, task: Task, optimizer: Any, average: MovingAverage | None, progress: Progress
) -> dict[str, Any]:
    return _weights(config, task) | {
        "optimizer": optimizer.state_dict(),
        "weighting": task.weighting.state_dict(),
        "average": average.state_dict() if average else None,
        "progress": asdict(progress),
        "random": torch.get_rng_state(),
    }


def _restore(state: dict[str, Any], task: Task, optimizer: Any, average: MovingAverage | None) -> None:
    task.network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    task.weighting.load_state_dict(state["weighting"])
    if average:
        average.load_state_dict(state["average"])
    torch.set_rng_state(state["random"])


def _agreed(fabric: Fabric, seconds: float) -> float:
    """All processes must stop at the same step: the first one's clock counts."""
    return fabric.broadcast(seconds) if fabric.world_size > 1 else seconds


def _count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _log_row(fabric: Fabric, run: Run, console: Console, row: dict[str, float], progress: Progress) -> None:
    run.append(row)
    console.row(row, progress.status)
    if fabric.loggers:
        fabric.log_dict(row, step=progress.step)
