"""Reverse mode: gradients, Hessian-vector products, and a norm that can be differentiated at zero."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

import torch
from torch import Tensor, nn

from dcnn.errors import InputError

Function = Callable[..., Tensor]


@overload
def gradient(f: Function | Tensor, x: Tensor, create_graph: bool = True) -> Tensor: ...
@overload
def gradient(f: Function | Tensor, x: Sequence[Tensor], create_graph: bool = True) -> tuple[Tensor, ...]: ...
def gradient(
    f: Function | Tensor, x: Tensor | Sequence[Tensor], create_graph: bool = True
) -> Tensor | tuple[Tensor, ...]:
    """∂(Σ f)/∂x, of the shape of x; for a sequence of tensors a tuple (f is then called as f(*x)).

    `f` is a function or a tensor that was computed from x. For a batch of independent rows this is the
    gradient of each row. With `create_graph` the result can be differentiated again, as a loss on
    derivatives needs.

    >>> gradient(lambda x: x**3, torch.tensor([1.0, 2.0]))
    tensor([ 3., 12.], grad_fn=<MulBackward0>)
    """
    inputs = (x,) if isinstance(x, Tensor) else tuple(x)
    with differentiating():
        if isinstance(f, Tensor):
            output = f
            for name, tensor in _named(inputs, x):
                if not tensor.requires_grad:
                    raise InputError(
                        f"{name} of shape {tuple(tensor.shape)} does not require a gradient, so nothing "
                        f"computed from it has a graph; call .requires_grad_() on it first"
                    )
        else:
            inputs = tuple(differentiable(tensor) for tensor in inputs)
            output = f(*inputs)
        grads: tuple[Tensor | None, ...] = (None,) * len(inputs)
        if output.requires_grad:
            grads = torch.autograd.grad(output.sum(), inputs, create_graph=create_graph, allow_unused=True)
        for (name, _), grad in zip(_named(inputs, x), grads, strict=True):
            if grad is None:
                raise InputError(_lost_graph(f, output, name, inputs))
    found = tuple(grad for grad in grads if grad is not None)
    return found[0] if isinstance(x, Tensor) else found


def hessian_vector(f: Function, x: Tensor, v: Tensor, create_graph: bool = True) -> Tensor:
    """H v for the Hessian H of Σ f(x), by differentiating ⟨∇f, v⟩ (reverse over reverse); the shape of x.

    >>> hessian_vector(lambda x: (x**3).sum(), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.0])).detach()
    tensor([6., 0.])
    """
    if v.shape != x.shape:
        raise InputError(f"v has shape {tuple(v.shape)}, x has {tuple(x.shape)}; they must be the same")
    with differentiating():
        x, v = differentiable(x), v.clone() if v.is_inference() else v
        slope = gradient(f, x)
        product = derivative((slope * v).sum(), x, create_graph)
    return torch.zeros_like(x) if product is None else product


def safe_norm(v: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """|v| along `dim`, whose first and second derivatives are 0 (not NaN) where v is 0.

    Lengths whose inverse cube overflows (below 3e-13 in float32, 1e-102 in float64) count as 0.

    >>> safe_norm(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([5., 0.])
    """
    squared = (v * v).sum(dim, keepdim=keepdim)
    positive = squared > torch.finfo(v.dtype).tiny ** (2 / 3)
    # the square root never sees a zero, so that no inf · 0 arises in any derivative
    return torch.where(positive, torch.where(positive, squared, 1.0).sqrt(), 0.0)


@contextmanager
def differentiating() -> Iterator[None]:
    """Gradients on, whatever the caller switched off."""
    with inference_tensors_named(), torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def inference_tensors_named() -> Iterator[None]:
    """A tensor that was made in inference mode and meets autograd is an error that says what to do."""
    try:
        yield
    except RuntimeError as error:
        if "nference tensor" not in str(error):
            raise
        raise InputError(
            "a parameter or constant of the network was made inside torch.inference_mode() and cannot take part in "
            "derivatives; make it outside (torch.no_grad() is allowed), or clone it there"
        ) from error


def differentiable(x: Tensor) -> Tensor:
    """x itself if it is part of a graph, otherwise a leaf with the same values."""
    if not x.is_floating_point():
        raise InputError(f"x is {x.dtype}; derivatives need floating-point coordinates, use x.double()")
    if x.is_inference():
        x = x.clone()
    return x if x.requires_grad else x.detach().requires_grad_()


def derivative(output: Tensor, x: Tensor, create_graph: bool = True) -> Tensor | None:
    """∂output/∂x for a scalar, None if it does not depend on x."""
    if not output.requires_grad:
        return None
    return torch.autograd.grad(output, x, create_graph=create_graph, allow_unused=True, retain_graph=True)[0]


def _named(inputs: Sequence[Tensor], x: Tensor | Sequence[Tensor]) -> list[tuple[str, Tensor]]:
    names = ["x"] if isinstance(x, Tensor) else [f"x[{i}]" for i in range(len(inputs))]
    return list(zip(names, inputs, strict=True))


def _lost_graph(f: Function | Tensor, output: Tensor, name: str, inputs: Sequence[Tensor]) -> str:
    place = _where_lost(f, inputs) if isinstance(f, nn.Module) else None
    if place is not None:
        found = f"the graph is lost in {place}"
    elif not output.requires_grad:
        found = f"the output of shape {tuple(output.shape)} has no graph"
    else:
        found = f"the output of shape {tuple(output.shape)} does not depend on {name}"
    return (
        f"cannot differentiate with respect to {name}: {found}; look for .detach(), .item(), .numpy(), "
        f"torch.no_grad(), rounding or integer operations on the way, or leave {name} out"
    )


def _where_lost(network: nn.Module, inputs: Sequence[Tensor]) -> str | None:
    """The first submodule that takes tensors depending on the inputs and returns only ones that do not."""
    lost: list[str] = []

    def depends(value: Any) -> bool:
        if not isinstance(value, Tensor) or not value.requires_grad:
            return False
        grads = torch.autograd.grad(value.sum(), inputs, allow_unused=True, retain_graph=True)
        return any(grad is not None for grad in grads)

    def hook(name: str) -> Callable[..., None]:
        def check(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
            if isinstance(result, Tensor) and not depends(result) and any(depends(a) for a in args):
                lost.append(f"module {name!r} ({type(module).__name__})")

        return check

    handles = [m.register_forward_hook(hook(name)) for name, m in network.named_modules() if name]
    try:
        network(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return lost[0] if lost else None
