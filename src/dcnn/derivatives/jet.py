"""Taylor mode: a value together with its partial derivatives, to be used in place of a tensor.

A :class:`Jet` goes through any `forward` that is written with the operations below (linear layers,
activations, + − × ÷, powers, sin, cos, exp, log, sqrt, `cat`, `stack`, indexing), because PyTorch hands its
own functions over to objects that define ``__torch_function__``. Anything else raises
:class:`UnsupportedError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dcnn.activations import Activation, Sigmoid, Sin, Tanh, from_torch
from dcnn.derivatives import taylor
from dcnn.derivatives.elementwise import Cos, Elementwise, Exp, Log, Power
from dcnn.derivatives.taylor import Index


class UnsupportedError(TypeError):
    """An operation that has no rule for jets; `partials` then falls back to nested autograd."""


class RuleError(RuntimeError):
    """A rule that was given to :func:`register_jet` failed; unlike a missing rule, that is never passed over."""


@dataclass(eq=False, repr=False, slots=True)
class Jet:
    """∂^α u for the multi-indices α of `terms`, stacked as `rows` (terms, N, features), the value first.

    `closed` is the downward-closed set of multi-indices that results are truncated to. Terms of `closed` that
    are not in `terms` vanish: nothing is computed for the second derivatives of an affine function. Tensors
    and numbers that meet a jet are constants, that is, they do not depend on the coordinates.

    >>> x = Jet.coordinates(torch.tensor([[2.0, 3.0]]), [(1, 0), (1, 1)])
    >>> area = x[:, :1] * x[:, 1:]
    >>> [float(area.term(alpha)) for alpha in [(0, 0), (1, 0), (1, 1)]]
    [6.0, 3.0, 1.0]
    """

    rows: Tensor
    terms: tuple[Index, ...]
    closed: tuple[Index, ...]

    @classmethod
    def coordinates(cls, x: Tensor, wanted: Iterable[Index]) -> Jet:
        """The jet of the identity at the points x (N, d): what a network is given to get its derivatives."""
        closed = taylor.downward_closed(frozenset([(0,) * x.shape[-1], *wanted]))
        terms = tuple(alpha for alpha in closed if sum(alpha) < 2)
        slopes = x.new_tensor(terms[1:]).reshape(-1, 1, x.shape[-1])  # (terms − 1, 1, d): unit vectors
        return cls(torch.cat([x[None], slopes.expand(-1, *x.shape)]), terms, closed)

    def term(self, alpha: Index) -> Tensor:
        """∂^α u, zeros if it vanishes."""
        return self.rows[self.terms.index(alpha)] if alpha in self.terms else torch.zeros_like(self.rows[0])

    @property
    def shape(self) -> torch.Size:
        return self.rows.shape[1:]

    @property
    def ndim(self) -> int:
        return self.rows.ndim - 1

    @property
    def dtype(self) -> torch.dtype:
        return self.rows.dtype

    @property
    def device(self) -> torch.device:
        return self.rows.device

    def __repr__(self) -> str:
        return f"Jet(shape={tuple(self.shape)}, terms={self.terms})"

    def _with(self, rows: Tensor, terms: tuple[Index, ...] | None = None) -> Jet:
        return Jet(rows, self.terms if terms is None else terms, self.closed)

    def _rows_of(self, terms: tuple[Index, ...], ndim: int) -> Tensor:
        """The rows of `terms`, zeros where a term vanishes, with leading axes added up to `ndim`."""
        rows = self.rows if terms == self.terms else torch.stack([self.term(alpha) for alpha in terms])
        return rows.reshape(rows.shape[0], *(1,) * (ndim - self.ndim), *self.shape)

    def __add__(self, other: Jet | Tensor | float) -> Jet:
        if isinstance(other, Jet):
            terms = _union([self, other])
            ndim = max(self.ndim, other.ndim)
            return self._with(self._rows_of(terms, ndim) + other._rows_of(terms, ndim), terms)
        if isinstance(other, Tensor):
            shape = torch.broadcast_shapes(self.shape, other.shape)
            rows = self._rows_of(self.terms, len(shape)).expand(-1, *shape)
            return self._with(taylor.add_to_value(rows, other))
        return self._with(taylor.add_to_value(self.rows, other))

    def __mul__(self, other: Jet | Tensor | float) -> Jet:
        if not isinstance(other, Jet):
            ndim = max(self.ndim, other.ndim) if isinstance(other, Tensor) else self.ndim
            return self._with(self._rows_of(self.terms, ndim) * other)
        ndim = max(self.ndim, other.ndim)
        u, v = self._rows_of(self.terms, ndim), other._rows_of(other.terms, ndim)
        table = taylor.leibniz(self.terms, other.terms, self.closed)
        rows = []
        for _, pairs in table:
            parts = [u[i] * v[j] if c == 1 else c * u[i] * v[j] for c, i, j in pairs]
            rows.append(sum(parts[1:], start=parts[0]))
        return self._with(torch.stack(rows), tuple(alpha for alpha, _ in table))

    def __neg__(self) -> Jet:
        return self._with(-self.rows)

    def __sub__(self, other: Jet | Tensor | float) -> Jet:
        return self + (-other)

    def __rsub__(self, other: Tensor | float) -> Jet:
        return -self + other

    def __truediv__(self, other: Jet | Tensor | float) -> Jet:
        return self * (other.apply(Power(-1)) if isinstance(other, Jet) else 1 / other)

    def __rtruediv__(self, other: Tensor | float) -> Jet:
        return self.apply(Power(-1)) * other

    def __pow__(self, p: float) -> Jet:
        if not isinstance(p, int | float):
            raise UnsupportedError(f"a jet to the power of {type(p).__name__}")
        return self.apply(Power(p))

    def __bool__(self) -> bool:
        raise UnsupportedError("the truth of a jet: a decision that depends on the coordinates")

    def __eq__(self, other: object) -> Any:
        raise UnsupportedError("== has no rule for jets")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError("NumPy has no rule for jets")

    __hash__ = object.__hash__
    __radd__ = __add__
    __rmul__ = __mul__

    def __getitem__(self, key: Any) -> Jet:
        return self._with(self.rows[(slice(None), *(key if isinstance(key, tuple) else (key,)))])

    def __matmul__(self, matrix: Tensor) -> Jet:
        if not isinstance(matrix, Tensor) or matrix.ndim != 2:
            raise UnsupportedError("a jet can be multiplied by a matrix (features, features) of constants only")
        return self.linear(matrix.t())

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Jet:
        """u Wᵀ + b: one matrix product for the value and all derivatives."""
        if isinstance(weight, Jet) or isinstance(bias, Jet):
            raise UnsupportedError("a linear layer whose weights depend on the coordinates")
        return self._with(taylor.linear(self.rows, weight, bias))

    def apply(self, f: Elementwise) -> Jet:
        """f(u), elementwise, by Faà di Bruno's formula."""
        plan = taylor.composition(self.terms, self.closed)
        return self._with(taylor.compose(self.rows, f, plan), plan.terms)

    def sin(self) -> Jet:
        return self.apply(Sin())

    def cos(self) -> Jet:
        return self.apply(Cos())

    def exp(self) -> Jet:
        return self.apply(Exp())

    def tanh(self) -> Jet:
        return self.apply(Tanh())

    def sigmoid(self) -> Jet:
        return self.apply(Sigmoid())

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _RULES:
            try:
                return _RULES[func](*args, **kwargs)
            except TypeError as error:  # such as add(a, b, alpha=2)
                raise UnsupportedError(f"{func.__name__} has no rule for jets with these arguments: {error}") from error
        if func is F.softplus and len(args) > 1:  # the only activation that nn.Module calls by position
            kwargs = {**dict(zip(("beta", "threshold"), args[1:], strict=False)), **kwargs}
            args = args[:1]
        activation = _activation(func, tuple(kwargs.items())) if len(args) == 1 else None
        if activation is None or not isinstance(args[0], Jet):
            raise UnsupportedError(f"{getattr(func, '__name__', func)} has no rule for jets")
        return args[0].apply(activation)


