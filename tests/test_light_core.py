"""What needs which package: the core torch and numpy, a command only what it uses, a missing extra one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dcnn

HEAVY = [
    "ase",
    "vesin",
    "lmdb",
    "scipy",
    "h5py",
    "lightning",
    "pydantic",
    "yaml",
    "typer",
    "rich",
    "jinja2",
    "fsspec",
    "matplotlib",
]
BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def run(code, *arguments):
    """The code in a process of its own, with this dcnn."""
    paths = [str(Path(dcnn.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_the_core_needs_torch_and_numpy_only():
    done = run(
        BLOCK.format(names=set(HEAVY))
        + """
import torch, dcnn
from torch import nn
net = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
x = torch.randn(16, 2)
assert not dcnn.audit(net, x).ok
dcnn.denormalize(net), dcnn.swap_activations(net, "irelu"), dcnn.activations.init_(net, x)
dcnn.derivatives.partials(net, x, ["x", "xx"]), dcnn.derivatives.gradient(net, x)
dcnn.LabelScale.power_of_ten([3.0], [40.0]).scale_forces([1.0])
term = dcnn.losses.Term("value")
dcnn.losses.Fixed((term,)).combine(dcnn.losses.term_values((term,), {"value": net(x)}), list(net.parameters()), 0)
"""
        + f"print(sorted({set(HEAVY)} & sys.modules.keys()))"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [(["--help"], ["torch", "lightning", "ase"]), (["data", "info", "demo"], ["torch", "lightning", "scipy", "h5py"])],
    ids=["help", "data info"],
)
def test_a_command_imports_only_what_it_needs(arguments, unwanted):
    done = run(
        f"""
import sys, atexit
atexit.register(lambda: print("imported:", sorted(set({unwanted}) & set(sys.modules))))
sys.argv = ["dcnn", *{arguments}]
from dcnn.cli import main
main()
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("imported: []")


@pytest.mark.parametrize(
    ("missing", "code", "install"),
    [
        ("ase", "import dcnn; dcnn.atoms.load('x.xyz')", "dcnn[atoms]"),
        ("scipy", "import dcnn; dcnn.pde.problems", "dcnn[pde]"),
        ("pydantic", "import dcnn; dcnn.fit({'problem': {'name': 'heat'}})", "dcnn[cli"),
    ],
)
def test_a_missing_extra_is_one_line(missing, code, install):
    done = run(BLOCK.format(names={missing}) + code)
    assert done.returncode == 1
    assert f"this needs {missing}: pip install '{install}" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("missing", "command"), [("typer", ["--help"]), ("ase", ["data", "info", "demo"])])
def test_the_command_line_says_what_to_install(missing, command):
    done = run(BLOCK.format(names={missing}) + f"sys.argv = ['dcnn', *{command}]; from dcnn.cli import main; main()")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == f"dcnn: this needs {missing}: pip install 'dcnn[all]'"


def test_everything_public_is_listed_and_found():
    assert set(dcnn.__all__) <= set(dir(dcnn))
    assert all(getattr(dcnn, name) is not None for name in dcnn.__all__)
    assert set(dcnn.atoms.__all__) <= set(dir(dcnn.atoms))
    assert all(callable(getattr(dcnn.atoms, name)) for name in dcnn.atoms.__all__)
    with pytest.raises(AttributeError, match="no attribute 'adit'"):
        _ = dcnn.adit
