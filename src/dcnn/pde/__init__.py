"""Partial differential equations: problems, their known solutions, PDEBench files."""

from dcnn.pde import pdebench, problems
from dcnn.pde.boundary import Dirichlet, Neumann, Outgoing
from dcnn.pde.conditions import Condition, Initial, Periodic, Sampled
from dcnn.pde.deepxde import from_deepxde, to_deepxde
from dcnn.pde.named_field import Field
from dcnn.pde.problem import Collocation, Hard, Problem
from dcnn.pde.solution import Solution

__all__ = [
    "Collocation",
    "Condition",
    "Dirichlet",
    "Field",
    "Hard",
    "Initial",
    "Neumann",
    "Outgoing",
    "Periodic",
    "Problem",
    "Sampled",
    "Solution",
    "from_deepxde",
    "pdebench",
    "problems",
    "to_deepxde",
]
