"""A loss that is not finite: which term, which layer, and the batch to look at again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.guard import decoding
from dcnn.losses import term_values
from dcnn.train import checkpoint
from dcnn.train.flatten import flattened, rebuilt

if TYPE_CHECKING:
    from dcnn.train.loop import Task
    from dcnn.train.run import Run


@dataclass(frozen=True)
class Look:
    """A batch evaluated to see what is not finite in it."""

    terms: dict[str, float]  # the value of each
    layer: str | None  # the first one whose output is not finite
    parameter: str | None  # the first one whose gradient is not finite

    @property
    def finite(self) -> bool:
        return self.layer is None and self.parameter is None and all(map(math.isfinite, self.terms.values()))

    def __str__(self) -> str:
        if self.finite:
            return "all terms and their gradients are finite"
        bad = [name for name, value in self.terms.items() if not math.isfinite(value)]
        what = f"the loss is not finite ({', '.join(bad)})" if bad else "the gradient is not finite"
        if self.layer is not None:
            return f"{what}; the first layer with such an output is {self.layer}"
        return what if self.parameter is None else f"{what}, first that of {self.parameter}"


def look(task: Task, batch: Any) -> Look:
    """Evaluates all terms on a batch, and the gradient of their sum."""
    found: dict[str, Tensor] = {}
    network = task.network
    layer = _first_not_finite(network, lambda: found.update(task.residuals(network, batch)))
    values = term_values(task.terms, found)
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    total = sum(values.values(), torch.zeros(()))
    gradients = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    broken = (name for name, g in zip(trained, gradients, strict=True) if g is not None and not _all_finite([g]))
    return Look({name: float(value.detach()) for name, value in values.items()}, layer, next(broken, None))


def _first_not_finite(network: nn.Module, evaluate: Callable[[], None]) -> str | None:
    """The dotted name of the first submodule, in the order of calls, that returns a value that is not finite."""
    found: list[str] = []
    handles = []
    for name, module in network.named_modules():

        def hook(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
            if not found and not _all_finite(flattened(output)[0]):
                found.append(name or type(network).__name__)

        handles.append(module.register_forward_hook(hook))
    try:
        evaluate()
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _all_finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())


def kept_file(run: Run) -> Path:
    return run.folder / "checkpoints" / "diverged.ckpt"


def keep(run: Run, weights: dict[str, Any], batch: Any, place: dict[str, int], message: str) -> None:
    """Stores the weights and the batch of a step for `dcnn replay`; `place` are arguments of :meth:`Task.batches`."""
    tensors = [t.detach() for t in flattened(batch)[0]]
    checkpoint.save(kept_file(run), weights | {"diverged": {"batch": tensors, "place": place, "message": message}})


def kept(run: Run) -> dict[str, Any]:
    """What :func:`keep` stored."""
    if not kept_file(run).exists():
        raise InputError(f"{run.folder}: no checkpoints/diverged.ckpt; only a run that diverged has one")
    return checkpoint.load(kept_file(run))


def replay(state: dict[str, Any], task: Task, where: Path) -> dict[str, Any]:
    """Evaluates the kept batch again: the value of every term, the first layer and the gradient that are not finite."""
    with decoding(where, "checkpoint of a diverged run"):
        diverged, place = state["diverged"], dict(state["diverged"]["place"])
        task.begin(place.pop("round"))
        task.network.load_state_dict(state["network"])
        task.load_state(state["task"])
        task.network.train()
        batch = next(iter(task.batches(**place)))
        batch = rebuilt(batch, (), diverged["batch"])
        seen = look(task, batch)
    return {"message": str(diverged["message"]), "again": str(seen), **asdict(seen)}
