"""A known solution from a file instead of a solver: it must be one of this very problem."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.io import loadmat

from dcnn.errors import InputError
from dcnn.guard import decoding
from dcnn.pde import pdebench
from dcnn.pde.known_solution import masked
from dcnn.pde.problem import Problem
from dcnn.pde.solution import Solution


def solution_in_file(problem: Problem, path: str | Path, sample: int = 0) -> Solution:
    """A sample of a PDEBench file, or the solution in a MATLAB file, with fields and coordinates of `problem`.

    Parameters that the file states must be those of the problem, except where they are to be learnt.
    """
    if Path(path).suffix == ".mat":
        return _matlab(problem, Path(path))
    with pdebench.open(path, problem.fields) as samples:
        if not set(samples.fields) <= set(problem.fields):
            raise InputError(
                f"{path}: holds {', '.join(samples.fields)}, but {problem.where} has {', '.join(problem.fields)}"
            )
        for key, value in problem.parameters.items():
            stated = samples.attributes.get(key)
            free = key in problem.unknowns or key in problem.ranges
            if stated is not None and not free and not np.isclose(float(stated), value, rtol=1e-3):
                raise InputError(f"{path}: {key} = {stated} in the file, {value} in the problem; set {key}={stated}")
        if not -len(samples) <= sample < len(samples):
            raise InputError(f"{path}: sample {sample} asked for, the file has {len(samples)}")
        found: Solution = samples[sample]
        given = {key: np.array([float(samples.attributes[key])]) for key in problem.ranges if key in samples.attributes}
    if given:  # a file is for one value of a parameter
        fields = {k: v.reshape(*[1] * len(given), *found.shape) for k, v in found.fields.items()}
        found = Solution({**given, **found.grid}, fields, found.source)
    if {*found.grid} != {*problem.coordinates}:
        raise InputError(
            f"{path}: axes {', '.join(found.grid)}, but {problem.where} has {', '.join(problem.coordinates)}"
        )
    return masked(problem, found)[0]


def _matlab(problem: Problem, path: Path) -> Solution:
    """Raissi's layout: `x`, `t` (or `tt`) and one field [x, t], as `usol` or `uu`."""
    with decoding(path, "MATLAB file"):
        held = {name: values for name, values in loadmat(str(path)).items() if not name.startswith("__")}
    x, t, u = (next((held[n] for n in names if n in held), None) for names in (("x",), ("t", "tt"), ("usol", "uu")))
    if x is None or t is None or u is None or len(problem.fields) != 1 or problem.coordinates != ("x", "t"):
        raise InputError(
            f"{path}: holds {', '.join(held)}; a MATLAB file needs x, t (or tt) and usol (or uu), and the problem one "
            f"field of x and t"
        )
    return Solution({"x": x.ravel(), "t": t.ravel()}, {problem.fields[0]: u}, path.name)
