"""DC101 and DC102 by measurement: what an activation does to the values that really pass through it.

From every operation that is not smooth by its nature (relu, clamp, where, abs, a comparison …) the chain of elementwise
operations around it is run again with other values, so that ``relu(x)²`` and a softplus made of ``relu`` and ``abs``
are judged as the functions that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.activations import from_torch
from dcnn.auditing.findings import Finding
from dcnn.auditing.op_recorder import Op, Record, Ref

_SMOOTH_NAMES = """
    add sub rsub mul div neg pow square sqrt rsqrt reciprocal exp exp2 expm1 log log1p log2 log10 sin cos tan sinh cosh
    tanh asin acos atan atan2 asinh acosh atanh sigmoid silu gelu softplus mish log_sigmoid_forward erf erfc erfinv
    lgamma digamma sinc special_i0 special_i0e special_i1 xlogy logit addcmul addcdiv hypot lerp copy fill
    sigmoid_backward tanh_backward silu_backward gelu_backward softplus_backward mish_backward polar real imag complex
    conj logaddexp special_log_ndtr special_ndtr special_erfcx logical_not bitwise_not bitwise_and logical_and
    logical_or isfinite isnan isinf masked_fill
    round floor ceil trunc frac remainder fmod
"""  # the last line: periodic images, whose kinks lie beyond a cutoff; DC301 and DC302 see what else they do
SMOOTH = frozenset(_SMOOTH_NAMES.split())
STEPS = {1: 1e-4, 2: 3e-4, 3: 3e-3, 4: 1e-2, 5: 3e-2}  # of the spread of the values, for a derivative of that order
FEW = {2: 0.02, 3: 0.05, 4: 0.1, 5: 0.2}  # share of the values that may lie within a step of a kink
MOST_OPS = 1000  # of one chain
MANY = 200_000  # values of one tensor, of which fewer comparisons are made


def activation_findings(record: Record, order: int, model: nn.Module, unread: dict[str, str]) -> Iterator[Finding]:
    """DC101: a derivative that the loss trains through vanishes; DC102: a derivative in the loss jumps."""
    if order < 1:
        return
    consumers, producers = record.consumers(), record.producers()
    modules = dict(model.named_modules())
    chains: dict[int, list[Op]] = {}
    done: set[tuple[int, int]] = set()
    reported: set[tuple[str, str]] = set()
    for op in record.ops:
        if not op.local or op.is_shape or op.name in SMOOTH:
            continue
        for number in dict.fromkeys(op.inputs):
            root = _root(number, producers)
            value = record.values[root]
            if not value.is_floating_point() or value.numel() == 0:
                continue
            if root not in chains:
                chains[root] = _chain(root, consumers)
            chain = chains[root]
            where, name = _place(op, modules)
            for sink in _sinks(op.out, chain, consumers, record):
                if (root, sink) in done:
                    continue
                done.add((root, sink))
                verdict = _judged(record, chain, root, sink, order)
                if verdict is None:
                    unread[where] = f"{name} could not be run again by itself; its derivatives were not judged"
                    continue
                code, numbers = verdict
                if code and (code, where) not in reported:
                    reported.add((code, where))
                    yield _finding(code, where, name, order, numbers)


def _finding(code: str, where: str, name: str, order: int, numbers: dict[str, float]) -> Finding:
    better = "silu" if order > 1 else "irelu"
    swap = f"dcnn.swap_activations(model, {better!r}); silu, tanh and softplus have all derivatives"
    if code == "DC101":
        return Finding(
            code,
            "error",
            where,
            f"The loss holds derivatives of order {order}, so its gradient runs through derivative {order + 1} of "
            f"{name}, which is zero at {1 - numbers['share']:.0%} of the values that pass through it (from order "
            f"{numbers['vanishing_order']} on): the derivative constraint trains through this layer's slope alone.",
            swap,
            {"order": order, "vanishing_order": numbers["vanishing_order"]},
        )
    return Finding(
        code,
        "warning",
        where,
        f"Derivative {numbers['jumping_order']} of {name} jumps by {numbers['jump']:.2g} of its size within the values "
        "that pass through it; so does the model's derivative, for instance the force.",
        "dcnn.swap_activations(model, 'silu')",
        {"order": order, **numbers},
    )


def _place(op: Op, modules: dict[str, nn.Module]) -> tuple[str, str]:
    """Where it is, and what it is called there: a module without children, or a call in a forward."""
    owner = modules.get(op.module)
    if op.module and owner is not None and not any(True for _ in owner.children()):
        known = from_torch(owner)
        return op.module, type(owner).__name__ if known is None else known.name
    return f"{op.module or 'model'}.forward: {op.name}()", op.name


# ---- the chain of elementwise operations around an operation ---------------------------------------------------------


def _root(number: int, producers: dict[int, Op]) -> int:
    """Back along elementwise operations of one argument, to where the chain starts."""
    while number in producers and producers[number].local and len(set(producers[number].inputs)) == 1:
        number = producers[number].inputs[0]
    return number


def _chain(root: int, consumers: dict[int, list[Op]]) -> list[Op]:
    """All elementwise operations that the root reaches without leaving them, in the order in which they ran."""
    found: dict[int, Op] = {}
    waiting = [root]
    while waiting and len(found) < MOST_OPS:
        for op in consumers.get(waiting.pop(0), []):
            if op.local and op.out not in found:
                found[op.out] = op
                waiting.append(op.out)
    return sorted(found.values(), key=lambda op: op.out)


def _sinks(start: int, chain: list[Op], consumers: dict[int, list[Op]], record: Record) -> list[int]:
    """Floating results of the chain, reached from `start`, that other operations use or that are the prediction."""
    reached = {start}
    for op in chain:
        if reached & set(op.inputs):
            reached.add(op.out)
    inside = {op.out for op in chain}

    def leaves(number: int) -> bool:
        users = consumers.get(number, [])
        other = [op for op in users if op.out not in inside and record.values[op.out].is_floating_point()]
        return bool(other) or number == record.prediction

    return [n for n in sorted(reached & inside) if record.values[n].is_floating_point() and leaves(n)]


def evaluate(record: Record, chain: list[Op], root: int, sink: int, value: Tensor) -> Tensor:
    """The value at `sink` when the root has another value and all else is as it was."""
    known: dict[int, Tensor] = {root: value}

    def put(argument: Any) -> Any:
        if isinstance(argument, Ref):
            return known.get(argument.number, record.values[argument.number])
        if isinstance(argument, (tuple, list)):
            return type(argument)(map(put, argument))
        return argument

    for op in chain:
        if op.out > sink:
            break
        args, kwargs = put(op.args), {key: put(item) for key, item in op.kwargs.items()}
        if op.writes:
            args = (args[0].clone(), *args[1:])
        out = op.function(*args, **kwargs)
        known[op.out] = out[0] if isinstance(out, (tuple, list)) else out
    return known[sink]


# ---- the judgement ---------------------------------------------------------------------------------------------------


def _judged(record: Record, chain: list[Op], root: int, sink: int, order: int) -> tuple[str, dict[str, float]] | None:
    """(code or "", numbers), or None where the chain cannot be run again."""
    z = record.values[root].detach()

    def function(value: Tensor) -> Tensor:
        with torch.no_grad():
            return evaluate(record, chain, root, sink, value)

    try:
        again = function(z)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    if again.shape != record.values[sink].shape or not torch.allclose(
        again, record.values[sink].detach(), rtol=1e-6, equal_nan=True
    ):
        return None
    scale = spread_of(z)
    others = [z.flatten()[order_].view(z.shape) for order_ in _orders(z.numel())][: 1 if z.numel() > MANY else 2]
    if len(z) >= 4:  # values of the same channel
        others.append(z.roll(1 + len(z) // 3, 0))
    size = float(again.abs().max())
    for j in range(1, min(order, 4) + 1):
        here = derivative(function, z, scale, j)
        reach = float(here.abs().max())
        floor = 1e-15 * size * 2**j / STEPS[j] ** j
        differs = max(
            float(((derivative(function, z2, scale, j) - here).abs() > 1e-5 * reach + 10 * floor).double().mean())
            for z2 in others
        )
        if reach <= 10 * floor or differs < 1e-3:
            continue
        bend = derivative(function, z, scale, j + 1).abs()
        noise = 1e-15 * size * 2 ** (j + 1) / STEPS[j + 1] ** (j + 1)
        share = float((bend > 1e-6 * reach + 10 * noise).double().mean())
        if share < FEW[j + 1]:
            return "DC101", {"vanishing_order": j + 1, "share": share}
    for j in range(1, min(order, 4) + 1) if again.shape == z.shape else ():
        jump = max(_jump(function, z, other, j) for other in others)
        if jump > 0:
            return "DC102", {"jump": jump, "jumping_order": j}
    return "", {}


def spread_of(z: Tensor) -> Tensor:
    """The standard deviation of every position over the first axis, or of all numbers where that is zero."""
    everything = z.std() if z.numel() > 1 else z.new_zeros(())
    everything = everything if everything > 0 else z.abs().mean() if z.abs().mean() > 0 else z.new_ones(())
    if z.dim() < 2 or len(z) < 4:
        return everything.expand(z.shape)
    own = z.std(0, keepdim=True)
    return torch.where(own > 0, own, everything).expand(z.shape)


def _orders(count: int) -> list[Tensor]:
    return [torch.randperm(count, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]


def derivative(function: Callable[[Tensor], Tensor], z: Tensor, scale: Tensor, n: int) -> Tensor:
    """The n-th derivative in units of `scale`, by central differences."""
    step = STEPS[n]
    total: Tensor | None = None
    for i in range(n + 1):
        part = (-1) ** i * comb(n, i) * function(z + (n / 2 - i) * step * scale)
        total = part if total is None else total + part
    assert total is not None
    return total / step**n


def _jump(function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, order: int) -> float:
    """The largest jump of derivative `order` between two values, relative to its size; 0 where it changes smoothly.

    The place where it changes most is looked at ever closer: a jump stays as large, a smooth change shrinks.
    """
    cells = 16
    low, high = low.clone(), high.clone()
    apart = (high - low).abs() > 1e-9 * (low.abs() + high.abs())
    first: Tensor | None = None
    size, largest = 0.0, low.new_zeros(())
    for _ in range(4 if order < 3 else 3):
        step = (high - low) / cells
        values = torch.stack([function(low + step * i) for i in range(cells + 1)])
        slopes = torch.diff(values, n=order, dim=0) / step.abs().clamp_min(1e-300) ** order
        change = torch.diff(slopes, dim=0).abs()
        change = torch.where(apart & change.isfinite(), change, 0.0)
        largest, where = change.max(0)
        if first is None:
            first, size = largest, float(torch.where(apart & slopes.isfinite(), slopes.abs(), 0.0).max())
        low, high = low + step * where, low + step * (where + order + 1)
    assert first is not None
    floor = 1e-15 * values.abs().max() * 2**order / (step.abs().clamp_min(1e-300)) ** order
    same = (largest > 0.3 * first) & (largest < 3 * first)  # it grows where the function itself jumps, as in rounding
    found = same & (largest > 1e-2 * size + 10 * floor)
    return float(largest[found].max() / size) if size > 0 and float(found.double().mean()) > 0.005 else 0.0
