"""`dcnn compare`: what it prints and leaves behind; the grid itself has tests of its own."""

import json

import pytest
import typer
from typer.testing import CliRunner

from dcnn import comparing
from dcnn.cli import compare as command
from dcnn.results.metrics import ENERGY, FORCES

app = typer.Typer()
app.command()(command.compare)
ERRORS = {"original": 9.0, "paper": 5.0, "standard": 2.0, "best": 1.0}


@pytest.fixture
def untrained(monkeypatch):
    """Runs that were not made: their errors depend on recipe and seed."""

    def run(cells, folder, on, jobs, watch):
        nothing = {"zero_force_mae_kcal_mol_A": 20.0, "mean_energy_mae_kcal_mol": 4.0}
        return [
            {**cell.labels, "data": "demo", "model": "schnet", "folder": "", "status": "finished",
             "test": {FORCES: ERRORS[cell.labels["recipe"]] + 0.1 * cell.labels["seed"], ENERGY: 1.0, **nothing}}
            for cell in cells
        ]  # fmt: skip

    def write_rows_page(rows, path, title, **more):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(title)
        return path

    monkeypatch.setattr(comparing.engine, "run", run)
    monkeypatch.setattr(comparing, "write_rows_page", write_rows_page)


def out(*arguments):
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_recipe_is_compared_with_the_standard_one(untrained, tmp_path):
    text = out("demo", "-o", str(tmp_path))
    for words in ("2.10 ± 0.10", "48 % lower, df 4.0", "compared with standard by Welch's 95 % interval"):
        assert words in text
    assert "zero forces: 20 kcal/mol/Å; the mean energy: 4 kcal/mol" in text
    assert (tmp_path / "compare.html").read_text() == "demo: original, paper, standard, best"


def test_json_has_all_runs_and_what_they_say_together(untrained, tmp_path):
    found = json.loads(out("demo", "-o", str(tmp_path), "--json", "--recipes", "original,best", "--seeds", "2"))
    assert [(run["recipe"], run["seed"]) for run in found["runs"]] == [
        ("original", 0), ("original", 1), ("best", 0), ("best", 1)
    ]  # fmt: skip
    error = found["rows"][1]["errors"][FORCES]
    assert (found["rows"][1]["against"]["recipe"], error["beyond"]) == ("original", True)
    assert error["degrees_of_freedom"] == pytest.approx(2.0)
    assert json.loads((tmp_path / "compare.json").read_text())["rows"] == found["rows"]


def test_a_notebook_shows_the_table(untrained, tmp_path):
    found = comparing.compare("demo", ["standard", "best"], seeds=2, folder=tmp_path)
    table = found._repr_html_()
    assert "<td>2.050 ± 0.071 </td>" in table
    assert "49 % lower" in table
    assert [row["recipe"] for row in found.to_dict()["rows"]] == ["standard", "best"]
