"""Partial derivatives of a network by name: `partials(net, x, ["t", "x", "xx"])`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dcnn.derivatives.gradient import derivative, differentiable, differentiating, gradient, inference_tensors_named
from dcnn.derivatives.jet import Jet, UnsupportedError
from dcnn.derivatives.taylor import MAX_ORDER, Index
from dcnn.errors import InputError, unknown
from dcnn.torch_internals import Dropout, NormWithStatistics, recording, transforming

Network = Callable[[Any], Any]
MEASURED = 256  # points from which on the faster way is found by measuring
_FASTER: WeakKeyDictionary[nn.Module, dict[Any, bool | None]] = WeakKeyDictionary()  # nested is
Mode = Literal["auto", "taylor", "nested"]


def partials(
    net: Network,
    x: Tensor,
    wanted: Sequence[str],
    coordinates: Sequence[str] | None = None,
    mode: Mode = "auto",
) -> dict[str, Tensor]:
    """Partial derivatives of net(x) at the points x (N, d), under the names asked for; each (N, fields).

    `wanted` are strings of coordinate letters such as "", "t", "xx", "xy" ("" is the value), up to order 6 in
    any mix. `coordinates` names the columns of x; by default they are x, y, z in this order, with t last if t
    is wanted. Rows must be independent points.

    Networks made of operations that a :class:`Jet` knows are evaluated once, with all derivatives carried
    along (Taylor mode). Others are differentiated by nested autograd, with the same result, and so are first
    derivatives of fewer fields than coordinates, where that is less work. Of higher derivatives of a module at
    hundreds of points the second call measures both ways, and later ones take the faster. `mode` picks one.

    >>> x = torch.tensor([[1.0, 2.0]])
    >>> partials(lambda u: u[:, :1] ** 2 * u[:, 1:], x, ["", "t", "xx", "xt"])
    {'': tensor([[2.]]), 't': tensor([[1.]]), 'xx': tensor([[4.]]), 'xt': tensor([[2.]])}
    """
    wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    names = coordinate_names(x, wanted, coordinates)
    indices = {name: _index(name, names) for name in wanted}
    found = partials_by_index(net, x, list(indices.values()), mode)
    return {name: found[alpha] for name, alpha in indices.items()}


def laplacian(net: Network, x: Tensor, coordinates: Sequence[str] | None = None) -> Tensor:
    """Σ ∂²u/∂xᵢ² over the space coordinates, (N, fields): all columns of x, except one that is named "t".

    >>> laplacian(lambda u: (u**2).sum(-1, keepdim=True), torch.zeros(1, 5)).detach()
    tensor([[10.]])
    """
    d = _columns(x)
    names = tuple(coordinates) if coordinates is not None else ("x",) * d
    if len(names) != d:
        raise InputError(f"{len(names)} coordinates {names} were named, but x has {d} columns")
    unit = [tuple(2 * int(i == j) for j in range(d)) for i in range(d) if names[i] != "t"]
    found = partials_by_index(net, x, unit)
    return torch.stack([found[alpha] for alpha in unit]).sum(0)


def partials_by_index(net: Network, x: Tensor, wanted: Sequence[Index], mode: Mode = "auto") -> dict[Index, Tensor]:
    """The same as :func:`partials` for multi-indices: (2, 0, 1) is twice by column 0, once by column 2."""
    if mode not in ("auto", "taylor", "nested"):
        raise unknown("mode", mode, ("auto", "taylor", "nested"))
    if mode == "nested" or (
        mode == "auto"
        and (
            _couples_rows_or_is_random(net)
            or _reverse_is_less_work(net, x, wanted)
            or _nested_is_faster(net, x, wanted)
        )
    ):
        return _nested(net, x, wanted)
    try:
        with inference_tensors_named():
            output = net(Jet.coordinates(x, wanted))
        if not isinstance(output, Jet):
            raise UnsupportedError(f"the network returns {type(output).__name__}, not a jet")
    except (TypeError, AttributeError, NotImplementedError) as error:
        # An operation without a rule, or a network that takes tensors only. A mistake of the network shows again below,
        # on real tensors, and one in a rule for jets is a RuleError.
        if mode == "taylor":
            error.add_note("mode='taylor' calls the network with a Jet; mode='nested' calls it with tensors")
            raise
        return _nested(net, x, wanted)
    return {alpha: output.term(alpha) for alpha in wanted}


def _couples_rows_or_is_random(net: Network) -> bool:
    """Batch statistics and dropout must run once, on the tensors themselves."""
    return isinstance(net, nn.Module) and any(isinstance(m, NormWithStatistics | Dropout) for m in net.modules())


def _reverse_is_less_work(net: Network, x: Tensor, wanted: Sequence[Index]) -> bool:
    """First derivatives cost one pass a field in reverse, one a coordinate in Taylor mode, and one for the value."""
    if max(map(sum, wanted), default=0) != 1:
        return False
    try:
        with torch.no_grad():
            fields = net(x[:1]).numel()
    except RuntimeError:  # a network that is tied to the number of points; a mistake shows again on all of them
        return False
    return bool(fields <= len({alpha for alpha in wanted if any(alpha)}))


def _nested_is_faster(net: Network, x: Tensor, wanted: Sequence[Index]) -> bool:
    """Measured at the second call with such points (a first one may be the only one); before that Taylor mode."""
    orders = max(map(sum, wanted), default=0)
    if orders < 2 or len(x) < MEASURED or not isinstance(net, nn.Module) or transforming() or recording():
        return False
    known = _FASTER.setdefault(net, {})
    key = tuple(wanted), tuple(x.shape), x.dtype, str(x.device), torch.is_grad_enabled()
    if key not in known:
        known[key] = None
    elif known[key] is None:
        try:
            taylor = _seconds(net, x, wanted, "taylor")
        except (TypeError, AttributeError, NotImplementedError):  # not made of operations that a Jet knows
            known[key] = True
        else:
            known[key] = _seconds(net, x, wanted, "nested") < taylor
    return bool(known[key])


def _seconds(net: nn.Module, x: Tensor, wanted: Sequence[Index], mode: Mode) -> float:
    """The shortest of three evaluations, with the gradient of the weights if it is going to be asked for."""
    weights = [p for p in net.parameters() if p.requires_grad] if torch.is_grad_enabled() else []
    shortest = math.inf
    with torch.random.fork_rng(devices=[]):
        for _ in range(3):
            begin = time.perf_counter()
            found = partials_by_index(net, x.detach(), wanted, mode)
            if weights:
                total = torch.stack([u.square().sum() for u in found.values()]).sum()
                torch.autograd.grad(total, weights, allow_unused=True)
            shortest = min(shortest, time.perf_counter() - begin)
    return shortest


def _nested(net: Network, x: Tensor, wanted: Sequence[Index]) -> dict[Index, Tensor]:
    """Derivatives one after another by reverse mode; every derivative on the way is computed once."""
    keep_graph = torch.is_grad_enabled()
    with differentiating():
        x = differentiable(x)
        value = net(x)
        if value.ndim == 0 or value.shape[0] != x.shape[0]:
            raise InputError(
                f"the network returns shape {tuple(value.shape)} for {x.shape[0]} points; "
                f"its first axis must be the points"
            )
        zero: Index = (0,) * x.shape[1]
        values = value.reshape(x.shape[0], -1).unbind(1)  # one column a field
        slopes: dict[tuple[Index, int], Tensor | None] = {}  # (N, d): by all columns of x at once

        def column(alpha: Index, field: int) -> Tensor:
            if alpha == zero:
                return values[field]
            axis = max(i for i, n in enumerate(alpha) if n)
            lower = tuple(n - int(i == axis) for i, n in enumerate(alpha))
            if (lower, field) not in slopes:
                slopes[lower, field] = derivative(column(lower, field).sum(), x)
            slope = slopes[lower, field]
            return x.new_zeros(x.shape[0]) if slope is None else slope[:, axis]

        fields = range(len(values))
        found = {a: torch.stack([column(a, f) for f in fields], 1).reshape(value.shape) for a in wanted}
        if slopes and all(slope is None for slope in slopes.values()):
            gradient(net, x)  # raises, and says which tensor lost its graph
    return found if keep_graph else {alpha: u.detach() for alpha, u in found.items()}


def _columns(x: Tensor) -> int:
    if x.ndim != 2:
        raise InputError(f"x must be points by coordinates, (N, d); got shape {tuple(x.shape)}")
    return int(x.shape[1])


def coordinate_names(x: Tensor, wanted: Sequence[str], coordinates: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names of the columns of x: `coordinates`, or x, y, z in order, with t last if it is wanted."""
    d = _columns(x)
    used = sorted(set("".join(wanted)))
    if coordinates is not None:
        names = tuple(coordinates)
        if len(names) != d or len(set(names)) != d:
            raise InputError(f"coordinates must be {d} different letters, one a column of x; got {names}")
        return names
    if d == 1 and len(used) == 1 and used[0] in "xyzt":
        return (used[0],)
    with_t = "t" in used or d == 4
    if d > 3 + with_t:
        raise InputError(f"x has {d} columns; name them, for example coordinates=('a', 'b', 'c', …)")
    return tuple("xyz"[: d - with_t]) + ("t",) * with_t


def _index(name: str, coordinates: Sequence[str]) -> Index:
    for letter in name:
        if letter not in coordinates:
            raise unknown(f"coordinate in the derivative {name!r}:", letter, coordinates)
    if len(name) > MAX_ORDER:
        raise InputError(f"the derivative {name!r} is of order {len(name)}; orders up to {MAX_ORDER} are supported")
    return tuple(name.count(c) if len(c) == 1 else 0 for c in coordinates)
