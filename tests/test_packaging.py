"""What is installed: the lock holds everything CI needs."""

import re
import tomllib
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
