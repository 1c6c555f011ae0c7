"""The examples run and show what they say they show."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sobolev_shows_that_every_step_helps(capsys):
    load("sobolev").main(steps=800, seeds=2)
    text = capsys.readouterr().out
    assert all(code in text for code in ("DC101", "DC202", "DC401", "DC402"))
    number = r"([\d.e+-]+) ± [\d.e+-]+"
    rows = {kind: re.search(rf"^{re.escape(kind)}\s+{number}\s+{number}", text, re.MULTILINE).groups()
            for kind in ("as is", "+ scale", "+ denormalize", "+ swap")}  # fmt: skip
    for column in (0, 1):
        errors = [float(row[column]) for row in rows.values()]
        assert errors == sorted(errors, reverse=True), rows


@pytest.mark.slow
def test_active_learning_adds_frames_that_the_engine_labels(tmp_path):
    pytest.importorskip("tblite", reason="pip install 'dcnn[xtb]'")
    small = ["--rounds", "1", "--steps", "20", "--members", "2", "--paths", "1", "--add", "5", "-o", str(tmp_path)]
    told = subprocess.run(
        [sys.executable, EXAMPLES / "active_learning.py", *small],
        check=True,
        capture_output=True,
        text=True,
        timeout=900,
    )
    counts = [int(n) for n in re.findall(r"^round \d: (\d+) frames", told.stdout, re.MULTILINE)]
    assert counts[0] == 40
    assert 40 < counts[1] <= 45


@pytest.mark.slow
def test_options_show_what_initialisation_is_worth_and_what_normalization_costs(capsys):
    load("options").main(steps=250, seeds=2)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    greeks = {" ".join(row[:-6]): float(row[-3]) for row in rows}
    assert greeks["IReLU, init_"] < greeks["IReLU"]
    assert greeks["SiLU, init_"] < greeks["SiLU"] < greeks["ReLU"]
    assert greeks["ReLU + BatchNorm"] > 2 * greeks["ReLU"]
