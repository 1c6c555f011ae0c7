"""What an activation is here: a function that declares every derivative in closed form.

PyTorch differentiates most of its own activations operation by operation as soon as a second derivative is
wanted. Here the n-th derivative is evaluated directly, so that each further differentiation costs one
evaluation, keeps the input alone in memory, and is as exact as the function itself.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import torch
import torch.autograd.forward_ad as forward_ad
from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.torch_internals import forward_mode, scripted


class Activation(nn.Module, ABC):
    """An elementwise function σ with all its derivatives σ⁽ⁿ⁾.

    ``smoothness`` is the largest k such that σ is k times continuously differentiable (``math.inf`` if
    smooth); ``vanishing_order`` is the smallest n such that σ⁽ⁿ⁾ is zero almost everywhere (``None`` if there
    is none). A loss that holds k-th input derivatives trains through σ⁽ᵏ⁺¹⁾: it needs a ``vanishing_order``
    above k + 1.
    """

    name: str
    smoothness: float
    vanishing_order: int | None

    def forward(self, x: Tensor) -> Tensor:
        """σ(x), elementwise."""
        if torch.jit.is_scripting():
            return self._in_torchscript(x)  # type: ignore[operator]
        else:
            return self.derivative(x, 0)

    def derivative(self, x: Tensor, n: int) -> Tensor:
        """σ⁽ⁿ⁾(x), elementwise; differentiating the result gives σ⁽ⁿ⁺¹⁾(x) in closed form."""
        _check_order(n)
        return _Derivatives.apply(x, self, (n,))[0]

    def derivatives(self, x: Tensor, n: int) -> tuple[Tensor, ...]:
        """(σ(x), σ′(x), …, σ⁽ⁿ⁾(x)): the same as :meth:`derivative` for each order, but cheaper."""
        _check_order(n)
        return _Derivatives.apply(x, self, tuple(range(n + 1)))

    def __prepare_scriptable__(self) -> Self:  # torch.jit.script asks for it
        self.__dict__["_in_torchscript"] = scripted(lambda x: self._evaluate(x, (0,))[0])
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_in_torchscript"}

    @abstractmethod
    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        """σ⁽ⁿ⁾(x) for every n of ``orders``, all different; runs without autograd."""

    def _integral(self, x: Tensor) -> Tensor:
        """∫₀ˣ σ; runs without autograd."""
        raise InputError(f"{self.name} has no closed-form integral here; integrate one of the plain activations")

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        """factor · σ⁽ⁿ⁾(x); overridden where torch has it as one kernel."""
        return self._evaluate(x, (n,))[0] * factor  # not in place: autograd may batch the factor alone


def _check_order(n: int) -> None:
    if n < 0:
        raise InputError(f"the order of a derivative is at least 0, got {n}")


def _raised(orders: Sequence[int]) -> tuple[int, ...]:
    return tuple(n + 1 for n in orders)


def _primals(ctx: Any) -> list[Tensor]:
    """The saved tensors without their innermost tangents.

    PyTorch switches forward mode off inside ``jvp``, which makes nested forward mode return zeros without a
    word (its issue 197867). Switched on again, only the level being differentiated has to be taken off.
    """
    return [forward_ad.unpack_dual(t).primal for t in ctx.saved_tensors]


class _Derivatives(torch.autograd.Function):
    """x → (σ⁽ⁿ⁾(x) for n in orders), saving x alone."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x: Tensor, activation: Activation, orders: tuple[int, ...]) -> tuple[Tensor, ...]:
        return tuple(activation._evaluate(x, orders))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, ctx.activation, ctx.orders = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, *factors: Tensor | None) -> tuple[Tensor | None, None, None]:
        (x,) = ctx.saved_tensors
        return _weighted_sum(x, ctx.activation, _raised(ctx.orders), factors), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> tuple[Tensor, ...]:
        with forward_mode():
            (x,) = _primals(ctx)
            slopes = _Derivatives.apply(x, ctx.activation, _raised(ctx.orders))
            return tuple(slope * tangent for slope in slopes)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, activation: Activation, orders: tuple[int, ...]) -> Any:
        return _Derivatives.apply(x, activation, orders), (in_dims[0],) * len(orders)


class _WeightedSum(torch.autograd.Function):
    """(x, w₁, w₂, …) → Σₖ wₖ · σ⁽ⁿₖ⁾(x): what the chain rule asks of an activation, however often."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x: Tensor, activation: Activation, orders: tuple[int, ...], *weights: Tensor) -> Tensor:
        if len(orders) == 1:
            return activation._scaled(weights[0], x, orders[0])
        values = activation._evaluate(x, orders)
        total = values[0] * weights[0]
        for value, weight in zip(values[1:], weights[1:], strict=True):
            total = torch.addcmul(total, value, weight)
        return total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.activation, ctx.orders, *weights = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *weights)
        ctx.save_for_forward(x, *weights)

    @staticmethod
    def backward(ctx: Any, factor: Tensor | None) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        if factor is None:
            return (None,) * (3 + len(weights))
        for_x: Tensor | None = None
        if ctx.needs_input_grad[0]:
            for_x = _weighted_sum(x, ctx.activation, _raised(ctx.orders), [factor * w for w in weights])
        for_weights: list[Tensor | None] = [None] * len(weights)
        if any(ctx.needs_input_grad[3:]):
            if len(weights) == 1:
                for_weights = [_WeightedSum.apply(x, ctx.activation, ctx.orders, factor)]
            else:
                values = _Derivatives.apply(x, ctx.activation, ctx.orders)
                for_weights = [factor * value for value in values]
        return for_x, None, None, *for_weights

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, _: None, __: None, *tangents: Tensor | None) -> Tensor | None:
        with forward_mode():
            x, *weights = _primals(ctx)
            moved = [None if tangent is None else tangent * w for w in weights]
            return _weighted_sum(x, ctx.activation, ctx.orders + _raised(ctx.orders), [*tangents, *moved])

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        x: Tensor,
        activation: Activation,
        orders: tuple[int, ...],
        *weights: Tensor,
    ) -> Any:
        def front(t: Tensor, dim: int | None) -> Tensor:
            return t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)

        moved = [front(w, dim) for w, dim in zip(weights, in_dims[3:], strict=True)]
        return _WeightedSum.apply(front(x, in_dims[0]), activation, orders, *moved), 0


# torch binds the arguments of every call to the signature of `forward`, and builds that anew unless it is given: a
# third of the time of an activation on a small batch.
for _function in (_Derivatives, _WeightedSum):
    setattr(_function.forward, "__signature__", inspect.signature(_function.forward))  # noqa: B010


def _weighted_sum(
    x: Tensor, activation: Activation, orders: Sequence[int], weights: Sequence[Tensor | None]
) -> Tensor | None:
    """Σₖ wₖ · σ⁽ⁿₖ⁾(x) over the weights that are there."""
    total: dict[int, Tensor] = {}
    for n, weight in zip(orders, weights, strict=True):
        if weight is not None:
            total[n] = total[n] + weight if n in total else weight
    return _WeightedSum.apply(x, activation, tuple(total), *total.values()) if total else None
