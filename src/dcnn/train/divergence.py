"""A loss that is not finite: which term, which layer, and the batch to look at again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.train import checkpoint
from dcnn.train.flatten import flattened, rebuilt

if TYPE_CHECKING:
    from dcnn.train.loop import Task
    from dcnn.train.run import Run

ADVICE = "lower training.stages.N.learning_rate, set clip_norm, or rescale the labels (`dcnn audit`)"


def explain(task: Task, batch: Any, report: Mapping[str, Tensor], step: int) -> str:
    """Which terms are not finite, and the first layer whose output is not."""
    terms = [t.name for t in task.terms if not math.isfinite(float(report.get(f"{t.name}_raw", 0.0)))]
    where = first_not_finite(task.network, lambda: task.residuals(task.network, batch))
    place = f"the first layer with such an output is {where}" if where else "every layer's own output is finite"
    names = ", ".join(terms) or "the sum of the terms"
    return f"step {step}: the loss is not finite ({names}); {place}; {ADVICE}"


def first_not_finite(network: nn.Module, evaluate: Any) -> str:
    """The dotted name of the first submodule, in the order of calls, that returns a value that is not finite."""
    found: list[str] = []
    handles = []
    for name, module in network.named_modules():

        def hook(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
            tensors, _kind = flattened(output)
            if not found and any(t.is_floating_point() and not bool(torch.isfinite(t).all()) for t in tensors):
                found.append(name or type(network).__name__)

        handles.append(module.register_forward_hook(hook))
    try:
        evaluate()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else ""


def kept_file(run: Run) -> Path:
    return run.folder / "checkpoints" / "diverged.ckpt"


def keep(run: Run, weights: dict[str, Any], batch: Any, epoch: int, number: int, message: str) -> None:
    """Stores the weights and the batch of the step for `dcnn replay`."""
    tensors, _ = flattened(batch)
    found = {"batch": [t.detach() for t in tensors], "epoch": epoch, "number": number, "message": message}
    checkpoint.save(kept_file(run), weights | {"diverged": found})


def replay(run: Run, task: Task) -> dict[str, Any]:
    """Evaluates the kept batch again: the value of every term, the first layer that is not finite."""
    if not kept_file(run).exists():
        raise InputError(f"{run.folder}: no checkpoints/diverged.ckpt; only a run that diverged has one")
    state = checkpoint.load(kept_file(run))
    kept = state["diverged"]
    task.network.load_state_dict(state["network"])
    task.network.train()
    batch = next(iter(task.batches(kept["epoch"], start=kept["number"])))
    if flattened(batch)[0]:
        batch = rebuilt(batch, (), kept["batch"])
    residuals: dict[str, Tensor] = {}
    where = first_not_finite(task.network, lambda: residuals.update(task.residuals(task.network, batch)))
    values = {t.name: float(t.value(residuals[t.name])) for t in task.terms if t.name in residuals}
    return {"message": kept["message"], "terms": values, "first_layer": where or None}
