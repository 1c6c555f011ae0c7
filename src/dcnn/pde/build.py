"""From a configuration to the task of a PDE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dcnn.errors import InputError, unknown
from dcnn.losses import Term
from dcnn.losses import weighting as weightings
from dcnn.losses.terms import POWER
from dcnn.pde import problems
from dcnn.pde.conditions import Condition
from dcnn.pde.config import NetworkConfig, PdeConfig, PdeLoss, ProblemConfig
from dcnn.pde.file_solution import solution_in_file
from dcnn.pde.network import PdeNetwork
from dcnn.pde.problem import Problem
from dcnn.pde.solution import Solution
from dcnn.pde.task import PdeTask
from dcnn.pde.term_scales import term_units
from dcnn.pde.windows import Windows

KINDS = ("residual", "initial", "boundary", "data")
AUTO_MODES = 4
MEASURED = 1000  # points of a file that parameters are learnt from


def build_pde(
    config: PdeConfig, network: PdeNetwork | Windows | None = None, problem: Problem | None = None
) -> PdeTask:
    """Problem, network, terms and points of a configuration; the caller has seeded torch.

    `network`: one that is there already, as after training; its problem is the one of the task. `problem`: an object
    of the caller's in the place of the one that the configuration names.
    """
    if problem is None and network is not None and config.problem.name.startswith("object:"):
        problem = network.problem
    truth = stated_problem(config, problem)
    reference = _file_reference(truth, config.problem)
    if network is None:
        network = build_network(config, truth)
    problem = network.problem
    windows = config.points.time_windows
    settings = network_settings(problem, config.network)
    resolved = config.network.model_copy(update=settings)
    embedded = settings["modes"] > 0
    conditions = problem.soft_conditions(embedded=embedded, hard=settings["hard"] and windows == 1)
    terms = build_terms(problem, conditions, config.loss)
    points = config.points
    given = {
        "domain": points.interior,
        "boundary": points.boundary,
        "initial": points.initial,
        "distribution": points.sampler,
        "shared": points.shared,
    }
    task = PdeTask(
        problem,
        network,
        terms,
        weightings.get(config.loss.weighting, terms, **config.loss.weighting_options),
        collocation=replace(problem.collocation, **{k: v for k, v in given.items() if v is not None}),  # type: ignore[arg-type]
        embedded=embedded,
        resample_every=points.resample_every,
        adaptive=points.adaptive,
        grow=points.grow,
        causal=points.causal,
        transient=config.network.transient if windows == 1 else None,
        steps_per_epoch=config.steps_per_epoch,
        seed=config.seed,
        truth=truth,
        reference=reference,
    )
    task.config = config.model_copy(update={"network": resolved})
    return task


def stated_problem(config: PdeConfig, given: Problem | None = None) -> Problem:
    """The problem of a configuration, or the object that is given for it.

    Where parameters are learnt from a file, points of the file are its data.
    """
    truth = given if given is not None else build_problem(config.problem)
    if truth.unknowns and not truth.has_data and config.problem.reference is not None:
        known = _file_reference(truth, config.problem) or truth.solution()
        rows = np.random.default_rng(config.seed).choice(len(known.points()), MEASURED)
        truth = truth.with_data(known.points()[rows], **dict(zip(known.fields, known.values()[rows].T, strict=True)))
    return truth


def build_network(config: PdeConfig, truth: Problem) -> PdeNetwork | Windows:
    """The network for `truth` or, if the configuration says so, for a regularised version of it."""
    problem = truth
    if config.network.module is not None:
        raise InputError(
            f"the network of this run is a module of yours, {config.network.module}: give it, as in "
            "fit(problem, network=module)"
        )
    if config.problem.regularise:
        problem = truth.with_settings(**config.problem.regularise)
        problem.unknowns = truth.unknowns  # what is learnt is learnt for both
        if problem.ranges != truth.ranges:
            raise InputError(f"{problem.where}: problem.regularise={config.problem.regularise} changes a range")
    settings, windows = network_settings(problem, config.network), config.points.time_windows
    return Windows(problem, windows, **settings) if windows > 1 else PdeNetwork(problem, **settings)


def network_settings(problem: Problem, config: NetworkConfig) -> dict[str, Any]:
    """Keyword arguments of the network, "auto" replaced by what the problem offers."""
    settings = config.model_dump(exclude={"module"})
    if settings["modes"] == "auto":
        settings["modes"] = AUTO_MODES if problem.periodic or problem.reflecting else 0
    if settings["hard"] == "auto":
        settings["hard"] = bool(problem.hard_constraints())
    if settings["features"] == "auto":
        settings["features"] = bool(problem.features())
    return settings


def build_problem(config: ProblemConfig) -> Problem:
    """The problem with its parameters; a PDEBench file becomes its data where it takes them."""
    given: dict[str, Any] = dict(config.parameters)
    options = problems.get(config.name, config.fidelity).options
    if "sample" in options:
        given.setdefault("sample", config.sample)
    if config.reference is not None and "data" in options:
        given.setdefault("data", config.reference)
    if config.trainable:
        given["trainable"] = config.trainable
    return problems.get(config.name, config.fidelity, **given)


def _file_reference(problem: Problem, config: ProblemConfig) -> Solution | None:
    """The file to compare with, for a problem that does not read files itself."""
    if config.reference is None or "data" in problem.options:
        return None
    return solution_in_file(problem, config.reference, config.sample)


def build_terms(problem: Problem, conditions: Sequence[Condition], loss: PdeLoss) -> tuple[Term, ...]:
    """One term for each equation and condition, weighted by name or by kind."""
    kinds = dict.fromkeys(problem.equations, "residual")
    for condition in conditions:
        kind = "initial" if condition.name == "initial" else condition.kind
        kinds |= dict.fromkeys(condition.terms(problem), kind)
    for name in loss.weights:
        if name not in kinds and name not in KINDS:
            raise unknown("term in loss.weights", name, [*kinds, *KINDS])
    units: Mapping[str, float] = term_units(problem, list(conditions)) if loss.scale_terms else {}
    power = POWER[loss.norm]
    return tuple(
        Term(name, loss.weights.get(name, loss.weights.get(kind, 1.0)) / units.get(name, 1.0) ** power, loss.norm)
        for name, kind in kinds.items()
    )
