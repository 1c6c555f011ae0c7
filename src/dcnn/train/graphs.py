"""A training step as one graph: the values of all terms and the gradients of all weights.

The loss *with its gradients* is traced (make_fx), derivatives with respect to positions or coordinates included. The
trace holds no autograd any more, which alone saves a third of the time of a step of many small operations; compiled
besides, it saves two thirds, and takes a minute or two to make. (`torch.compile` of a network whose output is
differentiated twice does not work; compiled forward-mode AD gave wrong gradients without a word.)
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from dcnn.atoms.structures import Edges
from dcnn.losses import Fixed, Term, Weighting, term_values

GRAPHS = 4  # shapes of batches that get a graph; further ones are evaluated as usual
AGAIN = 2  # batches of a shape before it gets one: a shape that never comes back is not worth it
REMEMBERED = 1000  # shapes that are counted; crystals have no end of them
COMPILED_PAYS_MINUTES = 5.0  # the shortest run for which "auto" is compiled
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}  # of the gradient, relative, graph against usual
_TOPOLOGY = ("center", "neighbour", "pair", "degree", "neighbourhoods", "triplets")

Evaluation = Callable[[list[Tensor], list[Tensor], Tensor], tuple[Any, ...]]


def resolved(kind: str, minutes: float | None) -> str:
    """What "auto" is for a run of so many minutes (None: unknown): compiled if that pays, traced otherwise."""
    if kind != "auto":
        return kind
    return "compiled" if minutes is not None and minutes >= COMPILED_PAYS_MINUTES else "traced"


def graph_step(
    kind: str,
    residuals: nn.Module,
    terms: Sequence[Term],
    weighting: Weighting,
    processes: int,
    log: logging.Logger,
    after: int = AGAIN,
) -> GraphStep | None:
    """A step of this kind for a run, or None: "eager", or no graph is possible and the log says why."""
    if kind == "eager":
        return None
    reason = None
    if processes > 1:
        reason = "gradients are exchanged between several processes"
    elif type(weighting) is not Fixed:
        reason = "the weights of the terms depend on their values"
    elif any(isinstance(module, _NormBase | _DropoutNd) for module in residuals.modules()):
        reason = "the network has batch statistics or dropout"
    if reason is None:
        return GraphStep(residuals, terms, log, compiled=kind == "compiled", after=after)
    log.info("%s step: not possible, because %s", kind, reason)
    return None


class GraphStep:
    """Values of the terms of a batch; the gradients of their weighted sum are left in the parameters.

    `residuals` is a module whose forward takes a batch and returns {term: residual}. All tensors of a batch are
    inputs of the graph, index tensors too, so that one graph serves all batches of the same shapes. `after` batches of
    a shape it gets one, which is evaluated both ways first: if they differ, all goes on without graphs; without a C++
    compiler it goes on with traced ones.
    """

    def __init__(
        self,
        residuals: nn.Module,
        terms: Sequence[Term],
        log: logging.Logger,
        compiled: bool = False,
        after: int = 0,
    ) -> None:
        self.residuals, self.terms, self.log = residuals, {term.name: term for term in terms}, log
        self.compiled, self.after = compiled, after
        self.trained = {name: p for name, p in residuals.named_parameters() if p.requires_grad}
        self.graphs: dict[Any, Evaluation] = {}
        self.seen: Counter[Any] = Counter()
        self.names: list[str] = []  # of the terms, in the order of their values
        self.topology: tuple[str, ...] = ()  # of a batch of atoms: what the network asks for
        self.failed = False

    @property
    def name(self) -> str:
        return "compiled step" if self.compiled else "traced step"

    def __call__(self, batch: Any, step: int) -> dict[str, Tensor]:
        """{term: value}, detached, with the weights that the terms have at this step."""
        if not self.names:
            self.names, self.topology = self._first_look(batch)
        tensors, key = flattened(batch, self.topology)
        state = [*self.trained.values(), *self.residuals.buffers()]
        weights = torch.tensor([self.terms[name].weight_at(step) for name in self.names]).to(state[0])
        if key not in self.graphs and len(self.graphs) < GRAPHS and not self.failed and self.seen[key] >= self.after:
            self.graphs[key] = self._graph(batch, state, tensors, weights)
            if len(self.graphs) == GRAPHS:
                self.log.info("%s: %d shapes of batches have a graph; further ones get none", self.name, GRAPHS)
        if len(self.seen) == REMEMBERED:
            self.seen.clear()
        self.seen[key] += 1
        evaluate = self._usual(batch) if self.failed or key not in self.graphs else self.graphs[key]
        values, *gradients = evaluate(state, tensors, weights)
        for parameter, gradient in zip(self.trained.values(), gradients, strict=True):
            parameter.grad = _laid_out_as(parameter, gradient)
        return dict(zip(self.names, values.unbind(), strict=True))

    def _first_look(self, batch: Any) -> tuple[list[str], tuple[str, ...]]:
        """The terms that have a residual, and the edges and angles that are made for the first batch."""
        names = list(self.residuals(batch))
        edges = getattr(batch, "edges", None)
        return names, tuple(name for name in _TOPOLOGY if name in vars(edges)) if isinstance(edges, Edges) else ()

    def _usual(self, batch: Any) -> Evaluation:
        """(state, tensors, weights) → values (terms,) and the gradient of every trained parameter, by autograd.

        A parameter that the loss does not depend on has the gradient None, as after `backward`.
        """
        names = [*self.trained, *(name for name, _ in self.residuals.named_buffers())]

        def evaluate(state: list[Tensor], tensors: list[Tensor], weights: Tensor) -> tuple[Any, ...]:
            with torch.enable_grad():
                trained = [t.detach().requires_grad_() for t in state[: len(self.trained)]]
                given = dict(zip(names, [*trained, *state[len(trained) :]], strict=True))
                found = functional_call(self.residuals, given, (rebuilt(batch, self.topology, tensors),))
                named = term_values(self.terms.values(), found)
                values = torch.stack([named[name] for name in self.names])  # (terms,)
                gradients = torch.autograd.grad(values @ weights, trained, allow_unused=True)
            return values.detach(), *gradients

        return evaluate

    def _graph(self, batch: Any, state: list[Tensor], tensors: list[Tensor], weights: Tensor) -> Evaluation:
        usual, inputs = self._usual(batch), (state, tensors, weights)
        try:
            traced = make_fx(usual)(*inputs)
            evaluate, found = self._ready(traced, inputs)
        except RuntimeError as error:  # an operation that cannot be traced
            self.log.warning("%s: not possible, going on without (%s)", self.name, _first_line(error))
            self.failed = True
            return usual
        difference = _difference(found, usual(*inputs))
        operations = len(traced.graph.nodes)
        self.log.info("%s: graph of %d operations, gradient equal to %.1e", self.name, operations, difference)
        if not difference <= TOLERANCE.get(state[0].dtype, 1e-4):
            self.log.warning("%s: it differs from the usual one, going on without it", self.name)
            self.failed = True
        return evaluate

    def _ready(self, traced: GraphModule, inputs: tuple[Any, ...]) -> tuple[Evaluation, tuple[Any, ...]]:
        """The graph as it will be called, and what it finds; without a compiler all graphs are traced ones."""
        evaluate: Evaluation
        if self.compiled:
            try:
                evaluate = torch.no_grad()(torch.compile(_with_separate_sums(traced), dynamic=False))
                return evaluate, evaluate(*inputs)
            except RuntimeError as error:
                self.log.warning("compiled step: not possible, going on with a traced one (%s)", _first_line(error))
                self.compiled = False
        evaluate = torch.no_grad()(traced)
        return evaluate, evaluate(*inputs)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _laid_out_as(parameter: Tensor, gradient: Tensor | None) -> Tensor | None:
    """The gradient in the order of memory of its parameter, as `backward` leaves it: fused optimisers rely on it."""
    if gradient is None or gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _with_separate_sums(traced: GraphModule) -> GraphModule:
    """b + xw as xw − (−b).

    Sums with a matrix product are compiled to calls of addmm, which on the CPU copies b into the result first; a
    difference is fused with what follows.
    """
    aten = torch.ops.aten
    for node in traced.graph.find_nodes(op="call_function", target=aten.addmm.default):
        b, x, w = node.args
        with traced.graph.inserting_before(node):
            product = traced.graph.call_function(aten.mm.default, (x, w))
            node.replace_all_uses_with(traced.graph.call_function(aten.add.Tensor, (product, b)))
        traced.graph.erase_node(node)
    for node in traced.graph.find_nodes(op="call_function", target=aten.add.Tensor):
        products = [a for a in node.args if isinstance(a, Node) and a.target is aten.mm.default]
        if products and all(isinstance(a, Node) for a in node.args):
            (other,) = [a for a in node.args if a is not products[0]] or [products[0]]
            with traced.graph.inserting_before(node):
                negative = traced.graph.call_function(aten.neg.default, (other,))
                node.replace_all_uses_with(traced.graph.call_function(aten.sub.Tensor, (products[0], negative)))
            traced.graph.erase_node(node)
    traced.recompile()
    return traced


def _difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest of the relative differences of the values and of the gradient as a whole.

    A gradient below a thousandth of the values is compared with that: of a dead network it is rounding error.
    """
    (values, *gradients), (right, *expected_gradients) = found, expected
    gradient, right_gradient = (
        torch.cat([g.flatten() for g in some if g is not None]) for some in (gradients, expected_gradients)
    )
    size = right.norm().clamp_min(1e-30)
    return max(
        float((values - right).norm() / size),
        float((gradient - right_gradient).norm() / right_gradient.norm().clamp_min(1e-3 * size)),
    )


