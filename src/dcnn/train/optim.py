"""Optimisers of a stage, and the moving average of the weights that is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.torch_internals import interpolate_
from dcnn.train.config import Stage
from dcnn.train.gauss_newton import GaussNewton
from dcnn.train.lbfgs import LBFGS, Broyden


def make_optimizer(stage: Stage, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """The optimiser of a stage over `parameters` (fused kernels: on the CPU they halve Adam's share of a step)."""
    parameters = list(parameters)
    if stage.optimizer == "lbfgs":
        return LBFGS(parameters, stage.learning_rate, stage.inner_iterations, stage.history)
    if stage.optimizer == "broyden":
        return Broyden(parameters, stage.learning_rate, stage.inner_iterations)
    if stage.optimizer == "gauss_newton":
        return GaussNewton(parameters, stage.inner_iterations)
    if stage.optimizer == "soap":
        from dcnn.train.soap import SOAP

        return SOAP(parameters, lr=stage.learning_rate, weight_decay=stage.weight_decay)
    kind = torch.optim.AdamW if stage.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, lr=stage.learning_rate, weight_decay=stage.weight_decay, fused=True)


class MovingAverage:
    """θ̄ ← d·θ̄ + (1 − d)·θ after every step, with d = min(decay, (1 + n)/(10 + n)) so that early steps count.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> with torch.no_grad(): _ = net.weight.fill_(1.0)
    >>> average = MovingAverage(net, decay=0.5)
    >>> _ = net.weight.data.fill_(3.0); average.update(net)
    >>> with average.applied_to(net): round(net.weight.item(), 3)   # d = min(0.5, 2/11)
    2.636
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.mean = [parameter.detach().clone() for parameter in network.parameters()]

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        current = list(network.parameters())
        if current[0].dtype != self.mean[0].dtype:  # a later stage may train in float64
            self.mean = [mean.to(current[0].dtype) for mean in self.mean]
        interpolate_(self.mean, current, 1 - decay)

    @contextmanager
    def applied_to(self, network: nn.Module) -> Iterator[None]:
        """Inside the block the network has the averaged weights."""
        current = [parameter.detach().clone() for parameter in network.parameters()]
        _assign(network, self.mean)
        try:
            yield
        finally:
            _assign(network, current)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean = [mean.to(own) for mean, own in zip(state["mean"], self.mean, strict=True)]  # to the device
        self.updates = state["updates"]


@torch.no_grad()
def _assign(network: nn.Module, values: list[Tensor]) -> None:
    for parameter, value in zip(network.parameters(), values, strict=True):
        parameter.copy_(value)
