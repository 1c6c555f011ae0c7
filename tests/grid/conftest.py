"""Cells that train in a second, and a cache of their own for every test."""

import os

import pytest

from dcnn.grid.cells import GridCell
from dcnn.grid.comparison import cells_of

os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112, Ray's name; at its 15 a busy machine would starve workers

TINY_PDE = ["network.width=4", "network.depth=1", "points.interior=8", "points.boundary=4", "points.initial=4"]
TINY_PDE += ["training.stages=[{optimizer: adam}]", "training.accelerator=cpu", "steps_per_epoch=10"]


@pytest.fixture
def tiny():
    """Words that make the network and the points of a PDE next to nothing."""
    return list(TINY_PDE)


@pytest.fixture
def heat():
    """heat(epochs, seeds=1): cells of the heat equation."""

    def make(epochs, seeds=1, more=()):
        own = {word.partition("=")[0] for word in more}
        words = [word for word in TINY_PDE if word.partition("=")[0] not in own]
        return cells_of("heat", ["best"], [None], seeds, [*words, f"training.epochs={epochs}", *more])

    return make


@pytest.fixture
def twins(heat):
    """twins(epochs, *names): the same run under several names."""
    return lambda epochs, *names: [GridCell({"name": name}, heat(epochs)[0].config) for name in names]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
