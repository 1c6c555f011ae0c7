"""Partial differential equations: problems, their known solutions, PDEBench files."""

from dcnn.pde import geometry, pdebench, problems
from dcnn.pde.boundary import Dirichlet, General, Neumann, Outgoing, Robin
from dcnn.pde.conditions import Condition, Initial, Periodic, Sampled
from dcnn.pde.deepxde import from_deepxde, to_deepxde
from dcnn.pde.integrals import Integral
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Collocation, Hard, Problem
from dcnn.pde.solution import Solution

__all__ = [
    "Collocation",
    "Condition",
    "Dirichlet",
    "Field",
    "General",
    "Hard",
    "Initial",
    "Integral",
    "Neumann",
    "Outgoing",
    "Periodic",
    "Problem",
    "Robin",
    "Sampled",
    "Solution",
    "from_deepxde",
    "geometry",
    "pdebench",
    "problems",
    "to_deepxde",
]
