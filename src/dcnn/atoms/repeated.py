"""Energies and forces of one molecule again and again, as in molecular dynamics: compiled once that pays."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx import GraphModule

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.errors import first_line
from dcnn.torch_internals import recorded
from dcnn.train.compiling import compiled, expected_seconds
from dcnn.train.flatten import flattened, parts_made, rebuilt

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # relative, compiled against usual
TRACE_AFTER_SECONDS = 1.0  # of usual evaluations of one shape, about what a trace takes

Function = Callable[[nn.Module, AtomsBatch], tuple[Tensor, ...]]


def _moved_only(batch: AtomsBatch, last: AtomsBatch) -> bool:
    """Whether a batch is the last one at other positions, as along a trajectory, which is quickly seen."""
    same = ("z", "system", "pair_i", "pair_j", "pair_shift", "cell", "edges", "energy", "forces", "stress")
    return all(getattr(batch, name) is getattr(last, name) for name in same)


class _Evaluated(nn.Module):
    """A function of a network and a batch as a module, so that its weights can be given."""

    def __init__(self, network: nn.Module, function: Function) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, batch: AtomsBatch) -> tuple[Tensor, ...]:
        return self.function(self.network, batch)


class Repeated:
    """``function(network, batch)`` for batches that come in a few shapes, without gradients of the weights.

    A shape is compiled when its usual evaluations have taken as long as compiling will: whatever number of them is
    still to come, that costs at most twice the shortest time. The first compiled values are compared with the usual
    ones; if they differ, or it cannot be compiled, the usual ones go on. ``scale`` multiplies the waiting time.
    """

    def __init__(self, network: nn.Module, scale: float = 1.0) -> None:
        self.network, self.scale = network, scale
        self.log = logging.getLogger("dcnn")
        self.ready: dict[Any, Callable[..., Any]] = {}
        self.spent: defaultdict[Any, float] = defaultdict(float)  # seconds of usual evaluations
        self.waiting: dict[Any, tuple[GraphModule, float]] = {}  # traced, and the seconds that compiling it will take
        self.parts: dict[Function, tuple[str, ...]] = {}
        self.failed = False
        self._last: tuple[Function, AtomsBatch, Callable[..., Any], list[Tensor], list[Tensor]] | None = None

    def __call__(self, function: Function, batch: AtomsBatch) -> tuple[Tensor, ...]:
        if self._last is not None and _moved_only(batch, self._last[1]) and function is self._last[0]:
            _, last, ready, state, tensors = self._last
            return ready(state, [batch.positions if t is last.positions else t for t in tensors])
        if function not in self.parts:
            found = function(self.network, batch)
            self.parts[function] = parts_made(batch)
            return found
        tensors, kind = flattened(batch, self.parts[function])
        key = (function, kind, tuple(t.shape for t in tensors))
        state = [*self.network.parameters(), *self.network.buffers()]
        if key in self.ready:
            self._last = function, batch, self.ready[key], state, tensors
            return self.ready[key](state, tensors)
        began = time.perf_counter()
        found = function(self.network, batch)
        self.spent[key] += time.perf_counter() - began
        if not self.failed and self.spent[key] >= self.scale * TRACE_AFTER_SECONDS:
            self._prepare(key, function, batch, (state, tensors), found)
        return found

    def _prepare(
        self, key: Any, function: Function, batch: AtomsBatch, inputs: tuple[Any, ...], expected: tuple[Tensor, ...]
    ) -> None:
        """Traces the shape if it is not yet, and compiles it if it is time."""
        try:
            if key not in self.waiting:
                traced = recorded(self._evaluation(function, batch), *inputs)
                self.waiting[key] = traced, expected_seconds(traced, inputs)
            traced, seconds = self.waiting[key]
            if self.spent[key] < self.scale * seconds:
                return
            self.ready[key] = compiled(
                traced, inputs, inputs[0], False, lambda ready: self._is_right(ready(*inputs), expected)
            )
        except Exception as error:  # no compiler, its code is wrong, or an operation that cannot be traced
            self.log.warning("compiled potential: not possible, going on without (%s)", first_line(error))
            self.failed = True

    def _is_right(self, found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> bool:
        """Whether compiled values are the usual ones."""
        pairs = zip(found, expected, strict=True)
        differences = [float((f - e).abs().max() / e.abs().max().clamp_min(1e-30)) for f, e in pairs]
        self.log.info("compiled potential: equal to %.1e", max(differences))
        return all(difference <= TOLERANCE[expected[1].dtype] for difference in differences)

    def _evaluation(self, function: Function, batch: AtomsBatch) -> Callable[..., tuple[Tensor, ...]]:
        module, parts = _Evaluated(self.network, function), self.parts[function]
        names = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]

        def evaluate(state: list[Tensor], tensors: list[Tensor]) -> tuple[Tensor, ...]:
            given = dict(zip(names, state, strict=True))
            return functional_call(module, given, (rebuilt(batch, parts, tensors),))

        return evaluate
