"""A training step as one graph: the values of all terms and the gradients of all weights.

The loss *with its gradients* is traced (make_fx), derivatives with respect to positions or coordinates included. The
trace holds no autograd any more, which alone saves a third of the time of a step of many small operations; compiled
besides, it saves two thirds, and takes a minute or two to make. (`torch.compile` of a network whose output is
differentiated twice does not work; compiled forward-mode AD gave wrong gradients without a word.)
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx import GraphModule

from dcnn.errors import first_line
from dcnn.losses import Fixed, Term, Weighting, term_values
from dcnn.torch_internals import Dropout, NormWithStatistics, recorded, recorded_for_any_size
from dcnn.train.batch_statistics import has_formula, statistics_names, written_out
from dcnn.train.compiling import compiled, expected_seconds, in_background, on_disk, pays
from dcnn.train.flatten import flattened, parts_made, rebuilt

GRAPHS = 4  # graphs that are made; batches that none of them serves are evaluated as usual
AGAIN = 2  # batches without a graph before they get one: what does not come back is not worth it
RARE = 0.1  # share of all batches below which they get none, such as the last one of an epoch
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}  # of the gradient, relative, graph against usual

Evaluation = Callable[[list[Tensor], list[Tensor], Tensor], tuple[Any, ...]]


def graph_step(
    kind: str,
    residuals: nn.Module,
    terms: Sequence[Term],
    weighting: Weighting,
    log: logging.Logger,
    after: int = AGAIN,
    left: Callable[[], float] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    background: bool = False,
) -> GraphStep | None:
    """A step of this kind for a run, or None: "eager", or no graph is possible and the log says why.

    "auto" is compiled if that pays in the seconds of the clock that are `left`, and traced if it does not or no one
    knows; with `background` another process compiles, and the steps are traced until it is done.
    """
    if kind == "eager":
        return None
    reason = None
    if type(weighting) is not Fixed:
        reason = "the weights of the terms depend on their values"
    elif any(isinstance(layer, Dropout) for layer in residuals.modules()):
        reason = "the network has dropout"
    elif any(isinstance(layer, NormWithStatistics) and not has_formula(layer) for layer in residuals.modules()):
        reason = "the network has statistics other than moving averages over a batch"
    if reason is None:
        left = left if kind == "auto" else None
        return GraphStep(residuals, terms, log, kind == "compiled", after, left, clock, background)
    log.info("%s step: not possible, because %s", kind, reason)
    return None


@dataclass(frozen=True)
class Graph:
    """A graph that was made for one batch: the sizes of its tensors, axis by axis, and if it takes other sizes, too."""

    evaluate: Evaluation
    sizes: tuple[int, ...]
    any_size: bool

    def serves(self, sizes: tuple[int, ...]) -> bool:
        """Whether it may be given tensors of these sizes.

        Axes of one size were one variable when it was traced, be it by chance, and have to be equal still; 0 and 1 were
        constants.
        """
        if not self.any_size:
            return sizes == self.sizes
        became = {0: 0, 1: 1}
        pairs = list(zip(self.sizes, sizes, strict=True))
        return all(became.setdefault(old, new) == new and (new > 1 or new == old) for old, new in pairs)


@dataclass
class Awaited:
    """A graph that another process compiles; `make` loads what it leaves, in the place of `traced`."""

    process: BaseProcess
    make: Callable[[], Evaluation]
    traced: Evaluation
    kind: Any = None  # of the batches that it is for


class GraphStep:
    """Values of the terms of a batch; the gradients of their weighted sum are left in the parameters.

    `residuals` is a module whose forward takes a batch and returns {term: residual}. All tensors of a batch are
    inputs of the graph, index tensors too, so that one graph serves all batches of the same sizes; where sizes change
    from batch to batch (crystals, several molecules), it is traced with sizes as variables. `after` batches without a
    graph one is made and evaluated both ways first: if they differ, it goes on with a traced one where it was compiled
    (without a C++ compiler, too), and without where it was traced. `left`: seconds of the clock that are left to it, by
    which it decides whether to compile, in the `background` if there is a core for it; `seconds` is what graphs have
    taken.
    """

    def __init__(
        self,
        residuals: nn.Module,
        terms: Sequence[Term],
        log: logging.Logger,
        compiled: bool = False,
        after: int = 0,
        left: Callable[[], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        background: bool = False,
    ) -> None:
        self.residuals, self.terms, self.log = residuals, {term.name: term for term in terms}, log
        self.compiled, self.after, self.left, self.clock, self.seconds = compiled, after, left, clock, 0.0
        self.trained = {name: p for name, p in residuals.named_parameters() if p.requires_grad}
        self.statistics = {name: residuals.get_buffer(name) for name in statistics_names(residuals)}
        self.graphs: dict[Any, Graph] = {}  # the newest of every kind of batch
        self.made = self.calls = 0
        self.missed: Counter[Any] = Counter()  # batches of a kind that no graph served
        self.first_missed: dict[Any, Any] = {}
        self.names: list[str] = []  # of the terms, in the order of their values
        self.parts: tuple[str, ...] = ()  # what the network asks for of the lazy parts of a batch
        self.failed = False
        self.background = background
        self.awaited: Awaited | None = None

    @property
    def name(self) -> str:
        return "compiled step" if self.compiled else "traced step"

    def __call__(self, batch: Any, step: int) -> dict[str, Tensor]:
        """{term: value}, detached, with the weights that the terms have at this step."""
        if not self.names:
            self.names, self.parts = self._first_look(batch)
        if self.awaited is not None and not self.awaited.process.is_alive():
            self._take_over()
        self.calls += 1
        tensors, kind = flattened(batch, self.parts)
        state = [*self.trained.values(), *self.residuals.buffers()]
        weights = _weights(tuple(self.terms[name].weight_at(step) for name in self.names), state[0].dtype).to(state[0])
        graph = None if self.failed else self._graph(kind, batch, state, tensors, weights)
        if graph is None or self.failed:
            values, *found = self._usual(batch)(state, tensors, weights)
        else:
            values, *found = self._by_graph(graph, batch, state, tensors, weights)
        gradients, statistics = found[: len(self.trained)], found[len(self.trained) :]
        for parameter, gradient in zip(self.trained.values(), gradients, strict=True):
            parameter.grad = _laid_out_as(parameter, gradient)
        for kept, new in zip(self.statistics.values(), statistics, strict=True):
            kept.copy_(new)
        return dict(zip(self.names, values.unbind(), strict=True))

    def _by_graph(
        self, graph: Graph, batch: Any, state: list[Tensor], tensors: list[Tensor], weights: Tensor
    ) -> tuple[Any, ...]:
        """The graph's values; a size that was a constant by chance when it was traced ends the use of graphs."""
        try:
            return graph.evaluate(state, tensors, weights)
        except RuntimeError as error:
            self.log.warning("%s: does not take this batch, going on without (%s)", self.name, first_line(error))
            self.failed = True
            return self._usual(batch)(state, tensors, weights)

    def _graph(
        self, kind: Any, batch: Any, state: list[Tensor], tensors: list[Tensor], weights: Tensor
    ) -> Graph | None:
        """The graph that serves the batch, made now if batches of its kind have gone without often enough."""
        graph = self.graphs.get(kind)
        if graph is not None and graph.serves(_sizes(tensors)):
            return graph
        if self.made == GRAPHS:
            return None
        self.first_missed.setdefault(kind, batch)
        self.missed[kind] += 1
        if self.missed[kind] <= self.after or self.missed[kind] < RARE * self.calls:
            return None
        return self._made(kind, batch, state, tensors, weights)

    def _first_look(self, batch: Any) -> tuple[list[str], tuple[str, ...]]:
        """The terms that have a residual, and what was made of the lazy parts of the first batch."""
        statistics = {name: buffer.clone() for name, buffer in self.statistics.items()}
        return list(functional_call(self.residuals, statistics, (batch,))), parts_made(batch)

    def _usual(self, batch: Any) -> Evaluation:
        """(state, tensors, weights) → values (terms,), the gradient of every trained parameter, by autograd, and the
        statistics after the batch.

        A parameter that the loss does not depend on has the gradient None, as after `backward`.
        """
        names = [*self.trained, *(name for name, _ in self.residuals.named_buffers())]

        def evaluate(state: list[Tensor], tensors: list[Tensor], weights: Tensor) -> tuple[Any, ...]:
            with torch.enable_grad():
                trained = [t.detach().requires_grad_() for t in state[: len(self.trained)]]
                given = dict(zip(names, [*trained, *state[len(trained) :]], strict=True))
                given |= {name: given[name].clone() for name in self.statistics}  # the call writes to them
                found = functional_call(self.residuals, given, (rebuilt(batch, self.parts, tensors),))
                named = term_values(self.terms.values(), found)
                values = torch.stack([named[name] for name in self.names])  # (terms,)
                gradients = torch.autograd.grad(values @ weights, trained, allow_unused=True)
            return values.detach(), *gradients, *(given[name] for name in self.statistics)

        return evaluate

    def _made(self, kind: Any, batch: Any, state: list[Tensor], tensors: list[Tensor], weights: Tensor) -> Graph | None:
        """A graph for batches like this one; of any size if the last one did not serve, or earlier ones had another."""
        earlier = self.first_missed.pop(kind)
        self.missed[kind] = 0
        self.made += 1
        others, _ = flattened(earlier, self.parts)
        any_size = kind in self.graphs or _sizes(others) != _sizes(tensors)

        def is_right(evaluate: Evaluation) -> bool:
            graph = Graph(evaluate, _sizes(tensors), any_size)
            differences = [
                _difference(evaluate(state, inputs, weights), self._usual(b)(state, inputs, weights), len(self.trained))
                for b, inputs in ((batch, tensors), (earlier, others))[: 1 + any_size]
                if graph.serves(_sizes(inputs))
            ]
            sizes, operations = "any size" if any_size else "one size", len(traced.graph.nodes)
            words = (self.name, sizes, operations, max(differences), len(differences))
            self.log.info("%s: graph for batches of %s, %d operations, gradient equal to %.1e in %d of them", *words)
            return all(difference <= TOLERANCE.get(state[0].dtype, 1e-4) for difference in differences)

        try:
            began = self.clock()
            with written_out(self.residuals):
                traced = _traced(self._usual(batch), state, tensors, weights, any_size)
            evaluate = self._ready(traced, (state, tensors, weights), any_size, is_right)
        except Exception as error:  # an operation that cannot be traced: torch has many words for it
            self.log.warning("%s: not possible, going on without (%s)", self.name, first_line(error))
            self.made = GRAPHS
            return None
        self.seconds += self.clock() - began
        graph = self.graphs[kind] = Graph(evaluate, _sizes(tensors), any_size)
        if self.awaited is not None and self.awaited.traced is evaluate:
            self.awaited.kind = kind
        if self.made == GRAPHS:
            self.log.info("%s: %d graphs are made; other batches get none", self.name, GRAPHS)
        return graph

    def _ready(
        self, traced: GraphModule, inputs: tuple[Any, ...], any_size: bool, is_right: Callable[[Evaluation], bool]
    ) -> Evaluation:
        """The graph as it will be called; without a compiler that writes right code all graphs are traced ones."""
        evaluate, make = torch.no_grad()(traced), partial(compiled, traced, inputs, inputs[0], any_size, is_right)
        if self.left is not None:
            seconds, left = expected_seconds(traced, inputs), self.left()
            self.compiled = pays(seconds, left)
            words = (seconds, left, "compiled" if self.compiled else "traced")
            self.log.info("auto step: compiling would take about %.0f s of %.0f s that are left: %s", *words)
            if self.compiled and self.background and not on_disk(traced, inputs):
                self.compiled = not self._compile_in_background(make, evaluate)
        if self.compiled:
            try:
                return make()
            except Exception as error:  # torch has many words for it, too
                self.log.warning("compiled step: not possible, going on with a traced one (%s)", first_line(error))
                self.compiled = False
        if not is_right(evaluate):
            raise RuntimeError("it differs from the usual one")
        return evaluate

    def _compile_in_background(self, make: Callable[[], Evaluation], traced: Evaluation) -> bool:
        """Whether another process compiles now; what it leaves on disk is loaded when it has ended."""
        if self.awaited is not None:
            return True  # one at a time; this kind stays traced
        process = in_background(make)
        if process is not None:
            self.awaited = Awaited(process, make, traced)
            self.log.info("auto step: another process compiles; steps are traced until it is done")
        return process is not None

    def _take_over(self) -> None:
        """Compiled steps from now on, which another process has compiled."""
        assert self.awaited is not None
        awaited, self.awaited = self.awaited, None
        began, self.compiled = self.clock(), awaited.process.exitcode == 0
        if not self.compiled:
            self.log.warning("auto step: compiling failed, going on with traced steps")
            return
        graph = self.graphs.get(awaited.kind)
        if graph is None or graph.evaluate is not awaited.traced:
            return  # batches had other sizes, and got a graph for any size
        try:
            self.graphs[awaited.kind] = replace(graph, evaluate=awaited.make())
        except Exception as error:
            self.log.warning("compiled step: not possible, going on with a traced one (%s)", first_line(error))
            self.compiled = False
        self.seconds += self.clock() - began

    def close(self) -> None:
        """Ends the process that compiles, if one does."""
        if self.awaited is not None:
            self.awaited.process.kill()
            self.awaited.process.join()
            self.awaited = None


