"""A finished run: the only way to open one."""

from __future__ import annotations

import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from torch import nn

from dcnn.auditing import Audit
from dcnn.errors import DcnnError, InputError
from dcnn.results.domains import build_task, config_of, domain, resolve
from dcnn.results.solution_function import SolutionFunction
from dcnn.train import checkpoint, divergence
from dcnn.train.loop import Task
from dcnn.train.run import Run


class TrainedRun:
    """A run folder with what can be done with it; data and weights are read when they are first needed.

    trust: allows a file of Python that the configuration names to be run (a problem.py, a network of one's own).
    model: the network or problem, for a run that was given it as an object.
    """

    def __init__(self, run: Run, trust: bool = False, model: Any = None) -> None:
        self.run, self.trust, self.model = run, trust, model
        self.config: Any = config_of(run)

    @classmethod
    def open(cls, folder: str | Path, trust: bool = False, model: Any = None) -> Self:
        return cls(Run.open(folder), trust, model)

    @property
    def folder(self) -> Path:
        return self.run.folder

    @cached_property
    def values(self) -> dict[str, Any]:
        """The content of result.json, {} while the run is not finished."""
        return self.run.result().values if self.run.result_file.exists() else {}

    @property
    def test(self) -> dict[str, Any]:
        """Errors on the test data, with units in their names; None where they are not finite."""
        return dict(self.values.get("test", {}))

    @property
    def status(self) -> str:
        return str(self.values.get("status", "unfinished"))

    @cached_property
    def state(self) -> dict[str, Any]:
        """The checkpoint of the selected weights."""
        if not self.run.best.exists() and self.status == "diverged":
            raise DcnnError(f"{self.folder}: the run diverged before it had weights worth keeping")
        return checkpoint.load(self.run.best)

    @cached_property
    def network(self) -> nn.Module:
        """The trained network, in the precision it was trained in, in evaluation mode."""
        self._require_trust()
        return domain(self.config.kind).network(self.config, self.state, self.model).eval()

    @cached_property
    def task(self) -> Task:
        """The trained network with the data and terms it was trained on."""
        self._require_trust()
        task: Task = domain(self.config.kind).build(self.config, self.network, self.state, self.folder)
        return task

    @cached_property
    def potential(self) -> Any:
        """The trained network as an :class:`dcnn.atoms.Potential`: energies in eV, forces in eV/Å."""
        if self.config.kind != "atoms":
            raise InputError(f"{self.folder}: a run of kind {self.config.kind}, not of an interatomic potential")
        from dcnn.atoms.potential import Potential

        own = copy.deepcopy(self.model)  # a potential freezes its network
        return Potential.load(self.folder, network=own, trust=self.trust)

    @cached_property
    def solution(self) -> SolutionFunction:
        """The trained network as a function of its coordinates, with derivatives by name."""
        if self.config.kind == "atoms":
            raise InputError(f"{self.folder}: a potential has no fields; use .potential")
        coordinates, fields = self._labels()
        return SolutionFunction(self.network, coordinates, fields)

    def _labels(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        problem = getattr(self.network, "problem", None)
        if problem is not None:
            return problem.coordinates, problem.fields
        from dcnn.sobolev.domain import labels

        return labels(self.config)

    def evaluate(self, data: str | Path | None = None, **reading: Any) -> dict[str, Any]:
        """Errors on the test data of the run, or on another file; reading: options of ``atoms.load``, energy_key, ….

        They go with a file of frames only.
        """
        if reading and (data is None or self.config.kind != "atoms"):
            raise InputError(f"{', '.join(reading)}: for a file of frames (--data)")
        if data is not None:
            return self.task.evaluate_file(self.task.network, Path(data), **reading)
        return self.task.evaluate(self.task.network, "test")

    def audit(self) -> Audit:
        """What would keep the trained network from learning its derivatives."""
        return self.task.audit(self.task.network)

    def replay(self) -> dict[str, Any]:
        """The step at which a run diverged, evaluated again; see :mod:`dcnn.train.divergence`."""
        self._require_trust()
        state, kind = divergence.kept(self.run), domain(self.config.kind)
        task = kind.build(self.config, kind.network(self.config, state, self.model), state, self.folder)
        return divergence.replay(state, task, divergence.kept_file(self.run))

    def _require_trust(self) -> None:
        file = domain(self.config.kind).code(self.config)
        if file is not None and not self.trust and self.model is None:
            raise InputError(
                f"{self.folder}: opening this run executes {file}; if you trust that file, add --trust (trust=True)"
            )


def open_or_build(target: str, recipe: str | None, overrides: list[str], model: str | None, trust: bool) -> Task:
    """The task of a run folder with its trained weights, or of anything else as it would be when training starts."""
    run = Run(target)
    if not run.config_file.exists():
        return build_task(resolve(target, recipe, overrides, model=model))
    ignored = [*overrides, *(f"--{n} {v}" for n, v in (("recipe", recipe), ("model", model)) if v is not None)]
    if ignored:
        raise InputError(f"{target}: a run folder has its own configuration; {', '.join(ignored)} would change nothing")
    opened = TrainedRun.open(target, trust)
    return opened.task if run.best.exists() else build_task(opened.config, run.folder)
