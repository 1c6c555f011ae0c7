"""A network of the user's in the place of ours: any module from points (N, coordinates) to fields (N, fields)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dcnn.derivatives import Jet
from dcnn.derivatives.jet import UnsupportedError
from dcnn.errors import InputError
from dcnn.pde.build import stated_problem
from dcnn.pde.config import PdeConfig
from dcnn.pde.network import Located, PdeNetwork
from dcnn.pde.problem import Problem
from dcnn.pde.recipes import NO_JACOBIAN
from dcnn.torch_internals import NormWithStatistics


class OwnNetwork(PdeNetwork):
    """u = module(x), with hard constraints lift + factor · module(x); in the module's own units, inputs as they are.

    If the module is made of operations that a Jet knows, derivatives are carried through it in one pass and
    Gauss–Newton can train it (`taylor`); otherwise they are nested.
    """

    def __init__(self, problem: Problem, module: nn.Module, hard: bool = False) -> None:
        nn.Module.__init__(self)
        self.problem, self.residual = problem, False
        self.unknowns = problem.unknowns
        self.embedding, self.features, self.module = nn.Identity(), {}, module  # type: ignore[assignment]
        self.batch_norm = any(isinstance(m, NormWithStatistics) for m in module.modules())
        self.hard = problem.hard_constraints() if hard else {}
        self.register_buffer("offset", torch.zeros(len(problem.fields)))
        self.register_buffer("unit", torch.ones(len(problem.fields)))
        self.taylor = not self.batch_norm and self._takes_jets()

    def hidden(self, features: Any) -> Any:
        return self.module(features)

    def _takes_jets(self) -> bool:
        """Whether the module computes the same with derivatives carried along; an error if its shape is wrong."""
        names, fields = self.problem.coordinates, len(self.problem.fields)
        trial = copy.deepcopy(self.module).double().eval()
        points = self.problem.stretch(torch.rand(3, len(names), generator=torch.Generator().manual_seed(0)).double())
        try:
            found = trial(points)
        except Exception as error:
            raise InputError(
                f"{self.problem.where}: the network cannot take points (3, {len(names)}): {error}"
            ) from error
        if not isinstance(found, torch.Tensor) or found.shape != (3, fields):
            shape = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
            raise InputError(f"{self.problem.where}: the network must give (3, {fields}) for 3 points, found {shape}")
        first = tuple(int(i == 0) for i in range(len(names)))
        try:
            carried: Any = trial(Jet.coordinates(points, [first]))
            return isinstance(carried, Jet) and torch.allclose(carried.term((0,) * len(names)), found)
        except (UnsupportedError, TypeError, AttributeError, RuntimeError):
            return False

    def at(self, points: torch.Tensor, wanted: Sequence[str]) -> Located:
        if self.taylor:
            return super().at(points, wanted)
        return Located(points, tuple(dict.fromkeys(("", *wanted))))


def given_network(config: PdeConfig, module: nn.Module, problem: Problem | None) -> tuple[PdeNetwork, dict[str, Any]]:
    """The network to train for a configuration, and what the configuration says of it.

    A network of ours is taken as it is, around its own problem; other modules are wrapped, with hard constraints if the
    problem states them.
    """
    if config.points.time_windows > 1:
        raise InputError("a network of yours cannot be cut into windows of time; set points.time_windows=1")
    if isinstance(module, PdeNetwork):
        network = module
    else:
        found = stated_problem(config, problem)
        network = OwnNetwork(found, module, bool(found.hard_constraints()))
    section: dict[str, Any] = {"module": type(module).__qualname__, "hard": bool(network.hard), "modes": 0}
    section |= {"features": bool(network.features), "batch_norm": network.batch_norm}
    values: dict[str, Any] = {"network": section}
    if not getattr(network, "taylor", True):  # Gauss–Newton would need its derivatives row by row
        values["training"] = {"stages": NO_JACOBIAN}
    return network, values