@lru_cache(maxsize=64)
def _activation(func: Callable[..., Any], keywords: tuple[tuple[str, Any], ...]) -> Activation | None:
    return from_torch(partial(func, **dict(keywords)) if keywords else func)


def _union(jets: Sequence[Jet]) -> tuple[Index, ...]:
    """The terms that any of the jets carries, in the order of the closed set."""
    if all(jet.terms == jets[0].terms for jet in jets):
        return jets[0].terms
    return tuple(alpha for alpha in jets[0].closed if any(alpha in jet.terms for jet in jets))


def _constant(value: Tensor, like: Jet) -> Jet:
    return Jet(value[None], like.closed[:1], like.closed)


def _join(join: Callable[..., Tensor], parts: Sequence[Jet | Tensor], dim: int = 0) -> Jet:
    """`cat` or `stack` of jets and constants along an axis of the tensors that they stand for."""
    like = next(part for part in parts if isinstance(part, Jet))
    jets = [part if isinstance(part, Jet) else _constant(part, like) for part in parts]
    terms = _union(jets)
    rows = [jet._rows_of(terms, jet.ndim) for jet in jets]
    return Jet(join(rows, dim=dim if dim < 0 else dim + 1), terms, like.closed)


def _power(u: Jet, p: float) -> Jet:
    if not isinstance(u, Jet):
        raise UnsupportedError("a jet as exponent")
    return u**p


