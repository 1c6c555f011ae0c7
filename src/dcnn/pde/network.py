"""The network of a PDE: embedded coordinates, a multilayer perceptron, fields in their own units.

`forward` maps points (N, coordinates) to fields (N, fields). It is written with operations that a Jet knows, so
that all partial derivatives travel through it in one stacked pass. What does not depend on the weights (embedded
points, hard constraints and the derivatives of both) is computed once per set of points, in :meth:`PdeNetwork.at`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from dcnn import activations
from dcnn.activations.init import init_
from dcnn.derivatives import Jet, gradient, partials
from dcnn.errors import InputError, unknown
from dcnn.pde.embedding import CoordinateEmbedding
from dcnn.pde.problem import Problem

INITIALISATIONS = ("glorot", "he", "moments")


@dataclass(frozen=True)
class Located:
    """Points with all that the network needs there and that its weights do not change.

    `features` are the embedded points with their derivatives; `lift` and `factor` those of hard constraints.
    Networks with batch statistics have none of them and are differentiated by nested autograd.
    """

    points: Tensor  # (N, coordinates)
    wanted: tuple[str, ...]
    features: Jet | None = None
    lift: Jet | None = None
    factor: Jet | None = None

    def to(self, device: Any) -> Located:
        if self.points.device == torch.device(device):
            return self
        features, lift, factor = (_moved(jet, device) for jet in (self.features, self.lift, self.factor))
        return Located(self.points.to(device), self.wanted, features, lift, factor)


class Adaptive(nn.Module):
    """σ(a·z) with a trained slope a, one a layer, that starts at 1 (Jagtap et al. 2020)."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation
        self.slope = nn.Parameter(torch.ones(()))

    def forward(self, z: Tensor) -> Tensor:
        return self.activation(z * self.slope)


