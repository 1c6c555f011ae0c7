"""`dcnn sweep`: what it prints; the search itself has tests of its own."""

import json
import math

import pytest
import typer
from typer.testing import CliRunner

from dcnn.cli import sweep as command

app = typer.Typer()
app.command()(command.sweep)


@pytest.fixture
def untrained(monkeypatch):
    def run_search(plan, folder, samples, on, jobs, watch):
        rows = [(0, "finished", 0.25, 100.0), (1, "stopped", math.inf, 12.0)]
        return [
            {"trial": f"trial-{n}", "folder": "", "status": status, "score": score, "budget_percent": budget,
             "sample": {"seed": n}}
            for n, status, score, budget in rows
        ]  # fmt: skip

    monkeypatch.setattr(command, "run_search", run_search)


def out(*arguments):
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_trials_stand_in_a_table_and_the_best_can_be_trained(untrained, tmp_path):
    text = out("demo", "seed=choice(0,1)", "-o", str(tmp_path))
    assert f"dcnn train {tmp_path}/best.yaml" in text
    for word in ("trial-0", "0.25", "12 %", "stopped"):
        assert word in text


def test_json_has_no_infinity(untrained, tmp_path):
    found = json.loads(out("demo", "seed=choice(0,1)", "-o", str(tmp_path), "--json"))
    assert [trial["score"] for trial in found["trials"]] == [0.25, None]
    assert found["best"] == f"{tmp_path}/best.yaml"
