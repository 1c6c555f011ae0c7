"""Problems by name; a user's own from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dcnn.errors import InputError, unknown
from dcnn.pde.problem import Problem
from dcnn.pde.problems.advection import Advection, AdvectionAsPublished
from dcnn.pde.problems.allen_cahn import AllenCahn
from dcnn.pde.problems.burgers import Burgers
from dcnn.pde.problems.compressible import Compressible, CompressibleAsPublished
from dcnn.pde.problems.diffusion_reaction import DiffusionReaction, DiffusionReactionAsPublished
from dcnn.pde.problems.heat import Heat
from dcnn.pde.problems.helmholtz import Helmholtz
from dcnn.pde.problems.kdv import KdV
from dcnn.pde.problems.navier_stokes import NavierStokes
from dcnn.pde.problems.ordinary import Lorenz, LotkaVolterra
from dcnn.pde.problems.poisson import Poisson
from dcnn.pde.problems.shapes import Annulus, Channel, LShape
from dcnn.pde.problems.wave import Wave
from dcnn.plugins import installed, module_from_file

_RIGHT: dict[str, type[Problem]] = {
    problem.name: problem
    for problem in (
        Advection,
        Compressible,
        DiffusionReaction,
        Burgers,
        AllenCahn,
        Heat,
        Wave,
        Poisson,
        Helmholtz,
        KdV,
        NavierStokes,
        LotkaVolterra,
        Lorenz,
        LShape,
        Annulus,
        Channel,
    )
}
_AS_PUBLISHED: dict[str, type[Problem]] = {
    problem.name: problem for problem in (AdvectionAsPublished, CompressibleAsPublished, DiffusionReactionAsPublished)
}
NAMES = tuple(_RIGHT)

__all__ = ["NAMES", "get", "is_known", "load_file"]


def is_known(name: str) -> bool:
    """Whether :func:`get` finds a problem of that name without a file."""
    return name in _RIGHT or name in installed("dcnn.problems")


def get(name: str, fidelity: str = "text", **given: Any) -> Problem:
    """A problem by name (or the path of a user's own file) with parameters, options and `trainable`.

    Installed packages add theirs through the entry points ``dcnn.problems``.

    ``fidelity="scripts"`` gives the three problems of the paper as its scripts pose them.

    >>> get("advection", beta=0.2).residuals.__name__
    'residuals'
    >>> get("advektion")
    Traceback (most recent call last):
    dcnn.errors.InputError: unknown problem 'advektion'; did you mean 'advection'? Valid: ...
    """
    if name.endswith(".py"):
        return load_file(name, **given)
    if fidelity not in ("text", "scripts"):
        raise unknown("fidelity", fidelity, ("text", "scripts"))
    if name not in _RIGHT:
        points = installed("dcnn.problems")
        if name not in points:
            raise unknown("problem", name, (*NAMES, *points))
        return points[name].load()(**given)
    known = _RIGHT if fidelity == "text" else _AS_PUBLISHED
    if name not in known:
        raise InputError(f"{name} is not in the paper; fidelity='scripts' exists for {', '.join(known)}")
    return known[name](**given)


def load_file(path: str | Path, **given: Any) -> Problem:
    """The problem that a Python file defines, checked: its only (or last) subclass of ``Problem``."""
    module = module_from_file(path, "problem")
    found = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and issubclass(c, Problem) and c.__module__ == module.__name__
    ]
    if not found:
        raise InputError(f"{path}: defines no subclass of dcnn.pde.Problem")
    problem = found[-1](**given)
    problem.check()
    return problem
