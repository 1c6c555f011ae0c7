"""Truncated multivariate Taylor polynomials: which terms are carried, and how they pass a layer.

A function u of coordinates is represented by its partial derivatives ∂^α u, one row for each multi-index α,
stacked as (terms, N, features) with the value first. A linear layer is then *one* matrix product over all
rows, and an elementwise function f follows Faà di Bruno's formula

    ∂^α f(u) = Σ_k f⁽ᵏ⁾(u) · B_{α,k},      B_{α,k} = Σ over partitions of α into k blocks of Π ∂^block u,

whose reverse pass is closed-form as well, because ∂(∂^α f(u))/∂u is the same sum with f⁽ᵏ⁺¹⁾.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import comb, prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dcnn.derivatives.elementwise import Elementwise
from dcnn.torch_internals import recording, transforming

Index = tuple[int, ...]  # how often each coordinate is differentiated
MAX_ORDER = 6


@lru_cache(maxsize=256)
def downward_closed(wanted: frozenset[Index]) -> tuple[Index, ...]:
    """The multi-indices needed to propagate `wanted`: every index below one of them, lowest order first.

    >>> downward_closed(frozenset({(2, 0), (0, 1)}))
    ((0, 0), (1, 0), (0, 1), (2, 0))
    """
    below = {beta for alpha in wanted for beta in product(*(range(n + 1) for n in alpha))}
    return tuple(sorted(below, key=lambda alpha: (sum(alpha), tuple(-n for n in alpha))))


def _set_partitions(items: Sequence[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for partition in _set_partitions(rest):
        yield [[first], *partition]
        for i, block in enumerate(partition):
            yield [*partition[:i], [first, *block], *partition[i + 1 :]]


@lru_cache(maxsize=1024)
def _bell_monomials(alpha: Index) -> Counter[tuple[Index, ...]]:
    """The monomials of Σ_k B_{α,k}: blocks (sorted multi-indices) -> how many set partitions give them."""
    slots = [axis for axis, n in enumerate(alpha) for _ in range(n)]
    count: Counter[tuple[Index, ...]] = Counter()
    for partition in _set_partitions(slots):
        blocks = (tuple(block.count(axis) for axis in range(len(alpha))) for block in partition)
        count[tuple(sorted(blocks))] += 1
    return count


@dataclass(frozen=True)
class Bell:
    """One B_{α,k} with k ≥ 2: the row of α in the result, k, and its (coefficient, factor rows) monomials."""

    row: int
    k: int
    monomials: tuple[tuple[int, tuple[int, ...]], ...]

    def __call__(self, rows: Sequence[Tensor]) -> Tensor:
        """B_{α,k} of the given derivatives."""
        total: Tensor | None = None
        for coefficient, factors in self.monomials:
            term = prod((rows[i] for i in factors[1:]), start=rows[factors[0]])
            if coefficient != 1:
                term = term * coefficient
            total = term if total is None else total + term
        assert total is not None
        return total


@dataclass(frozen=True)
class Composition:
    """How f(u) is made of the rows of u: result terms, linear (row of f(u), row of u), Bell polynomials."""

    terms: tuple[Index, ...]
    order: int
    linear: tuple[tuple[int, int], ...]
    bells: tuple[Bell, ...]
    dense: bool  # no term is new, so that the linear part is one product of the whole stack


@lru_cache(maxsize=1024)
def composition(terms: tuple[Index, ...], closed: tuple[Index, ...]) -> Composition:
    """The plan for an elementwise function of rows `terms` (absent rows are zero), truncated to `closed`."""
    row_of = {alpha: i for i, alpha in enumerate(terms)}
    result: list[Index] = [closed[0]]
    linear: list[tuple[int, int]] = []
    bells: list[Bell] = []
    for alpha in closed[1:]:
        by_k: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for blocks, coefficient in _bell_monomials(alpha).items():
            if all(block in row_of for block in blocks):
                by_k.setdefault(len(blocks), []).append((coefficient, tuple(row_of[b] for b in blocks)))
        if not by_k:
            continue
        if 1 in by_k:
            linear.append((len(result), row_of[alpha]))
        bells += [Bell(len(result), k, tuple(m)) for k, m in sorted(by_k.items()) if k > 1]
        result.append(alpha)
    order = max((bell.k for bell in bells), default=min(1, len(linear)))
    dense = len(linear) > 0 and len(linear) + 1 == len(terms) == len(result)
    return Composition(tuple(result), order, tuple(linear), tuple(bells), dense)


@lru_cache(maxsize=1024)
def leibniz(
    left: tuple[Index, ...], right: tuple[Index, ...], closed: tuple[Index, ...]
) -> tuple[tuple[Index, tuple[tuple[int, int, int], ...]], ...]:
    """Leibniz' rule ∂^α(uv) = Σ_β C(α,β) ∂^β u ∂^{α−β} v, as (α, ((C, row of u, row of v), …)) for each α."""
    table = []
    for alpha in closed:
        pairs = tuple(
            (prod(map(comb, alpha, beta)), i, right.index(gamma))
            for i, beta in enumerate(left)
            if (gamma := tuple(a - b for a, b in zip(alpha, beta, strict=True))) in right
        )
        if pairs:
            table.append((alpha, pairs))
    return tuple(table)


