"""A known solution from a file instead of a solver: it must be one of this very problem."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dcnn.errors import InputError
from dcnn.pde import pdebench
from dcnn.pde.problem import Problem
from dcnn.pde.solution import Solution


def solution_in_file(problem: Problem, path: str | Path, sample: int = 0) -> Solution:
    """A sample of a PDEBench file with fields and coordinates of `problem`.

    Parameters that the file states must be those of the problem, except where they are to be learnt.
    """
    with pdebench.open(path, problem.fields) as samples:
        if not set(samples.fields) <= set(problem.fields):
            raise InputError(
                f"{path}: holds {', '.join(samples.fields)}, but {problem.where} has {', '.join(problem.fields)}"
            )
        for key, value in problem.parameters.items():
            stated = samples.attributes.get(key)
            if stated is not None and key not in problem.unknowns and not np.isclose(float(stated), value, rtol=1e-3):
                raise InputError(f"{path}: {key} = {stated} in the file, {value} in the problem; set {key}={stated}")
        if not -len(samples) <= sample < len(samples):
            raise InputError(f"{path}: sample {sample} asked for, the file has {len(samples)}")
        found: Solution = samples[sample]
    if {*found.grid} != {*problem.coordinates}:
        raise InputError(
            f"{path}: axes {', '.join(found.grid)}, but {problem.where} has {', '.join(problem.coordinates)}"
        )
    return found
