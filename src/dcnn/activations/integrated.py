"""x → ∫₀ˣ σ and x → c·σ(x) for every activation σ."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from dcnn.activations.activation import Activation
from dcnn.activations.elementary import ReLU


class Integrated(Activation):
    """σ(x) = ∫₀ˣ base(t) dt; one order smoother than ``base``, and vanishing one order later."""

    def __init__(self, base: Activation) -> None:
        super().__init__()
        # not a submodule: `base` is part of the formula, never called, and must not be swapped or hooked
        object.__setattr__(self, "base", base)
        self.base: Activation
        self.name = f"integrated_{base.name}"
        self.smoothness = base.smoothness + 1
        self.vanishing_order = None if base.vanishing_order is None else base.vanishing_order + 1

    def extra_repr(self) -> str:
        return str(self.base)

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        slopes = iter(self.base._evaluate(x, [n - 1 for n in orders if n > 0]) if max(orders) > 0 else ())
        return [self.base._integral(x) if n == 0 else next(slopes) for n in orders]

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        return self.base._scaled(factor, x, n - 1) if n > 0 else super()._scaled(factor, x, n)


class IReLU(Integrated):
    """σ(x) = ½·max(0, x)², with σ′ = ReLU and σ″ the step function.

    >>> import torch
    >>> IReLU()(torch.tensor([-1.0, 3.0]))
    tensor([0.0000, 4.5000])
    """

    def __init__(self) -> None:
        super().__init__(ReLU())
        self.name = "irelu"

    def extra_repr(self) -> str:
        return ""


class Scaled(Activation):
    """σ(x) = ``factor`` · base(x), such as the activations that e3nn normalizes."""

    def __init__(self, base: Activation, factor: float) -> None:
        super().__init__()
        object.__setattr__(self, "base", base)
        self.base: Activation
        self.factor, self.name = factor, f"scaled_{base.name}"
        self.smoothness, self.vanishing_order = base.smoothness, base.vanishing_order

    def extra_repr(self) -> str:
        return f"{self.base}, factor={self.factor:.6g}"

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        return [value * self.factor for value in self.base._evaluate(x, orders)]

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        return self.base._scaled(factor * self.factor, x, n)

    def _integral(self, x: Tensor) -> Tensor:
        return self.base._integral(x) * self.factor