def compose_plain(z: Tensor, f: Elementwise, plan: Composition) -> Tensor:
    """The rows of f(u) from the rows z of u, written with ordinary differentiable operations."""
    u = z.unbind()
    s = f.derivatives(u[0], plan.order)
    rows = {0: s[0]} | {i: s[1] * u[j] for i, j in plan.linear}
    for bell in plan.bells:
        part = s[bell.k] * bell(u)
        rows[bell.row] = rows[bell.row] + part if bell.row in rows else part
    return torch.stack([rows[i] for i in range(len(plan.terms))])


class _Compose(torch.autograd.Function):
    """The same as :func:`compose_plain` with few temporaries and a closed-form reverse pass."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, f: Elementwise, plan: Composition) -> Tensor:
        s = f.derivatives(z[0], plan.order + int(ctx.needs_input_grad[0]))
        ctx.f, ctx.plan = f, plan
        ctx.save_for_backward(z, *s[1:])
        y = z.new_empty(len(plan.terms), *z.shape[1:])
        y_rows, z_rows = y.unbind(), z.unbind()
        y_rows[0].copy_(s[0])
        if plan.dense:
            torch.mul(z[1:], s[1], out=y[1:])
        else:
            y[1:].zero_()
            for i, j in plan.linear:
                torch.mul(z_rows[j], s[1], out=y_rows[i])
        for bell in plan.bells:
            y_rows[bell.row].addcmul_(s[bell.k], bell(z_rows))
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        z, *s = ctx.saved_tensors
        plan: Composition = ctx.plan
        if torch.is_grad_enabled():  # a second derivative is wanted: s is not connected to the graph
            y = compose_plain(z, ctx.f, plan)
            return torch.autograd.grad(y, z, g, create_graph=True)[0], None, None

        z_rows, g_rows = z.unbind(), g.unbind()
        gz = torch.empty_like(z)
        gz_rows = gz.unbind()
        # every row of u enters linearly, times f′
        if plan.dense:
            torch.mul(g, s[0], out=gz)
        else:
            for i, j in ((0, 0), *plan.linear):
                torch.mul(g_rows[i], s[0], out=gz_rows[j])
        # ∂/∂u of every coefficient f⁽ᵏ⁾ is f⁽ᵏ⁺¹⁾: collect Σ_α g_α B_{α,k} for each k
        collected: dict[int, Tensor] = {}
        for i, j in plan.linear:
            _add_product(collected, 1, g_rows[i], z_rows[j])
        for bell in plan.bells:
            _add_product(collected, bell.k, g_rows[bell.row], bell(z_rows))
            h = g_rows[bell.row] * s[bell.k - 1]
            for coefficient, factors in bell.monomials:
                for j, count in Counter(factors).items():
                    others = list(factors)
                    others.remove(j)
                    rest = prod((z_rows[i] for i in others[1:]), start=z_rows[others[0]])
                    gz_rows[j].addcmul_(h, rest, value=coefficient * count)
        for k, total in collected.items():
            gz_rows[0].addcmul_(total, s[k])
        return gz, None, None


def _add_product(sums: dict[int, Tensor], key: int, a: Tensor, b: Tensor) -> None:
    if key in sums:
        sums[key].addcmul_(a, b)
    else:
        sums[key] = a * b


def _transformed() -> bool:
    """Inside torch.func or a trace, where writing into slices of a buffer is not allowed or not fused."""
    return transforming() or recording()


def compose(z: Tensor, f: Elementwise, plan: Composition) -> Tensor:
    """The rows of f(u) from the rows z of u."""
    trainable = isinstance(f, nn.Module) and any(p.requires_grad for p in f.parameters())
    if trainable or _transformed():
        return compose_plain(z, f, plan)
    return _Compose.apply(z, f, plan)


class _Linear(torch.autograd.Function):
    """One product for all rows; the bias is added to the value row alone, in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        y = F.linear(x, weight)
        if bias is None:
            return y
        if _transformed():  # a sum that can be fused with whatever comes next
            return y + torch.stack([bias] + [torch.zeros_like(bias)] * (len(x) - 1))[:, None]
        y[0] += bias
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gx = g @ weight if ctx.needs_input_grad[0] else None
        gw = g.flatten(0, -2).t() @ x.flatten(0, -2) if ctx.needs_input_grad[1] else None
        gb = g[0].flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None
        return gx, gw, gb


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Rows of W u + b from the rows x of u; `weight` and `bias` do not depend on the coordinates."""
    if transforming():
        y = F.linear(x, weight)
        return y if bias is None else add_to_value(y, bias)
    return _Linear.apply(x, weight, bias)


def add_to_value(rows: Tensor, constant: Tensor | float) -> Tensor:
    """Rows of u + c."""
    return torch.cat([rows[:1] + constant, rows[1:]])
