"""One of the paper's PDE set-ups twice, with the same weights on the same points: DeepXDE's model and our task."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dcnn import activations
from dcnn.bench.deepxde_setups import RESIDUALS, dde, time_pde
from dcnn.bench.steps import LEARNING_RATE
from dcnn.errors import unknown
from dcnn.losses import Fixed, Term, term_values
from dcnn.pde import problems
from dcnn.pde.deepxde import NAMED, from_deepxde
from dcnn.pde.network import PdeNetwork
from dcnn.pde.points import Points, gather
from dcnn.pde.task import PdeTask


@dataclass(frozen=True)
class Pair:
    """DeepXDE's model, and our task with its network and the same points."""

    model: Any
    task: PdeTask
    batch: Points

    @property
    def network(self) -> PdeNetwork:
        """Ours."""
        assert isinstance(self.task.network, PdeNetwork)
        return self.task.network

    def their_gradients(self) -> tuple[Tensor, list[Tensor]]:
        """DeepXDE's losses by term, and the gradient of their sum."""
        losses = self.model.outputs_losses_train(self.model.data.train_x, None, None)[1]
        return losses.detach(), list(torch.autograd.grad(losses.sum(), list(self.model.net.parameters())))

    def our_gradients(self) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Ours."""
        values = term_values(self.task.terms, self.task.residuals(self.network, self.batch))
        total = torch.stack(list(values.values())).sum()
        detached = {name: value.detach() for name, value in values.items()}
        return detached, list(torch.autograd.grad(total, list(self.network.parameters())))

    def their_step(self) -> None:
        """One update as DeepXDE's `model.train` makes it."""
        self.model.train_step(self.model.data.train_x, None, None)

    def gradient_difference(self, ours: Sequence[Tensor] | None = None) -> float:
        """The relative difference of `ours` (by autograd) to DeepXDE, of the parameter where it is largest."""
        ours = self.our_gradients()[1] if ours is None else ours
        theirs = self.their_gradients()[1]
        return max(float((a - b).norm() / b.norm().clamp_min(1e-30)) for a, b in zip(ours, theirs, strict=True))


def build_pair(
    name: str,
    activation: str = "tanh",
    width: int = 40,
    flux_x: Any = None,
    resolution: int | None = None,
    **counts: int,
) -> Pair:
    """A problem as the scripts pose it, on DeepXDE's own points; `counts` overrides num_domain and so on.

    `flux_x` is another form of the energy flux of compressible flow (:mod:`~dcnn.bench.deepxde_setups`),
    `resolution` that of the initial data.
    """
    if activation not in (*NAMED, "irelu"):
        raise unknown("activation of DeepXDE", activation, (*NAMED, "irelu"))
    torch.manual_seed(0)
    problem = problems.get(name, fidelity="scripts", **({"resolution": resolution} if resolution else {}))
    conditions, plan = problem.soft_conditions(), problem.collocation
    given = {"num_domain": plan.domain, "num_boundary": plan.boundary, "num_initial": plan.initial} | counts
    residual = RESIDUALS[name](problem, flux_x) if flux_x else RESIDUALS[name](problem)
    sizes = [len(problem.coordinates), *[width] * 6, len(problem.fields)]
    function: Any = _irelu if activation == "irelu" else activation
    with contextlib.redirect_stdout(sys.stderr):  # it prints what it does
        data = time_pde(problem, conditions, residual, **given)
        model = dde.Model(data, dde.nn.FNN(sizes, function, "Glorot normal"))
        model.compile("adam", lr=LEARNING_RATE, verbose=0)

    twin = dde.nn.FNN(sizes, activations.get(activation), "zeros")
    twin.load_state_dict(model.net.state_dict())
    network = from_deepxde(twin, problem)
    assert isinstance(network, PdeNetwork)
    names = dict.fromkeys([*problem.equations, *(term for c in conditions for term in c.terms(problem))])
    terms = tuple(Term(term) for term in names)
    task = PdeTask(problem, network, terms, Fixed(terms), collocation=plan)
    task.cast(torch.get_default_dtype())
    with torch.no_grad():  # a task rounds the weights that it is given to float32
        for theirs, ours in zip(model.net.parameters(), network.parameters(), strict=True):
            theirs.copy_(ours)
    interior = torch.from_numpy(data.train_x_all)
    return Pair(model, task, gather(problem, network, interior, [(c, c.pick(problem, interior)) for c in conditions]))


def _irelu(x: Tensor) -> Tensor:
    """As the scripts write it."""
    return 0.5 * torch.relu(x) ** 2
