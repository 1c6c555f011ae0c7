"""3×3 tensors of atoms as nine components, their products, and their messages, each with its own derivatives.

A tensor X = I + A + S has nine orthonormal components: one of its trace (part 0), three of its antisymmetric (1) and
five of its symmetric traceless part (2), so that ‖X‖² is the sum of their squares. They stand first, (9, N, F), and
products with 9 rows are then single matrix products. The derivatives of a product and of a message are again products
and messages: both are autograd functions whose backward calls them, for derivatives of every order, without a
scattered sum.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dcnn.atoms.atoms_batch import AtomsBatch

SIZES = (1, 3, 5)  # components of I, A and S


def _basis() -> Tensor:
    """(9, 3, 3) orthonormal matrices: 1/√3; [e]×/√2 for e = x, y, z; xy, yz, zx, xx − yy, 2zz − xx − yy."""
    basis = torch.zeros(9, 3, 3, dtype=torch.float64, device="cpu")
    half, sixth = math.sqrt(1 / 2), math.sqrt(1 / 6)
    basis[0].fill_diagonal_(math.sqrt(1 / 3))
    for number, (i, j) in enumerate(((1, 2), (2, 0), (0, 1))):
        basis[1 + number, i, j], basis[1 + number, j, i] = -half, half
    for number, (i, j) in enumerate(((0, 1), (1, 2), (2, 0))):
        basis[4 + number, i, j] = basis[4 + number, j, i] = half
    basis[7].diagonal().copy_(basis.new_tensor([half, -half, 0.0]))
    basis[8].diagonal().copy_(basis.new_tensor([-sixth, -sixth, 2 * sixth]))
    return basis


BASIS = _basis()
_ENTRIES = {dtype: BASIS.flatten(1).to(dtype) for dtype in (torch.float32, torch.float64)}  # (9, 9), not cast each time
PART = torch.tensor([0, 1, 1, 1, 2, 2, 2, 2, 2], device="cpu")  # of every component


class _Spread(torch.autograd.Function):
    """Of every part → of every component; its gradient is the sum over the components of a part."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.index_select(0, PART.to(values.device))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return part_sums(grads[0])


