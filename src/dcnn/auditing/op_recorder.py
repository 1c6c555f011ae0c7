"""The operations that really run in a forward pass, and the values that pass through them.

A `TorchDispatchMode` sees every operation of torch below autograd: modules, functions, methods, TorchScript and
exported graphs alike. What depends on the differentiated input is followed from operation to operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.auditing.measured_copy import every_module
from dcnn.torch_internals import TorchDispatchMode

_POINTWISE = {
    "copysign",
    "_prelu_kernel",
    "hardswish",
    "rrelu_with_noise",
    "log_sigmoid_forward",
}  # torch has no such tag for them
_SHAPE_NAMES = """
    view _unsafe_view reshape unsqueeze squeeze expand permute transpose t alias detach clone _to_copy contiguous
    lift_fresh
"""
_SHAPE = frozenset(_SHAPE_NAMES.split())
_MAKING = {f"{kind}_like" for kind in ("ones", "zeros", "empty", "full", "rand", "randn")} | {
    f"new_{kind}" for kind in ("ones", "zeros", "empty", "full", "empty_strided")
}  # they take nothing but a shape from their argument
_REDUCING = frozenset(("scatter_reduce", "segment_reduce", "index_reduce"))
_SELECTING_NAMES = """
    max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d max min amax amin aminmax
    sort topk kthvalue median cummax cummin
"""
_SELECTING = frozenset(_SELECTING_NAMES.split())


@cache
def _pointwise(name: str) -> bool:
    """Torch's tag, of any variant of the operation: not all that write in place have it."""
    packets = [getattr(torch.ops.aten, n) for n in {name, name.rstrip("_")} if hasattr(torch.ops.aten, n)]
    tagged = (torch.Tag.pointwise in getattr(packet, o).tags for packet in packets for o in packet.overloads())
    return name in _POINTWISE or any(tagged)


@dataclass(frozen=True)
class Ref:
    """An argument that depends on the input: number of the value."""

    number: int


@dataclass
class Op:
    """One operation: arguments with :class:`Ref` for what depends on the input, and the value that it makes."""

    function: Any
    args: Any
    kwargs: Any
    inputs: list[int]
    out: int
    module: str
    writes: bool
    call: int  # the how-manieth call that depends on the input

    @property
    def name(self) -> str:
        base: str = self.function._schema.name.split("::")[1]
        return base.strip("_") if self.writes or base in _POINTWISE else base

    @property
    def is_shape(self) -> bool:
        return self.name in _SHAPE

    @property
    def local(self) -> bool:
        """Every number of the result depends on one number of each argument."""
        return self.function.namespace == "aten" and (self.is_shape or _pointwise(self.function._schema.name[6:]))

    @property
    def selecting(self) -> bool:
        if self.name in _REDUCING:
            words = [a for a in (*self.args, *self.kwargs.values()) if isinstance(a, str)]
            return any(word in ("amax", "amin", "max", "min") for word in words)
        return self.name in _SELECTING


@dataclass
class Record:
    """What ran: operations that depend on the input, outputs of layers by name, parameters that were used."""

    values: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    layers: dict[str, tuple[Tensor, int | None]] = field(default_factory=dict)
    norms: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    prediction: int | None = None

    def consumers(self) -> dict[int, list[Op]]:
        found: dict[int, list[Op]] = {}
        for op in self.ops:
            for number in op.inputs:
                found.setdefault(number, []).append(op)
        return found

    def producers(self) -> dict[int, Op]:
        return {op.out: op for op in self.ops}


_NORM_OPS = {"native_layer_norm": "layer", "native_group_norm": "group", "_fused_rms_norm": "rms"}


