"""SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from dcnn.torch_internals import adam_directions, add_scaled_


SAMPLE = 5  # steps from one gradient that goes into L and R to the next: as good as every step, and cheaper


class SOAP(torch.optim.Optimizer):
    """For a weight matrix W with gradient G:

    1. L ← βL + (1−β)GGᵀ and R ← βR + (1−β)GᵀG with the G of every fifth step; their eigenvectors Q_L, Q_R are
       refreshed every `frequency` steps by one orthogonal iteration.
    2. Adam's moments are kept of the rotated gradient Q_LᵀGQ_R; the update is rotated back.

    Vectors, and weights of more than two axes, are updated by plain Adam; a side longer than `largest` is not rotated.
    The first gradient only sets up L, R and their eigenvectors.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        frequency: int = 10,
        largest: int = 256,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, defaults | {"frequency": frequency, "largest": largest})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            known = [p for p in group["params"] if p.grad is not None and self.state[p]]
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self._begin(parameter, parameter.grad, group["largest"])
            if known:
                self._update(known, group)
        return loss

    def _begin(self, parameter: Tensor, gradient: Tensor, largest: int) -> None:
        state = self.state[parameter]
        state["step"] = 0
        state["mean"], state["square"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        if _is_matrix(gradient):
            long = [size > largest for size in gradient.shape]
            state["covariances"] = [None if long[side] else _covariance(gradient, side) for side in (0, 1)]
            state["bases"] = [None if c is None else torch.linalg.eigh(c).eigenvectors for c in state["covariances"]]

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        states, (beta1, beta2) = [self.state[p] for p in parameters], group["betas"]
        for state in states:
            state["step"] += 1
        gradients = [p.grad for p in parameters if p.grad is not None]
        rotated = [_rotated(g, s.get("bases")) for g, s in zip(gradients, states, strict=True)]
        means, squares = [s["mean"] for s in states], [s["square"] for s in states]
        steps = [s["step"] for s in states]
        directions = adam_directions(means, squares, rotated, (beta1, beta2), steps, group["eps"])
        updates = [_rotated_back(d, s.get("bases")) for d, s in zip(directions, states, strict=True)]
        add_scaled_(parameters, updates, -group["lr"], 1 - group["lr"] * group["weight_decay"])
        for gradient, state in zip(gradients, states, strict=True):
            if "bases" in state:
                self._refresh(state, gradient, beta2, group["frequency"])

    def _refresh(self, state: dict[str, Any], gradient: Tensor, beta: float, frequency: int) -> None:
        if state["step"] % SAMPLE == 0:
            for side, covariance in enumerate(state["covariances"]):
                if covariance is not None:
                    covariance.lerp_(_covariance(gradient, side), 1 - beta**SAMPLE)
        if state["step"] % frequency:
            return
        old = state["bases"]
        new = [
            None if covariance is None else torch.linalg.qr(covariance @ basis).Q
            for covariance, basis in zip(state["covariances"], old, strict=True)
        ]
        # The mean is of gradients in the old basis; the squares stay, as they are no rotation's image.
        state["mean"] = _rotated(_rotated_back(state["mean"], old), new)
        state["bases"] = new


def _is_matrix(gradient: Tensor) -> bool:
    return gradient.dim() == 2 and min(gradient.shape) > 1


def _covariance(gradient: Tensor, side: int) -> Tensor:
    return gradient @ gradient.T if side == 0 else gradient.T @ gradient


def _rotated(matrix: Tensor, bases: list[Tensor | None] | None) -> Tensor:
    """QₗᵀMQᵣ; a side without a basis stays as it is."""
    left, right = bases or (None, None)
    matrix = matrix if left is None else left.T @ matrix
    return matrix if right is None else matrix @ right


def _rotated_back(matrix: Tensor, bases: list[Tensor | None] | None) -> Tensor:
    """QₗMQᵣᵀ."""
    left, right = bases or (None, None)
    matrix = matrix if left is None else left @ matrix
    return matrix if right is None else matrix @ right.T