class _Collect(torch.autograd.Function):
    """The sum over the components of every part; its gradient is spread over them."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return torch.stack([part.sum(0) for part in values.split(SIZES)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return by_part(grads[0])


def by_part(values: Tensor) -> Tensor:
    """Of every part (3, …) → of every component (9, …)."""
    return _Spread.apply(values)


def part_sums(values: Tensor) -> Tensor:
    """Σ over the components of every part, (9, …) → (3, …)."""
    return _Collect.apply(values)


def of_directions(unit: Tensor) -> Tensor:
    """Components of 1, [r̂]× and r̂r̂ᵀ − 1/3 for unit vectors r̂, (…, 3) → (…, 9)."""
    x, y, z = unit.unbind(-1)
    two, half, sixth = math.sqrt(2), math.sqrt(1 / 2), math.sqrt(1 / 6)
    one = torch.full_like(x, math.sqrt(3))
    symmetric = (two * x * y, two * y * z, two * z * x, half * (x * x - y * y), sixth * (2 * z * z - x * x - y * y))
    return torch.stack([one, two * x, two * y, two * z, *symmetric], -1)


def _entries(x: Tensor) -> Tensor:
    return _ENTRIES.get(x.dtype, _ENTRIES[torch.float64]).to(x)


def _matrices(x: Tensor) -> Tensor:
    """Components (9, N, F) → entries (3, 3, N, F)."""
    return (_entries(x).T @ x.flatten(1)).view(3, 3, *x.shape[1:])


def _components(matrices: Tensor) -> Tensor:
    """Entries (3, 3, N, F) → components (9, N, F)."""
    entries = matrices.flatten(0, 1)
    return (_entries(entries) @ entries.flatten(1)).view_as(entries)


class _Anticommutator(torch.autograd.Function):
    """XY + YX, or with Yᵀ for Y, whose gradients are again of these two kinds.

    The entries of a tensor and of its transpose are the same matrix product, which a compiled step makes once.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, transpose: bool) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.transpose = transpose
        a, b = _matrices(x), _matrices(y)
        b = b.transpose(0, 1) if transpose else b
        return _components((a.unsqueeze(2) * b.unsqueeze(0) + b.unsqueeze(2) * a.unsqueeze(0)).sum(1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (x, y), g = ctx.saved_tensors, grads[0]
        a, b = (x, g) if ctx.transpose else (g, x)
        of_x = anticommutator(g, y, not ctx.transpose) if ctx.needs_input_grad[0] else None
        return of_x, anticommutator(a, b, transpose=True) if ctx.needs_input_grad[1] else None, None


def anticommutator(x: Tensor, y: Tensor, transpose: bool = False) -> Tensor:
    """XY + YX of components (9, N, F), or XYᵀ + YᵀX."""
    return _Anticommutator.apply(x, y, transpose)


class _Square(torch.autograd.Function):
    """X²; its gradient G by X is GXᵀ + XᵀG."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        a = _matrices(x)
        return _components((a.unsqueeze(2) * a.unsqueeze(0)).sum(1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return anticommutator(grads[0], ctx.saved_tensors[0], transpose=True)


def square(x: Tensor) -> Tensor:
    """X² of components (9, N, F)."""
    return _Square.apply(x)


class Table(NamedTuple):
    """Who sends to whom: the neighbour and the pair in every slot of an atom, 0 in empty ones; the ends of a pair."""

    neighbour: Tensor  # (N, n)
    pair: Tensor  # (N, n)
    filled: Tensor  # (N, n, 1), 1 or 0
    i: Tensor  # (P,)
    j: Tensor  # (P,)

    @classmethod
    def of(cls, batch: AtomsBatch) -> Table:
        """The table of a batch."""
        at = batch.neighbourhoods
        return cls(at.neighbour, at.pair, at.filled.unsqueeze(-1).to(batch.positions), batch.pair_i, batch.pair_j)


class _Messages(torch.autograd.Function):
    """M_i = Σ_j f_ij ∘ X_j, f_ij = f_ji; by X it is the same sum over G, by f it is :class:`_Ends`."""

    @staticmethod
    def forward(ctx: Any, filters: Tensor, x: Tensor, *table: Tensor) -> Tensor:
        ctx.save_for_backward(filters, x, *table)
        neighbour, pair, filled, _, _ = table
        filters = filters.index_select(1, pair.flatten()).unflatten(1, pair.shape) * filled  # (3, N, n, F)
        sent = x.index_select(1, neighbour.flatten()).unflatten(1, neighbour.shape)  # (9, N, n, F)
        return (sent * filters.index_select(0, PART.to(x.device))).sum(2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        filters, x, *table = ctx.saved_tensors
        of_filters = _Ends.apply(grads[0], x, *table) if ctx.needs_input_grad[0] else None
        of_x = _Messages.apply(filters, grads[0], *table) if ctx.needs_input_grad[1] else None
        return of_filters, of_x, *(None for _ in table)


class _Ends(torch.autograd.Function):
    """g_ij = Σ over the components of a part of X_i ∘ Y_j + X_j ∘ Y_i; by X it is the message M(g, Y)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, *table: Tensor) -> Tensor:
        ctx.save_for_backward(x, y, *table)
        i, j = table[-2:]
        x_i, x_j, y_i, y_j = (t.index_select(1, end) for t in (x, y) for end in (i, j))
        return part_sums(x_i * y_j + x_j * y_i)  # (3, P, F)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        x, y, *table = ctx.saved_tensors
        by_x = _Messages.apply(grads[0], y, *table) if ctx.needs_input_grad[0] else None
        by_y = _Messages.apply(grads[0], x, *table) if ctx.needs_input_grad[1] else None
        return by_x, by_y, *(None for _ in table)


def messages(filters: Tensor, x: Tensor, table: Table) -> Tensor:
    """Σ_j f_ij ∘ X_j for every atom i, with filters of the three parts (3, P, F) and components (9, N, F)."""
    return _Messages.apply(filters, x, *table)