def _traced(
    evaluate: Evaluation, state: list[Tensor], tensors: list[Tensor], weights: Tensor, any_size: bool
) -> GraphModule:
    """The operations of an evaluation; with `any_size` the sizes of `tensors` are variables."""
    if any_size:
        traced = recorded_for_any_size(evaluate, [*state, weights], state, tensors, weights)
    else:
        traced = recorded(evaluate, state, tensors, weights)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


@lru_cache(maxsize=4)
def _weights(values: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=dtype, device="cpu")


def _sizes(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(size for tensor in tensors for size in tensor.shape)


def _laid_out_as(parameter: Tensor, gradient: Tensor | None) -> Tensor | None:
    """The gradient in the order of memory of its parameter, as `backward` leaves it: fused optimisers rely on it."""
    if gradient is None or gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _difference(found: Sequence[Any], expected: Sequence[Any], trained: int) -> float:
    """The largest of the relative differences of the values, of the gradient as a whole, and of every statistic.

    Both are values, `trained` gradients and statistics. A gradient below a thousandth of the values is compared with
    that: of a dead network it is rounding error.
    """
    gradient, right_gradient = (
        torch.cat([g.flatten() for g in some[1 : 1 + trained] if g is not None]) for some in (found, expected)
    )
    least = 1e-3 * expected[0].norm()
    pairs = [(found[0], expected[0]), *zip(found[1 + trained :], expected[1 + trained :], strict=True)]
    return max(
        float((gradient - right_gradient).norm() / right_gradient.norm().clamp_min(least.clamp_min(1e-33))),
        *(float((new - right).double().norm() / right.double().norm().clamp_min(1e-30)) for new, right in pairs),
    )
