"""L-BFGS for points that change from step to step, with a way back from a line search that overflows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class LBFGS(torch.optim.LBFGS):
    """torch's L-BFGS with two guards around each step (of `max_iter` iterations).

    1. No curvature pair is made across two steps: its gradients would be those of different points.
    2. A step that ends in weights that are not finite is taken back, and the memory of earlier steps is dropped.
    """

    def step(self, closure: Callable[[], Tensor]) -> Any:  # type: ignore[override]
        parameters: list[Tensor] = self._params
        before = [p.detach().clone() for p in parameters]
        state = self.state[parameters[0]]
        if "t" in state:
            state["t"] = 0.0  # torch takes s = t·d for the next pair, and no pair with yᵀs = 0
        loss = super().step(closure)
        if all(bool(torch.isfinite(p).all()) for p in parameters):
            return loss
        with torch.no_grad():
            for parameter, old in zip(parameters, before, strict=True):
                parameter.copy_(old)
        state.clear()
        with torch.enable_grad():
            return closure()
