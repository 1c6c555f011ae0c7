"""A PDE as a training task: equations and conditions as named terms on points, judged on points never trained on."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.auditing import Audit, Finding, is_constant
from dcnn.auditing import audit as run_audit
from dcnn.losses import Term, Weighting, term_values
from dcnn.pde.ansatz import check_ansatz
from dcnn.pde.config import PdeConfig
from dcnn.pde.file_solution import solution_in_file
from dcnn.pde.intervals import half_widths
from dcnn.pde.jacobian import linearise
from dcnn.pde.network import PdeNetwork
from dcnn.pde.points import PointGroup, Points, draw, gather
from dcnn.pde.problem import Collocation, Problem
from dcnn.pde.sampling import generator, where_large
from dcnn.pde.solution import Solution
from dcnn.pde.solution_errors import errors_over
from dcnn.pde.term_scales import term_units
from dcnn.pde.windows import Windows
from dcnn.train.run import Run
from dcnn.train.step import term_losses

_log = logging.getLogger("dcnn.pde")
_TRAIN, _FRESH, _ADAPTIVE, _WATCHED = range(4)  # streams of random numbers
AUDITED = 256  # points that an audit runs the network on
LEARNT_BY_HEART, MOST_GROWTH = 10, 8  # the loss on fresh points over that of training; the number of points
CHUNKS = 32  # slices of time whose residuals causal weighting compares


class PdeTask:
    """Minimises the residuals of `problem` over the weights of `network`.

    terms: one for each equation and condition; those of weight 0 are not computed. resample_every: steps on one set
    of points (None: the same points always). adaptive: new points are drawn where the residual is large. grow: more
    points when those of training are learnt by heart. causal: ε of Wang et al. (2022): the residual at time t counts
    by exp(−ε Σ of the losses before t). transient: points are spread evenly in log(1 + (t − t₀)/transient). truth: the
    problem that the result is judged by, if `problem` is a regularised version of it. reference: the solution to
    compare with, if not that of the problem's own solver.
    """

    monitor = "loss"

    def __init__(
        self,
        problem: Problem,
        network: PdeNetwork | Windows,
        terms: tuple[Term, ...],
        weighting: Weighting,
        *,
        collocation: Collocation,
        embedded: bool = False,
        resample_every: int | None = None,
        adaptive: bool = False,
        grow: bool = False,
        causal: float | None = None,
        transient: float | None = None,
        steps_per_epoch: int = 100,
        seed: int = 0,
        truth: Problem | None = None,
        reference: Solution | None = None,
    ) -> None:
        self.problem, self.terms, self.weighting = problem, terms, weighting
        self.config: PdeConfig | None = None  # that the task was built from, with nothing left open
        self.network: nn.Module = network
        self.truth = truth or problem
        self._given = reference
        self._settled: tuple[dict[str, Any], Solution | None] | None = None
        problem.check_posed()
        self.collocation, self.seed, self.steps_per_epoch = collocation, seed, steps_per_epoch
        self.resample_every, self.adaptive, self.causal = resample_every, adaptive, causal
        self.grow, self.grown = grow, 1
        self.transient = transient
        self.active = {term.name for term in terms if term.weight != 0}
        exact = bool(network.hard) and not isinstance(network, Windows)  # later windows start anew
        begins = [hard.begin for hard in network.hard.values() if exact and hard.begin is not None]
        self.first_time = max(begins, default=None)
        found = problem.soft_conditions(embedded=embedded, hard=exact)
        self.conditions = [c for c in found if self.active.intersection(c.terms(problem))]
        self._adapted: tuple[int, Tensor] | None = None  # number of the points that were drawn by residual, and these
        if isinstance(network, PdeNetwork) and not network.batch_norm:
            check_ansatz(network, embedded, None if problem.unknowns else self.reference)
        self.cast(next(network.parameters()).dtype)

    @property
    def reference(self) -> Solution | None:
        """The solution to compare with; where parameters are learnt, that of the values found so far."""
        if self._given is not None or not self.problem.unknowns:
            return self._given if self._given is not None else self.truth.reference()
        problem = self.truth.settled()
        if self._settled is None or self._settled[0] != problem.parameters:
            found = problem.reference() if problem.ranges else problem.solve()
            self._settled = dict(problem.parameters), found
        return self._settled[1]

    def cast(self, dtype: torch.dtype) -> None:
        """Trains in this precision from now on."""
        self.dtype = dtype
        self.network.to(dtype)
        self._fixed: dict[Any, Points] = {}
        self._judged: dict[int, Points] = {}

    def begin(self, number: int) -> None:
        """A round of stages begins: on to the next window of time, if there are several."""
        if isinstance(self.network, Windows):
            self.network.begin(number)
        self._fixed, self._adapted = {}, None

    # ---- points ---------------------------------------------------------------------------------------------------

    def batches(self, epoch: int, rank: int = 0, world: int = 1, start: int = 0) -> Iterator[Points]:
        """The points of every step of an epoch; with several processes each takes its share of the interior ones."""
        if self.grow and start == 0 and epoch:
            self._watch(epoch, rank, world)
        for step in range(start, self.steps_per_epoch):
            number = (epoch * self.steps_per_epoch + step) // (self.resample_every or math.inf)
            yield self._points(int(number), rank, world)

    def _watch(self, epoch: int, rank: int, world: int) -> None:
        """Twice as many points from now on if fresh ones show that the present ones were learnt by heart."""
        last = int((epoch * self.steps_per_epoch - 1) // (self.resample_every or math.inf))
        with torch.no_grad():
            ratio = self._loss(self._draw(epoch, rank, world, _WATCHED)) / self._loss(self._points(last, rank, world))
        if ratio > LEARNT_BY_HEART and self.grown < MOST_GROWTH:
            self.grown, self._fixed, self._adapted = 2 * self.grown, {}, None
            more = self.grown * self.collocation.domain
            _log.warning("the loss on fresh points is %.0f times that of training: %d points from now on", ratio, more)

    def _loss(self, batch: Points) -> float:
        values = term_values(self.terms, self.residuals(self.network, batch))
        return sum(term.weight_at(0) * float(values[term.name]) for term in self.terms if term.name in values)

    def _points(self, number: int, rank: int, world: int) -> Points:
        key = (number, rank, world)
        if key not in self._fixed:
            self._fixed = {key: self._draw(number, rank, world)}  # only the latest are used again
        return self._fixed[key]

    def _draw(self, number: int, rank: int, world: int, stream: int = _TRAIN) -> Points:
        random = generator(self.seed, stream, number)
        network, conditions = self._trained(self.network), self.conditions
        if isinstance(self.network, Windows):
            conditions = self.network.conditions(conditions)
        plan = replace(self.collocation, domain=self.grown * self.collocation.domain)
        interior, placed = draw(network.problem, conditions, plan, random, self.dtype, self.transient, self.first_time)
        if self.adaptive and number and stream == _TRAIN:
            if self._adapted is None or self._adapted[0] != number:
                self._adapted = number, self._where_large(network, len(interior), number)
            interior = self._adapted[1].to(interior)
        if self.causal is not None:
            interior = interior[interior[:, self.problem.axis("t")].argsort()]
        device = next(network.parameters()).device
        interior = interior[rank::world] if self.active.intersection(self.problem.equations) else interior[:0]
        return gather(network.problem, network, interior.to(device), [(c, p.to(device)) for c, p in placed])

    def _trained(self, network: nn.Module) -> PdeNetwork:
        """The network that is trained now: that of the current window of time."""
        found = network.network(network.current) if isinstance(network, Windows) else network
        assert isinstance(found, PdeNetwork)
        return found

    def _where_large(self, network: PdeNetwork, count: int, number: int) -> Tensor:
        """Points drawn among four times as many, with a density that grows with the residual."""
        random = generator(self.seed, _ADAPTIVE, number)
        more = replace(self.collocation, domain=4 * count)
        candidates, _ = draw(network.problem, [], more, random, self.dtype, self.transient, self.first_time)
        candidates = candidates.to(next(network.parameters()).device)
        weights = {term.name: term.weight_at(0) for term in self.terms}
        with torch.no_grad():
            found = self._residuals(self.problem, network, gather(network.problem, network, candidates, []))
        size = sum(weights[name] * r.square() for name, r in found.items())
        assert isinstance(size, Tensor)
        return where_large(candidates, size.sqrt(), count, random)

    # ---- the loss -------------------------------------------------------------------------------------------------

    def residuals(self, network: nn.Module, batch: Points) -> dict[str, Tensor]:
        """The residual (N,) of every term of non-zero weight: a function of the weights and the batch alone."""
        return self._residuals(self.problem, self._trained(network), batch, self.causal)

    def linearise(self, network: nn.Module, batch: Points) -> dict[str, tuple[Tensor, Tensor]]:
        """The same residuals with their derivatives (N, weights) with respect to all trained weights."""
        found = linearise(self.problem, self._trained(network), batch, self.active)
        inside = {name: r for name, (r, _) in found.items() if name in self.problem.equations}
        if self.causal is None or not inside:
            return found
        factor = self._causal_factor(inside, self.causal)
        return {n: (r * factor, J * factor[:, None]) if n in inside else (r, J) for n, (r, J) in found.items()}

    def _residuals(
        self, problem: Problem, network: Any, batch: Points, causal: float | None = None
    ) -> dict[str, Tensor]:
        evaluated = [(group, network.partials(group.located)) for group in batch.groups]
        everywhere = _on_all_rows(evaluated) if problem.needs_everywhere else None
        found: dict[str, Tensor] = {}
        for group, partials in evaluated:
            if group.interior:
                inside = {letters: values[: group.interior] for letters, values in partials.items()}
                points = group.located.points[: group.interior]
                found |= problem.evaluate(inside, points, everywhere)
        found = {name: residual for name, residual in found.items() if name in self.active}
        if causal is not None and found:
            factor = self._causal_factor(found, causal)
            found = {name: residual * factor for name, residual in found.items()}
        for group, partials in evaluated:
            for placed in group.placed:
                here = {letters: values[placed.rows] for letters, values in partials.items()}
                for name, residual in placed.condition.residuals(problem, here, placed.prepared).items():
                    if name in self.active:  # two conditions may share a term: all their points count
                        found[name] = torch.cat([found[name], residual]) if name in found else residual
        return found

    def _causal_factor(self, found: Mapping[str, Tensor], strength: float) -> Tensor:
        """√w (N,) of points that are sorted by time, w = exp(−ε Σ of the losses of earlier slices)."""
        weights = {term.name: term.weight_at(0) for term in self.terms}
        with torch.no_grad():
            loss = torch.stack([weights[name] * r.square() for name, r in found.items()]).sum(0)  # (N,)
            size = -(-len(loss) // CHUNKS)
            slices = nn.functional.pad(loss, (0, CHUNKS * size - len(loss))).reshape(CHUNKS, size).mean(1)
            before = slices.cumsum(0) - slices
            return torch.exp(-0.5 * strength * before).repeat_interleave(size)[: len(loss)]

    # ---- how good it is -------------------------------------------------------------------------------------------

    def evaluate(self, network: nn.Module, split: str) -> dict[str, Any]:
        """Errors against the reference, and residuals on points that are not trained on.

        mse: mean square error over the domain. nrmse: the paper's metric (last 20 times). nrmse_domain: of all
        times. constant_nrmse: of the best constant fields, to be read beside nrmse. residual_rms_*: of every
        equation, loss: of all terms with their weights, unit_loss: mean squares in natural units whatever the weights
        and norms, on fresh points. parameter_*: learnt, and half of its 95 % interval. collapsed: the
        network is one constant. by_parameter: nrmse at values of parameters with a range; the others are means of it.
        """
        assert isinstance(network, PdeNetwork | Windows)
        found: dict[str, Any] = {}
        fixed = self._given is not None or not self.problem.unknowns
        if (fixed or split == "test") and self.reference is not None:
            found |= errors_over(network, self.reference, self.problem.ranges, coarse=split != "test")
        fresh = self._fresh(1 if split == "test" else 0)
        with torch.no_grad():
            residuals = self._residuals(self.truth, network, fresh)
            values = term_values(self.terms, residuals)
        found["unit_loss"] = sum(float((r / self._units[name]).square().mean()) for name, r in residuals.items())
        found["loss"] = sum(term.weight_at(0) * float(values[term.name]) for term in self.terms if term.name in values)
        found |= {f"residual_rms_{name}": float(values[name]) ** 0.5 for name in self.truth.equations if name in values}
        found |= {f"parameter_{name}": float(value.detach()) for name, value in self.problem.unknowns.items()}
        if split == "test":
            found["terms"] = {name: float(value) for name, value in values.items()}
            found["collapsed"] = is_constant(network, fresh.interior)
            found |= {f"parameter_{name}_interval": width for name, width in self._intervals(network).items()}
        return found

    def _intervals(self, network: nn.Module) -> dict[str, float]:
        """Half of the 95 % interval of every learnt parameter, where rows of residuals can be linearised."""
        if not self.problem.unknowns or isinstance(network, Windows) or network.batch_norm:
            return {}
        data = {t for c in self.conditions if c.kind == "data" and c.name != "initial" for t in c.terms(self.problem)}
        found = linearise(self.problem, self._trained(network), self._fresh(0), self.active)
        return half_widths(found, data, tuple(self.problem.unknowns))

    @cached_property
    def _units(self) -> dict[str, float]:
        return term_units(self.truth, self.conditions)

    def _fresh(self, stream: int) -> Points:
        """Points of the validation (0) or the test (1): drawn independently of all points of the training."""
        if stream not in self._judged:
            random = generator(self.seed, _FRESH, stream)
            plan = replace(self.collocation, domain=4096 if stream else 1024, distribution="uniform", shared=False)
            interior, conditions = draw(self.truth, self.conditions, plan, random, self.dtype)
            device = next(self.network.parameters()).device
            placed = [(c, points.to(device)) for c, points in conditions]
            self._judged[stream] = gather(self.truth, self.network, interior.to(device), placed)
        return self._judged[stream]

    def audit(self, network: nn.Module) -> Audit:
        """The audit at interior points, with derivatives of the orders that the residuals hold."""
        batch = next(iter(self.batches(0)))
        orders = [len(letters) for letters in self.problem.wanted]
        return run_audit(network, batch.interior[:AUDITED], orders=orders, losses=term_losses(self, batch))

    def raw_label_findings(self) -> list[Finding]:
        """A PDE has no labels."""
        return []

    def count(self, split: str) -> int | None:
        return None

    def evaluate_file(self, network: nn.Module, path: Path, **reading: Any) -> dict[str, Any]:
        """Errors against the solution in another file."""
        self._given = solution_in_file(self.truth, str(path), 0)
        return self.evaluate(network, "test")

    def remember(self, folder: Path) -> None:
        """What "auto" stood for belongs to the run: a problem may offer more, or less, when the run is opened again."""
        if self.config is not None:
            Run(folder).update(self.config)

    def state(self) -> dict[str, Any]:
        """The problem's parameters, learnt ones as they are now."""
        learnt = {name: float(value.detach()) for name, value in self.problem.unknowns.items()}
        state: dict[str, Any] = {"problem": self.problem.where, "parameters": {**self.truth.parameters, **learnt}}
        state["grown"] = self.grown
        return state if self._adapted is None else {**state, "adapted": self._adapted}

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from a checkpoint: points that depend on earlier weights cannot be drawn again."""
        self._adapted, self.grown = state.get("adapted"), state.get("grown", 1)


def _on_all_rows(evaluated: Sequence[tuple[PointGroup, Mapping[str, Tensor]]]) -> Tensor:
    """Fields (M, fields) at the interior points and at the points of every condition, also where these are the same."""
    values = [(group, partials[""]) for group, partials in evaluated]
    inside = [value[: group.interior] for group, value in values]
    return torch.cat([*inside, *(value[placed.rows] for group, value in values for placed in group.placed)])
