"""SOAP (Vyas et al. 2024): Adam in the eigenbasis of Shampoo's preconditioner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from dcnn.torch_internals import add_scaled_

SAMPLE = 5  # steps from one gradient that goes into L and R to the next: they change slowly


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
        frequency: int = 20,
        largest: int = 256,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, defaults | {"frequency": frequency, "largest": largest})
        self._stacks: dict[tuple[int, ...], list[_Stack]] = {}  # by the weights that have gradients

    def __setstate__(self, state: dict[str, Any]) -> None:  # called by load_state_dict, too
        super().__setstate__(state)
        self._stacks = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            known = [p for p in moved if self.state[p]]
            for parameter in moved:
                if not self.state[parameter]:
                    self._begin(parameter, parameter.grad, group["largest"])
            for stack in self._stacked(known):
                stack.update(group)
        return loss

    def _begin(self, parameter: Tensor, gradient: Tensor, largest: int) -> None:
        state = self.state[parameter]
        state["step"] = 0
        state["mean"], state["square"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        if gradient.dim() == 2 and min(gradient.shape) > 1:
            long = [size > largest for size in gradient.shape]
            state["covariances"] = [None if long[side] else _covariance(gradient, side) for side in (0, 1)]
            state["bases"] = [None if c is None else torch.linalg.eigh(c).eigenvectors for c in state["covariances"]]

    def _stacked(self, parameters: list[Tensor]) -> list[_Stack]:
        """The weights in stacks, of which each is one tensor: a small network has many small weights."""
        names = tuple(map(id, parameters))
        if names not in self._stacks:
            alike: dict[Any, list[Tensor]] = {}
            for parameter in parameters:
                alike.setdefault(_kind(parameter, self.state[parameter]), []).append(parameter)
            self._stacks = {names: [_Stack(some, [self.state[p] for p in some]) for some in alike.values()]}
        return self._stacks[names]


class _Stack:
    """Weights that are updated together: matrices of one shape, one upon the other, or all others as one vector.

    The states of the weights hold views of the stacked tensors, so that a checkpoint knows nothing of stacks.
    """

    def __init__(self, parameters: list[Tensor], states: list[dict[str, Any]]) -> None:
        self.parameters, self.states, self.step = parameters, states, states[0]["step"]
        self.matrices = "bases" in states[0]
        self.mean, self.square = (self._joined([state[name] for state in states]) for name in ("mean", "square"))
        self.covariances, self.bases = (
            [None if side[0] is None else torch.stack(side) for side in zip(*(s[name] for s in states), strict=True)]
            if self.matrices
            else [None, None]
            for name in ("covariances", "bases")
        )
        for number, (state, mean, square) in enumerate(
            zip(states, self._parts(self.mean), self._parts(self.square), strict=True)
        ):
            state["mean"], state["square"] = mean, square
            if self.matrices:
                state["covariances"] = [None if side is None else side[number] for side in self.covariances]
                state["bases"] = [None if side is None else side[number] for side in self.bases]

    def update(self, group: dict[str, Any]) -> None:
        """One step of all its weights."""
        self.step += 1
        for state in self.states:
            state["step"] = self.step
        beta1, beta2 = group["betas"]
        gradient = self._joined([p.grad for p in self.parameters])
        rotated = _rotated(gradient, self.bases)
        self.mean.lerp_(rotated, 1 - beta1)
        self.square.mul_(beta2).addcmul_(rotated, rotated, value=1 - beta2)
        # m̂/(√v̂ + ε), with both corrections taken out of the tensors
        first, second = 1 - beta1**self.step, (1 - beta2**self.step) ** 0.5
        direction = self.mean / self.square.sqrt().add_(group["eps"] * second)
        update = self._parts(_rotated_back(direction, self.bases))
        keep = 1 - group["lr"] * group["weight_decay"]
        add_scaled_(self.parameters, update, -group["lr"] * second / first, keep)
        if self.matrices:
            self._refresh(gradient, beta2, group["frequency"])

    def _refresh(self, gradient: Tensor, beta: float, frequency: int) -> None:
        if self.step % SAMPLE == 0:
            for side, covariance in enumerate(self.covariances):
                if covariance is not None:
                    covariance.lerp_(_covariance(gradient, side), 1 - beta**SAMPLE)
        if self.step % frequency:
            return
        # The mean is of gradients in the old basis; the squares stay, as they are no rotation's image.
        mean = _rotated_back(self.mean, self.bases)
        for covariance, basis in zip(self.covariances, self.bases, strict=True):
            if covariance is not None and basis is not None:
                basis.copy_(torch.linalg.qr(covariance @ basis).Q)
        self.mean.copy_(_rotated(mean, self.bases))

    def _joined(self, tensors: Sequence[Any]) -> Tensor:
        return torch.stack(tuple(tensors)) if self.matrices else torch.cat([tensor.flatten() for tensor in tensors])

    def _parts(self, joined: Tensor) -> list[Tensor]:
        if self.matrices:
            return list(joined.unbind())
        parts = torch.split(joined, [p.numel() for p in self.parameters])
        return [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]


def _kind(parameter: Tensor, state: dict[str, Any]) -> tuple[Any, ...]:
    """The same for weights that can be stacked."""
    kind = (parameter.dtype, parameter.device, state["step"])
    if "bases" not in state:
        return kind
    return (*kind, parameter.shape, *(basis is None for basis in state["bases"]))


def _covariance(gradient: Tensor, side: int) -> Tensor:
    return gradient @ gradient.mT if side == 0 else gradient.mT @ gradient


def _rotated(matrix: Tensor, bases: Sequence[Tensor | None]) -> Tensor:
    """QₗᵀMQᵣ; a side without a basis stays as it is."""
    left, right = bases
    matrix = matrix if left is None else left.mT @ matrix
    return matrix if right is None else matrix @ right


def _rotated_back(matrix: Tensor, bases: Sequence[Tensor | None]) -> Tensor:
    """QₗMQᵣᵀ."""
    left, right = bases
    matrix = matrix if left is None else left @ matrix
    return matrix if right is None else matrix @ right.mT
