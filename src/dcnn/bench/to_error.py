"""Time to accuracy: CPU seconds until `best` has the error that DeepXDE's script for Burgers' equation ends with."""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dcnn.errors import DcnnError
from dcnn.pde import problems
from dcnn.pde.deepxde import load_deepxde
from dcnn.pde.solution import Solution
from dcnn.pde.solution_errors import nrmse
from dcnn.results import fit_config
from dcnn.train.console import Console

ITERATIONS = 15_000  # of Adam in DeepXDE's example, followed by L-BFGS


@dataclass(frozen=True)
class TimeToError:
    """CPU seconds of both sides until an error (nRMSE over all times) is reached."""

    peer: str
    error: float
    ours_s: float
    peer_s: float

    def to_dict(self) -> dict[str, Any]:
        times = {"ours_ms": round(1e3 * self.ours_s, 1), "peer_ms": round(1e3 * self.peer_s, 1)}
        return {"name": "burgers", **times, "peer": self.peer, "ratio": self.peer_s / self.ours_s, "error": self.error}


class _ReachedError(Exception):
    """The training is good enough."""


class _Watch(Console):
    """Ends a run at the first validation below an error."""

    def __init__(self, error: float) -> None:
        self.error, self.seconds = error, math.inf

    def row(self, row: dict[str, Any], status: Any) -> None:
        if row.get("validation_nrmse_domain", math.inf) <= self.error:
            self.seconds = float(row["seconds"])
            raise _ReachedError


def time_to_error(iterations: int = ITERATIONS, minutes: float = 3.0, seed: int = 0) -> TimeToError:
    """DeepXDE's script first, then ours until the same error; an error if ours does not reach it in `minutes`."""
    known = problems.get("burgers").solution()
    with contextlib.redirect_stdout(sys.stderr):  # it prints what it does
        error, theirs = _deepxde(iterations, known, seed)
    watch = _Watch(error)
    config = {
        "kind": "pde",
        "problem": {"name": "burgers"},
        "training": {"minutes": minutes, "clock": "cpu"},
        "seed": seed,
        "steps_per_epoch": 5,
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            fit_config(config, Path(folder) / "run", console=watch)
        except _ReachedError:
            return TimeToError(f"DeepXDE {load_deepxde().__version__}", error, watch.seconds, theirs)
    raise DcnnError(f"burgers: not below {error:.3g}, DeepXDE's error, within {minutes:g} CPU minutes")


def _deepxde(iterations: int, known: Solution, seed: int) -> tuple[float, float]:
    """(nRMSE over all times, CPU seconds) of DeepXDE's example `Burgers.py`, as it is published."""
    dde = load_deepxde()
    dde.config.set_random_seed(seed)
    nu = problems.get("burgers").parameters["nu"]

    def residual(x: Tensor, y: Tensor) -> Tensor:
        u_x, u_t = (dde.grad.jacobian(y, x, i=0, j=j) for j in (0, 1))
        found: Tensor = u_t + y * u_x - nu * dde.grad.hessian(y, x, i=0, j=0)
        return found

    domain = dde.geometry.GeometryXTime(dde.geometry.Interval(-1, 1), dde.geometry.TimeDomain(0, 0.99))
    walls = dde.icbc.DirichletBC(domain, lambda x: 0, lambda _, on_boundary: on_boundary)
    start = dde.icbc.IC(domain, lambda x: -np.sin(np.pi * x[:, 0:1]), lambda _, on_initial: on_initial)
    data = dde.data.TimePDE(domain, residual, [walls, start], num_domain=2540, num_boundary=80, num_initial=160)
    model = dde.Model(data, dde.nn.FNN([2, 20, 20, 20, 1], "tanh", "Glorot normal"))
    begin = time.process_time()
    model.compile("adam", lr=1e-3)
    model.train(iterations=iterations, display_every=iterations, verbose=0)
    if iterations >= ITERATIONS:
        model.compile("L-BFGS")
        model.train(verbose=0)
    seconds = time.process_time() - begin
    with torch.no_grad():
        found = model.predict(known.points().astype(np.float32))[:, 0].reshape(1, *known.shape)
    return float(nrmse(found, known.fields["u"][None], timed=True).mean()), seconds
