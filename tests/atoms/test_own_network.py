"""A network of the user's own: the PaiNN of docs/networks.md, by class, by file, by name, and after its training."""

import re
import subprocess
import sys
import textwrap
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import nn

import dcnn.testing as checks
from dcnn.activations import IReLU
from dcnn.atoms import Calculator, Potential, build, demo_dataset
from dcnn.atoms.models import find, register
from dcnn.errors import InputError
from dcnn.results import fit_config as fit

DOCS = Path(__file__).parents[2] / "docs" / "networks.md"
SIZES = {"features": 8, "layers": 1, "waves": 6, "cutoff": 4.0}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The PaiNN of the documentation as a file."""
    lines = DOCS.read_text().split("\n")
    first = next(i for i, line in enumerate(lines) if "class PaiNN" in line)
    last = next(i for i in range(first, len(lines)) if lines[i] == "")
    code = "\n".join(re.sub(r"^(>>>|\.\.\.) ?", "", line) for line in lines[first:last])
    path = tmp_path_factory.mktemp("own") / "my_net.py"
    head = "import torch\nfrom torch import nn\nfrom dcnn.atoms.bases import cosine_cutoff\n\n\n"
    path.write_text(head + code + "\n\n\nready = PaiNN(features=8)\nnumber = 3\n")
    return path


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "own"
    fit(
        {
            "data": {"path": "demo", "train": 20, "validation": 4, "test": 4},
            "model": {"name": f"{file}:PaiNN", "overrides": SIZES},
            "training": {"epochs": 2, "accelerator": "cpu"},
        },
        folder,
    )
    return folder


def test_it_can_be_named_in_four_ways(file, monkeypatch):
    cls = find(f"{file}:PaiNN")
    point = EntryPoint("installed_painn", f"{__name__}:Springs", "dcnn.networks")
    monkeypatch.setattr("dcnn.plugins.entry_points", lambda group: [point] if group == "dcnn.networks" else [])
    monkeypatch.setattr(EntryPoint, "load", lambda self: Springs)
    register("my_painn", cls)
    for name in (cls, f"{file}:PaiNN", "my_painn"):
        torch.manual_seed(0)
        assert build(name, features=8, cutoff=3.0).embedding.weight.shape == (100, 8)
    assert isinstance(build("installed_painn"), Springs)
    assert build(f"{file}:ready").cutoff == 5.0
    assert build(cls(features=4)).embedding.weight.shape == (100, 4)


def test_an_activation_it_does_not_take_replaces_those_it_has(file):
    network = build(f"{file}:PaiNN", activation="irelu", normalization=False, **SIZES)
    assert sum(isinstance(module, IReLU) for module in network.modules()) == 3
    assert not any(isinstance(module, nn.SiLU) for module in network.modules())


def test_it_passes_the_checks_when_periodic_and_not(file):
    torch.manual_seed(0)
    assert checks.check_potential(build(f"{file}:PaiNN", **SIZES))["stress"] < 1e-6


def test_its_run_is_opened_with_its_code_or_its_class(file, run):
    with pytest.raises(InputError, match=r"its network is .*my_net.py:PaiNN, code that opening it would run"):
        Potential.load(run)
    frames = demo_dataset()[:2]
    trusted = Potential.load(run, dtype="float64", trust=True)
    brought = Potential.load(run, dtype="float64", network=find(f"{file}:PaiNN")(**SIZES))
    expected = trusted.predict(frames).energies()
    assert brought.predict(frames).energies() == pytest.approx(expected, rel=1e-12)
    code = f"""
        from dcnn.atoms import Potential, demo_dataset
        print(*Potential.load({str(run)!r}, dtype="float64", trust=True).predict(demo_dataset()[:2]).energies())
    """
    alone = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert [float(word) for word in alone.stdout.split()] == pytest.approx(expected.tolist(), rel=1e-12)
    molecule = frames[0].to_ase()
    molecule.calc = Calculator(trusted)
    assert molecule.get_potential_energy() == pytest.approx(expected[0], rel=1e-9)


class Springs(nn.Module):
    cutoff = 3.0


class NoCutoff(nn.Module):
    pass


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("{}:PaiNNN", {}, "unknown network in .*my_net.py 'PaiNNN'; did you mean 'PaiNN'"),
        ("{}.py:PaiNN", {}, "no such network file"),
        ("{}:PaiNN", {"feature": 3}, "did you mean 'features'"),
        ("{}:PaiNN", {"preset": "paper"}, "unknown preset 'paper'"),
        ("{}:ready", {"features": 3}, "is a ready module: features cannot be given"),
        ("{}:number", {}, "is no network"),
        (NoCutoff, {}, "NoCutoff is no network: .* with a cutoff"),
    ],
)
def test_what_cannot_be_built_is_named(file, name, options, message):
    with pytest.raises(InputError, match=message):
        build(name.format(file) if isinstance(name, str) else name, **options)


def test_names_of_ours_stay_ours():
    with pytest.raises(InputError, match="'schnet' cannot be registered"):
        register("schnet", Springs)
    with pytest.raises(InputError, match="unknown network 'painnn'"):
        build("painnn")
