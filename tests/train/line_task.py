"""A task of one weight, for tests of the engine: y = 2x and y′ = 2, four batches an epoch."""

import math
import os
import time
from dataclasses import dataclass

import torch
from lightning.fabric import Fabric
from torch import nn

from dcnn.losses import Fixed, Term
from dcnn.results import fit_config, parse, resume_run
from dcnn.train import checkpoint
from dcnn.train.console import Console
from dcnn.train.loop import train
from dcnn.train.run import Run


@dataclass
class Line:
    """explode_at: the call of `residuals` from which on nothing is finite, in process `explode_in` alone if given;
    signal_at: {call: signal that this process sends itself}."""

    seed: int = 0
    explode_at: int | None = None
    explode_in: int | None = None
    signal_at: dict[int, int] | None = None
    monitor = "error"
    steps_per_epoch = 4

    def __post_init__(self):
        torch.manual_seed(self.seed)
        self.network = nn.Sequential(nn.Identity(), nn.Linear(1, 1))
        self.terms = (Term("value"), Term("slope", weight=0.5))
        self.weighting = Fixed(self.terms)
        self.dtype = torch.float32
        self.calls = 0
        self.rank = 0
        self.rounds_begun = []

    def begin(self, number):
        self.rounds_begun.append(number)

    def cast(self, dtype):
        self.dtype = dtype
        self.network.to(dtype)

    def batches(self, epoch, rank=0, world=1, start=0):
        self.rank = rank
        generator = torch.Generator().manual_seed(1000 + epoch)
        drawn = [torch.rand(8, 1, generator=generator).to(self.dtype) for _ in range(self.steps_per_epoch)]
        yield from (points[rank::world] for points in drawn[start:])

    def residuals(self, network, batch):
        self.calls += 1
        if self.signal_at and self.calls in self.signal_at:
            os.kill(os.getpid(), self.signal_at[self.calls])
        mine = self.explode_in in (None, self.rank)
        if self.explode_at is not None and self.calls >= self.explode_at and mine:
            batch = batch * math.nan
        batch = batch.requires_grad_()
        y = network(batch)
        slope = torch.autograd.grad(y.sum(), batch, create_graph=True)[0]
        return {"value": y - 2 * batch, "slope": slope - 2}

    def evaluate(self, network, split):
        return {"error": abs(float(network[1].weight.detach()) - 2.0)}

    def state(self):
        return {"target": 2.0}

    def remember(self, folder):
        (folder / "remembered").touch()

    def load_state(self, state):
        assert state == {"target": 2.0}


def build_line(config, folder=None, **options):
    """For `fit_config(…, build=…)`, in any process."""
    return Line(**options)


def begin_or_go_on(values, folder):
    resume_run(folder) if (folder / "config.yaml").exists() else fit_config(values, folder)


def hold_lock(folder, pipe):
    """Until it is killed."""
    with Run(folder).locked():
        pipe.send("held")
        time.sleep(600)


def config(**training):
    return parse({"kind": "pde", "training": {"epochs": 6, **training}})


def run_in(folder, settings, task, resume=False):
    run = Run(folder) if resume else Run.create(folder, settings)
    return train(Fabric(accelerator="cpu", devices=1), task, settings, run, Console(), resume)


def differences(one, other):
    """What differs between two finished runs, but for the clock: weights that are kept, and lines of metrics.csv."""
    found = []
    for path in ("best", "last"):
        states = [checkpoint.load(getattr(Run(folder), path))["network"] for folder in (one, other)]
        found += [f"{path}: {key}" for key in states[0] if not torch.equal(states[0][key], states[1][key])]
    rows = [
        [{k: v for k, v in row.items() if k != "seconds" and not math.isnan(v)} for row in Run(folder).metrics()]
        for folder in (one, other)
    ]
    return found if rows[0] == rows[1] else [*found, "metrics.csv"]
