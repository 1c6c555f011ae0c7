"""SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class SOAP(torch.optim.Optimizer):
    """For a weight matrix W with gradient G:

    1. L ← β₃L + (1−β₃)GGᵀ and R ← β₃R + (1−β₃)GᵀG; their eigenvectors Q_L, Q_R are refreshed every `frequency`
       steps by one orthogonal iteration.
    2. Adam's moments are kept of the rotated gradient Q_LᵀGQ_R; the update is rotated back.

    Vectors and scalars are updated by plain Adam. The first gradient only sets up L, R and their eigenvectors.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float = 3e-3,
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        frequency: int = 10,
        largest: int = 1024,
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
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"], state["square"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
            if gradient.dim() == 2:
                state["covariances"] = [_covariance(gradient, side, group["largest"]) for side in (0, 1)]
                state["bases"] = [
                    None if c is None else torch.linalg.eigh(c).eigenvectors for c in state["covariances"]
                ]
            return
        state["step"] += 1
        beta1, beta2 = group["betas"]
        rotated = _rotate(gradient, state.get("bases"), forward=True)
        state["mean"].lerp_(rotated, 1 - beta1)
        state["square"].mul_(beta2).addcmul_(rotated, rotated, value=1 - beta2)
        size = (state["square"] / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        update = _rotate(state["mean"] / (1 - beta1 ** state["step"]) / size, state.get("bases"), forward=False)
        parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])
        if gradient.dim() == 2:
            self._refresh(state, gradient, beta2, group)

    def _refresh(self, state: dict[str, Any], gradient: Tensor, beta: float, group: dict[str, Any]) -> None:
        for side, covariance in enumerate(state["covariances"]):
            if covariance is not None:
                covariance.lerp_(gradient @ gradient.T if side == 0 else gradient.T @ gradient, 1 - beta)
        if state["step"] % group["frequency"]:
            return
        old = state["bases"]
        new = [
            None if covariance is None else torch.linalg.qr(covariance @ basis).Q
            for covariance, basis in zip(state["covariances"], old, strict=True)
        ]
        # The mean is of gradients in the old basis; the squares stay, as they are no rotation's image.
        state["mean"] = _rotate(_rotate(state["mean"], old, forward=False), new, forward=True)
        state["bases"] = new


def _covariance(gradient: Tensor, side: int, largest: int) -> Tensor | None:
    if gradient.shape[side] > largest:
        return None
    return gradient @ gradient.T if side == 0 else gradient.T @ gradient


def _rotate(matrix: Tensor, bases: list[Tensor | None] | None, *, forward: bool) -> Tensor:
    """QₗᵀMQᵣ, or QₗMQᵣᵀ back; a side without a basis stays as it is."""
    if bases is None:
        return matrix
    left, right = bases
    if left is not None:
        matrix = (left.T if forward else left) @ matrix
    if right is not None:
        matrix = matrix @ (right if forward else right.T)
    return matrix
