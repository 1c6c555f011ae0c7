"""A problem of your own: Fisher's equation, a population that spreads.

Train it with `dcnn train examples/my_problem.py`, or write its solution with
`dcnn solve examples/my_problem.py -o fisher.hdf5`.
"""

import numpy as np
import torch

from dcnn.pde import Dirichlet, Initial, Problem, Solution


class Fisher(Problem):
    """u_t = D u_xx + r u (1 − u), with the travelling front u = (1 + exp(√(r/6D) x − 5rt/6))⁻²."""

    name = "fisher"
    coordinates = ("x", "t")
    domain = {"x": (-2.0, 4.0), "t": (0.0, 1.0)}
    fields = ("u",)
    parameters = {"D": 0.05, "r": 2.0}

    def residuals(self, u):
        return {"growth": u.t - self.D * u.xx - self.r * u * (1 - u)}

    def conditions(self):
        return [Initial(u=lambda x: self.front(x, 0.0)), Dirichlet(u=self.front, on="x")]

    def front(self, x, t):
        exp = torch.exp if isinstance(x, torch.Tensor) else np.exp  # conditions are tensors, references numpy
        D, r = self.parameters["D"], self.parameters["r"]
        return (1 + exp((r / (6 * D)) ** 0.5 * x - 5 / 6 * r * t)) ** -2

    def solve(self):
        x, t = np.linspace(-2, 4, 256), np.linspace(0, 1, 101)
        return Solution({"x": x, "t": t}, {"u": self.front(x[:, None], t[None, :])}, "travelling front")
