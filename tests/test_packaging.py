"""What is installed: the lock holds everything CI needs; wheel and sdist hold everything the package needs."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def name_of(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def needed(extra):
    """The requirements of an extra, with those of the extras that it names."""
    for requirement in PROJECT["optional-dependencies"][extra]:
        if own := re.fullmatch(r"dcnn\[(.+)\]", requirement):
            for other in own[1].split(","):
                yield from needed(other.strip())
        else:
            yield requirement


@pytest.mark.parametrize("requirement", [*PROJECT["dependencies"], *needed("dev")])
def test_the_lock_holds_what_ci_installs(requirement):
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    locked = {name_of(line): line.split("==")[1] for line in lines if "==" in line}
    assert name_of(requirement) in locked, f"{requirement} is not in constraints.txt: run `make lock`"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from the unpacked sdist, so that both are seen to be complete."""
    folder = tmp_path_factory.mktemp("build")
    tree = folder / "tree"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    make = "from setuptools import build_meta; build_meta.build_{}({!r})"
    execute([sys.executable, "-c", make.format("sdist", str(folder))], tree)
    (sdist,) = folder.glob("dcnn-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sdist", filter="data")
    (unpacked,) = (folder / "sdist").iterdir()
    execute([sys.executable, "-c", make.format("wheel", str(folder))], unpacked)
    (built,) = folder.glob("dcnn-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A new environment with the wheel, torch, numpy and what these two need; nothing else, and no network."""
    folder = tmp_path_factory.mktemp("environment")
    execute([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = folder / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    execute(install)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in closure("torch", "numpy"):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(distribution.locate_file(top)))
    return python


def execute(command, folder=None):
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def closure(*names):
    """Installed distributions that these need, without their extras."""
    found, waiting = set(), list(names)
    while waiting:
        name = name_of(waiting.pop())
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        if name not in found:
            found.add(name)
            waiting += [requirement for requirement in needs if "extra ==" not in requirement]
    return found


def test_data_and_templates_are_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in held if name.endswith(".dist-info/METADATA"))
    kept = [path for path in (ROOT / "src" / "dcnn").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT / "src").as_posix() for path in kept} <= held
    assert any(name.endswith("ethanol_xtb.npz") for name in held)
    assert any(name.endswith(".html") for name in held)
    always = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert sorted(name_of(line.split(": ")[1]) for line in always) == ["numpy", "torch"]


def test_the_core_works_in_a_clean_environment(environment):
    code = """
import torch, dcnn
from torch import nn
assert "site-packages" in dcnn.__file__
net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
print(dcnn.audit(net, torch.randn(8, 2)).codes, dcnn.swap_activations(net, "silu"))
try:
    dcnn.atoms.load("frames.xyz")
except dcnn.DcnnError as error:
    print(error)
"""
    seen, missing = execute([str(environment), "-c", code]).splitlines()
    assert seen == "['DC101'] ['1']"
    assert missing == "this needs ase: pip install 'dcnn[atoms]'"
    done = subprocess.run([environment.parent / "dcnn"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "dcnn: this needs typer: pip install 'dcnn[all]'\n")