def flattened(batch: Any, topology: Sequence[str] = ()) -> tuple[list[Tensor], tuple[Any, ...]]:
    """All tensors of a batch, and a key that is the same for batches that differ in the values of these alone."""
    tensors: list[Tensor] = []
    others: list[Any] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    _mapped(batch, collect, others.append, topology)
    return tensors, (*((tuple(t.shape), t.dtype, t.device) for t in tensors), *others)


def rebuilt(batch: Any, topology: Sequence[str], tensors: Sequence[Tensor]) -> Any:
    """The batch with these tensors in the places of its own."""
    supply = iter(tensors)
    return _mapped(batch, lambda _: next(supply), lambda _: None, topology)


def _mapped(value: Any, swap: Callable[[Tensor], Tensor], note: Callable[[Any], None], topology: Sequence[str]) -> Any:
    """`value` with every tensor swapped; `note` is told of everything else that it holds."""

    def inner(part: Any) -> Any:
        return _mapped(part, swap, note, topology)

    if isinstance(value, Tensor):
        return swap(value)
    if isinstance(value, Edges):  # makes its parts when asked: those that the network needs are inputs
        twin = copy.copy(value)
        vars(twin).update({name: inner(getattr(value, name)) for name in ("_i", "_j", *topology)})
        return twin
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{entry.name: inner(getattr(value, entry.name)) for entry in fields(value)})
    if isinstance(value, tuple):
        parts = [inner(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, Mapping):
        return {key: inner(part) for key, part in value.items()}
    note(repr(value) if isinstance(value, bool | int | float | str | slice | None) else type(value))
    return value