class OpRecorder(TorchDispatchMode):
    """Records while it is active; `nudge` changes the result of one operation, to see whether it matters."""

    def __init__(self, model: nn.Module, x: Tensor, nudge: int | None = None) -> None:
        super().__init__()
        self.record = Record()
        self._nudge, self._count = nudge, 0
        self._number: dict[int, tuple[int, int]] = {}  # id of a tensor: its value, the version it had
        self._mutated: set[int] = set()  # storages that something depending on the input was written to
        self._alive: list[Any] = []
        self._weights: dict[int, str] = {}
        for name, weight in model.named_parameters():
            self._weights[id(weight)] = name
        self._alive.append([weight for _, weight in model.named_parameters()])
        self.module: list[str] = [""]
        self._add(x, False)

    def _add(self, tensor: Tensor, written: bool) -> int:
        self.record.values.append(tensor)
        number = len(self.record.values) - 1
        self._number[id(tensor)] = (number, tensor._version + written)
        return number

    def _find(self, tensor: Tensor) -> int | None:
        """The number of a tensor's value, if it depends on the input."""
        known = self._number.get(id(tensor))
        if known is not None and tensor._version <= known[1]:
            return known[0]
        if known is not None or _storage(tensor) in self._mutated:
            return self._add(tensor, False)  # written to through another view: a value of its own
        return None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        written = [
            a for a, s in zip(args, schema.arguments, strict=False)
            if isinstance(a, Tensor) and s.alias_info is not None and s.alias_info.is_write
        ]  # fmt: skip
        inputs: list[int] = []
        weights: list[str] = []
        has_other = False

        def seen(value: Any) -> Any:
            nonlocal has_other
            if isinstance(value, Tensor):
                number = self._find(value)
                if number is not None:
                    inputs.append(number)
                    if any(value is w for w in written):
                        self.record.values[number] = value.clone()
                    return Ref(number)
                if id(value) in self._weights:
                    weights.append(self._weights[id(value)])
                elif value.is_floating_point():
                    has_other = True
                return value.clone() if any(value is w for w in written) else value
            if isinstance(value, (tuple, list)):
                return type(value)(map(seen, value))
            return value

        kept_args = seen(tuple(args))
        kept_kwargs = {key: seen(value) for key, value in kwargs.items()}
        out = func(*args, **kwargs)
        self._count += bool(inputs)
        if inputs and self._count == self._nudge:
            first = out[0] if isinstance(out, (tuple, list)) else out
            first.add_(1e-3 * (first.abs().mean() + 1e-3))
        self._note(func, kept_args, kept_kwargs, inputs, weights, has_other, out, bool(written))
        return out

    def _note(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        inputs: list[int],
        weights: list[str],
        has_other: bool,
        out: Any,
        writes: bool,
    ) -> None:
        record = self.record
        record.used.update(weights)
        first = out[0] if isinstance(out, (tuple, list)) and out else out
        raw = func._schema.name.split("::")[1]
        if "batch_norm" in raw and isinstance(first, Tensor):
            record.norms.setdefault(self.module[-1], "instance" if first.shape[:1] == (1,) else "batch")
        elif raw in _NORM_OPS:
            record.norms.setdefault(self.module[-1], _NORM_OPS[raw])
        if weights and not inputs and not has_other and raw in _SHAPE and isinstance(out, Tensor):
            self._weights[id(out)] = weights[0]  # a view of a weight
            self._alive.append(out)
        matrix = [name for name in weights if isinstance(first, Tensor) and first.dim() >= 1]
        if not inputs or raw in _MAKING:
            if matrix and has_other and raw not in _SHAPE and _is_layer(args, self._weights):
                self._layer(matrix, first, None)
            return
        if func.namespace not in ("aten", "prims", "prim"):
            record.foreign.add(f"{func.namespace}::{raw}")
        for value in out if isinstance(out, (tuple, list)) else [out]:
            if not isinstance(value, Tensor):
                continue
            number = self._add(value, writes)
            record.ops.append(Op(func, args, kwargs, inputs, number, self.module[-1], writes, self._count))
            if writes:
                self._mutated.add(_storage(value))
            if value is first and matrix and _is_layer(args, self._weights):
                self._layer(matrix, value, number)

    def _layer(self, names: list[str], value: Tensor, number: int | None) -> None:
        best = next((n for n in names if not n.endswith("bias")), names[0])
        owner = best.rpartition(".")[0] or best
        calls = sum(1 for key in self.record.layers if key.split("#")[0] == owner)
        self.record.layers[owner if calls == 0 else f"{owner}#{calls + 1}"] = (value, number)


def _is_layer(args: Any, weights: dict[int, str]) -> bool:
    """Is one of the arguments a weight with two or more axes?"""
    return any(isinstance(a, Tensor) and a.dim() >= 2 and id(a) in weights for a in args)


def _storage(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # sparse tensors and wrappers have none
        return -1


@contextmanager
def _named(model: nn.Module, recorder: OpRecorder) -> Iterator[None]:
    """Keeps `recorder.module` at the name of the module that runs; TorchScript modules take no hooks."""
    handles = []

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: recorder.module.append(name)

    def leave(*_: Any) -> None:
        recorder.module.pop()

    for name, module in every_module(model):
        if not isinstance(module, torch.jit.ScriptModule):
            handles.append(module.register_forward_pre_hook(enter(name), prepend=True))
            handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def recorded(
    model: nn.Module, predict: Callable[[nn.Module, Tensor], Tensor], x: Tensor, nudge: int | None = None
) -> tuple[Record, Tensor]:
    """The record of one forward pass, and its prediction."""
    x = x.detach().clone().requires_grad_()  # so that no fused path for inference is taken
    recorder = OpRecorder(model, x, nudge)
    with torch.enable_grad(), _named(model, recorder), recorder:
        y = predict(model, x)
    recorder.record.prediction = recorder._find(y)
    return recorder.record, y.detach()
