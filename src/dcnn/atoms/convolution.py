"""Σ_j y_j ∘ W_ij over the neighbours of every atom, in pieces: what is held are y and W, not a row for every edge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dcnn.torch_internals import recording, transforming

PIECE = 4096  # pairs at a time, so that their rows stay in the cache


def convolve(y: Tensor, filters: Tensor, pair_i: Tensor, pair_j: Tensor) -> Tensor:
    """(N, F), (P, F) → (N, F): the sum over the neighbours, both directions of a pair with the same filter."""
    return _Convolution.apply(y, filters, pair_i, pair_j)


def pays(pairs: int) -> bool:
    """Whether so many pairs are worth it; a graph that is being recorded or transformed takes plain operations.

    While a graph of any size is recorded ``pairs`` is a symbol, and to compare it would fix the size.
    """
    plain = torch.compiler.is_compiling() or torch.jit.is_tracing() or transforming() or recording()
    return not plain and pairs > 2 * PIECE


class _Convolution(torch.autograd.Function):
    """∂/∂y is the same convolution of the incoming gradient, ∂/∂W the :class:`_Products`; so for all orders."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, filters: Tensor, pair_i: Tensor, pair_j: Tensor) -> Tensor:
        ctx.save_for_backward(y, filters, pair_i, pair_j)
        total = torch.zeros_like(y)
        for i, j, w in zip(pair_i.split(PIECE), pair_j.split(PIECE), filters.split(PIECE), strict=True):
            total.index_add_(0, i, y.index_select(0, j).mul_(w))
            total.index_add_(0, j, y.index_select(0, i).mul_(w))
        return total

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        y, filters, *pairs = ctx.saved_tensors
        by_y, by_filters, *_ = ctx.needs_input_grad
        return (
            _Convolution.apply(g, filters, *pairs) if by_y else None,
            _Products.apply(g, y, *pairs) if by_filters else None,
            None,
            None,
        )


class _Products(torch.autograd.Function):
    """a_i ∘ b_j + a_j ∘ b_i of every pair, (P, F)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, pair_i: Tensor, pair_j: Tensor) -> Tensor:
        ctx.save_for_backward(a, b, pair_i, pair_j)
        found = a.new_empty(len(pair_i), a.shape[1])
        for i, j, rows in zip(pair_i.split(PIECE), pair_j.split(PIECE), found.split(PIECE), strict=True):
            torch.mul(a.index_select(0, i), b.index_select(0, j), out=rows)
            rows.addcmul_(a.index_select(0, j), b.index_select(0, i))
        return found

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        a, b, *pairs = ctx.saved_tensors
        by_a, by_b, *_ = ctx.needs_input_grad
        return (
            _Convolution.apply(b, g, *pairs) if by_a else None,
            _Convolution.apply(a, g, *pairs) if by_b else None,
            None,
            None,
        )
