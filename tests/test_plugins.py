"""What installed packages add through entry points: activations, problems and readers (networks: test_own_network)."""

from importlib.metadata import EntryPoint

import ase
import numpy as np
import pytest
import torch
from ase.calculators.singlepoint import SinglePointCalculator

from dcnn import activations
from dcnn.atoms.data import load
from dcnn.errors import InputError
from dcnn.pde import problems
from dcnn.pde.problems.heat import Heat
from dcnn.results import resolve


class Cube(torch.nn.Module):
    def forward(self, x):
        return x**3


class Cooling(Heat):
    name = "cooling"


def pairs(path):
    """A reader of files with one distance a line."""
    for line in path.read_text().split():
        atoms = ase.Atoms("H2", [[0, 0, 0], [0, 0, float(line)]])
        atoms.calc = SinglePointCalculator(atoms, energy=-float(line), forces=np.zeros((2, 3)))
        yield atoms


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    found = {
        "dcnn.activations": ("cube", Cube),
        "dcnn.problems": ("cooling", Cooling),
        "dcnn.readers": ("pairs", pairs),
    }
    things = dict(found.values())
    points = {group: [EntryPoint(name, "some.module:Thing", group)] for group, (name, _) in found.items()}
    monkeypatch.setattr("dcnn.plugins.entry_points", lambda group: points.get(group, []))
    monkeypatch.setattr(EntryPoint, "load", lambda self: things[self.name])


def test_an_activation():
    assert activations.get("cube")(torch.tensor(2.0)) == 8
    with pytest.raises(InputError, match=r"unknown activation 'cubes'; did you mean 'cube'"):
        activations.get("cubes")


def test_a_problem_is_a_word_of_the_command_line():
    assert isinstance(problems.get("cooling"), Cooling)
    assert resolve("cooling", None, []).problem.name == "cooling"
    with pytest.raises(InputError, match=r"unknown problem 'coolin'; did you mean 'cooling'"):
        problems.get("coolin")


def test_a_reader_by_the_ending_of_a_file(tmp_path):
    (tmp_path / "h2.pairs").write_text("0.7\n0.8\n")
    frames = load(tmp_path / "h2.pairs", check=False)
    assert [frame.energy for frame in frames] == [-0.7, -0.8]
    assert "h2.pairs" in frames.where(1)
