"""What the README shows works: every command (with a smaller budget), every line of Python, every link."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import dcnn
from dcnn import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SHELL = [
    line.split("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]
SMALLER = (  # the README's budgets are minutes; here each command must only show that it works
    (r"training\.minutes=[\d.]+", "training.steps=4"),
    (r"--minutes [\d.]+ --seeds \d+", "--epochs 1 --seeds 1"),
    (r"--steps \d+", "--steps 4 --outside ignore"),
    (r"--frames \d+", "--frames 3"),
)


def test_commands_of_the_readme(tmp_path, monkeypatch):
    """One after the other, as they stand there: a later one uses the run of an earlier one."""
    dcnn.atoms.write(dcnn.atoms.demo_dataset()[:120], tmp_path / "my_frames.xyz")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for command in [line for line in SHELL if line.startswith("dcnn ")]:
        for pattern, smaller in SMALLER:
            command = re.sub(pattern, smaller, command)
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code in (0, None), f"{command} ended with {stop.value.code}"


def test_everything_else_in_the_shell_blocks_is_make():
    targets = [line for line in SHELL if not line.startswith("dcnn ")]
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["make demo", "make test"]
    assert all(re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE) for line in targets)


def test_the_python_of_the_readme():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    x = torch.rand(32, 2)
    scope = {"model": model, "sample": x, "net": model, "x": x, "dataset": dcnn.atoms.demo_dataset()[:20]}
    exec(code, scope)
    assert scope["u"]["xx"].shape == (32, 1)
    assert dcnn.audit(model, x).ok
    assert scope["scale"].references


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()