_RULES: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.add, Tensor.add), lambda a, b: b + a if isinstance(b, Jet) else a + b),
    **dict.fromkeys((torch.mul, Tensor.mul), lambda a, b: b * a if isinstance(b, Jet) else a * b),
    **dict.fromkeys((torch.sub, Tensor.sub), lambda a, b: a - b if isinstance(a, Jet) else b.__rsub__(a)),
    **dict.fromkeys((torch.div, Tensor.div), lambda a, b: a / b if isinstance(a, Jet) else b.__rtruediv__(a)),
    **dict.fromkeys((torch.rsub, Tensor.__rsub__), lambda a, b: b - a if isinstance(b, Jet) else a.__rsub__(b)),
    **dict.fromkeys((torch.matmul, torch.mm), lambda a, b: a @ b),
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), partial(_join, torch.cat)),
    torch.stack: partial(_join, torch.stack),
    torch.neg: lambda u: -u,
    torch.pow: _power,
    torch.square: lambda u: u * u,
    torch.sqrt: lambda u: u.apply(Power(0.5)),
    torch.reciprocal: lambda u: u.apply(Power(-1)),
    torch.cos: lambda u: u.apply(Cos()),
    torch.exp: lambda u: u.apply(Exp()),
    torch.log: lambda u: u.apply(Log()),
    F.linear: lambda u, weight, bias=None: u.linear(weight, bias),
}

M = TypeVar("M", bound=nn.Module)
Rule = Callable[[M, Jet], Jet]


def register_jet(module_type: type[M]) -> Callable[[Rule[M]], Rule[M]]:
    """Say how modules of a type pass a jet, for a `forward` that is not made of operations a jet knows.

    >>> class Doubled(nn.Module):
    ...     def forward(self, x):
    ...         return torch.einsum("nf->nf", x) * 2
    >>> @register_jet(Doubled)
    ... def doubled(module, jet):
    ...     return jet * 2
    """

    def decorate(rule: Rule[M]) -> Rule[M]:
        forward = module_type.forward

        @wraps(forward)
        def forward_or_jet(self: M, x: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(x, Jet):
                return forward(self, x, *args, **kwargs)
            try:
                return rule(self, x)
            except (UnsupportedError, RuleError):
                raise
            except Exception as error:
                raise RuleError(
                    f"the jet rule of {module_type.__name__} raised {type(error).__name__}: {error}"
                ) from error

        module_type.forward = forward_or_jet
        return rule

    return decorate


@register_jet(Activation)  # type: ignore[type-abstract]
def _activation_rule(module: Activation, jet: Jet) -> Jet:
    return jet.apply(module)