class PdeNetwork(nn.Module):
    """u(x) = offset + unit · W h(e(x)), or lift(x) + factor(x) · unit · W h(e(x)) with hard constraints.

    e is the embedding of the coordinates, followed by the problem's own `features` if asked for; h are the hidden
    layers, h ← σ(W h + b), `depth` times, with `residual` h ← h + σ(W h + b) from the second layer on. `alternate` is
    the activation of every second layer. `batch_norm` normalizes before each activation. With `scale_fields` offset
    and unit are those of the problem, otherwise 0 and 1. The trained parameters of an inverse problem are parameters
    of the network.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        width: int = 40,
        depth: int = 6,
        activation: str | nn.Module = "tanh",
        alternate: str | nn.Module | None = None,
        initialisation: str = "glorot",
        batch_norm: bool = False,
        modes: int = 0,
        random_features: int = 0,
        random_features_scale: float = 1.0,
        residual: bool = False,
        adaptive: bool = False,
        scale_inputs: bool = False,
        transient: float | None = None,
        scale_fields: bool = False,
        features: bool = False,
        hard: bool = False,
    ) -> None:
        super().__init__()
        self.problem, self.residual, self.batch_norm = problem, residual, batch_norm
        self.unknowns = problem.unknowns
        self.embedding = CoordinateEmbedding(
            problem, modes, random_features, random_features_scale, scale=scale_inputs, transient=transient
        )
        self.features = problem.features() if features else {}
        if features and not self.features:
            raise InputError(f"{problem.where}: offers no features; leave out network.features")
        widths = [self.embedding.width + len(self.features), *[width] * depth]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(depth if batch_norm else 0))
        names = [activation if alternate is None or i % 2 == 0 else alternate for i in range(depth)]
        found = [activations.get(name) for name in names]
        self.activations = nn.ModuleList(Adaptive(f) if adaptive else f for f in found)
        self.head = nn.Linear(width, len(problem.fields))

        self.hard = problem.hard_constraints() if hard else {}
        if hard and not self.hard:
            raise InputError(f"{problem.where}: states no hard constraints; leave out network.hard")
        scales = problem.scales() if scale_fields else {}
        scaled = [scales.get(field, (0.0, 1.0)) for field in problem.fields]
        # A hard constraint brings its own offset.
        offset = [0.0 if field in self.hard else o for field, (o, _) in zip(problem.fields, scaled, strict=True)]
        self.offset: Tensor
        self.unit: Tensor
        self.register_buffer("offset", torch.tensor(offset))
        self.register_buffer("unit", torch.tensor([unit for _, unit in scaled]))
        self._initialise(initialisation)

    def _initialise(self, kind: str) -> None:
        if kind not in INITIALISATIONS:
            raise unknown("initialisation", kind, INITIALISATIONS)
        if kind == "moments":
            sample = self.problem.stretch(torch.rand(1024, len(self.problem.coordinates)))
            init_(self, sample, last=0.1)
            return
        draw = nn.init.xavier_normal_ if kind == "glorot" else nn.init.kaiming_normal_
        for layer in (*self.layers, self.head):
            assert isinstance(layer, nn.Linear)
            draw(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Fields (N, fields) at the points x (N, coordinates)."""
        embedded = self.embedding(x)
        if not (self.hard or self.features):
            return self.hidden(embedded)
        extra, lift, factor = self.split(self.known(x))
        fields = self.hidden(torch.cat([embedded, extra], dim=1))
        return lift + factor * fields

    def hidden(self, features: Any) -> Any:
        """The fields (N, fields), before hard constraints, from embedded points (N, features)."""
        h = features
        for i, (layer, activation) in enumerate(zip(self.layers, self.activations, strict=True)):
            z = layer(h)  # (N, width)
            if self.batch_norm:
                z = self.norms[i](z)
            h = h + activation(z) if self.residual and i else activation(z)
        return self.head(h) * self.unit + self.offset  # (N, fields)

    def known(self, x: Tensor) -> Tensor:
        """(N, features + 2 fields): what the problem knows: features, lifts and factors (0 and 1 if not hard)."""
        return self._known(x, ("",))[""]

    def _known(self, x: Tensor, letters: Sequence[str]) -> dict[str, Tensor]:
        """Derivatives of :meth:`known`; a function that offers `partials` of its own is asked for them."""
        names = self.problem.coordinates
        found: dict[Any, dict[str, Tensor]] = {}  # a lift may be a feature, too

        def derivatives(function: Callable[..., Any], what: str) -> dict[str, Tensor]:
            def column(x: Tensor) -> Tensor:
                named = dict(zip(names, x.unbind(1), strict=True))
                value = self.problem.call(function, named, what)
                return torch.as_tensor(value).to(x).expand(x.shape[0])[:, None] + 0 * x[:, :1]  # (N, 1); constants, too

            if list(letters) == [""]:
                return {"": column(x)[:, 0]}
            if hasattr(function, "partials"):
                offered: dict[str, Tensor] = function.partials(*x.unbind(1)[len(self.problem.ranges) :], letters)
                return offered
            return {word: value[:, 0].detach() for word, value in partials(column, x, letters, names, "nested").items()}

        columns: list[dict[str, Tensor]] = []
        for function, what, otherwise in self._known_functions():
            if function is None:
                columns.append({word: torch.full_like(x[:, 0], 0.0 if word else otherwise) for word in letters})
                continue
            if function not in found:
                found[function] = derivatives(function, what)
            columns.append(found[function])
        return {word: torch.stack([column[word] for column in columns], dim=1) for word in letters}

    def _known_functions(self) -> list[tuple[Callable[..., Any] | None, str, float]]:
        """(function, its description, the value without one) of every column of :meth:`known`."""
        constraints = [(field, self.hard.get(field)) for field in self.problem.fields]
        return [
            *((function, f"feature {name}", 0.0) for name, function in self.features.items()),
            *((hard.lift if hard else None, f"lift of {field}", 0.0) for field, hard in constraints),
            *((hard.factor if hard else None, f"factor of {field}", 1.0) for field, hard in constraints),
        ]

    def split(self, known: Tensor) -> tuple[Tensor, ...]:
        """Features, lifts and factors of the last axis."""
        return known.split([len(self.features), len(self.problem.fields), len(self.problem.fields)], dim=-1)

    def at(self, points: Tensor, wanted: Sequence[str]) -> Located:
        """The points prepared for :meth:`partials` with these derivatives."""
        wanted = tuple(dict.fromkeys(("", *wanted)))
        if self.batch_norm:
            return Located(points, wanted)
        names = self.problem.coordinates
        indices = {letters: tuple(letters.count(c) for c in names) for letters in wanted}
        start = Jet.coordinates(points, indices.values())
        with torch.no_grad():
            embedded: Any = self.embedding(start)
        if not (self.hard or self.features):
            return Located(points, wanted, embedded)
        letters = ["".join(c * n for c, n in zip(names, alpha, strict=True)) for alpha in start.closed]
        found = self._known(points, letters)
        rows = torch.stack([found[word] for word in letters])  # (terms, N, features + 2 fields)
        extra, lift, factor = (Jet(part.contiguous(), start.closed, start.closed) for part in self.split(rows))
        both: list[Any] = [embedded, extra]
        inputs: Any = torch.cat(both, dim=1)
        return Located(points, wanted, inputs, lift, factor) if self.hard else Located(points, wanted, inputs)

    def partials(self, located: Located, taylor: bool = False) -> dict[str, Tensor]:
        """Every wanted derivative (N, fields) at prepared points; with `taylor` never by a reverse pass."""
        names = self.problem.coordinates
        if located.features is None:
            return partials(self, located.points, located.wanted, names, mode="nested")
        orders, slopes = map(len, located.wanted), len(located.features.terms) - 1
        reverse = (
            not taylor and max(orders) < 2 and len(self.problem.fields) <= slopes
        )  # a pass a field, instead of one a coordinate
        fields = self._by_reverse(located.features) if reverse else self.hidden(located.features)
        if located.lift is not None and located.factor is not None:
            fields = located.lift + located.factor * fields
        return {w: fields.term(tuple(w.count(c) for c in names)) for w in located.wanted}

    def _by_reverse(self, features: Jet) -> Jet:
        """The fields and their first derivatives: one reverse pass a field, and the chain rule onto the embedding."""
        training = torch.is_grad_enabled()
        with torch.enable_grad():
            inputs = features.rows[0].detach().requires_grad_()  # (N, features)
            values = self.hidden(inputs)  # (N, fields)
            kept = training or values.shape[1] > 1  # the next field's pass runs through the same graph
            columns = [gradient(column, inputs, create_graph=kept) for column in values.unbind(1)]
        slopes = torch.stack(columns, dim=1)  # (N, fields, features)
        rows = [values if training else values.detach()]
        rows += [(slopes * row[:, None]).sum(2) for row in features.rows[1:]]  # (N, fields)
        return Jet(torch.stack(rows), features.terms, features.closed)


def _moved(jet: Jet | None, device: Any) -> Jet | None:
    return None if jet is None else Jet(jet.rows.to(device), jet.terms, jet.closed)
