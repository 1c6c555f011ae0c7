"""`dcnn reproduce`: results, page and table beside the paper's numbers; what is kept, refused and asked for."""

import json
import sys
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from dcnn import paper
from dcnn.atoms.config import AtomsConfig
from dcnn.cli import reproduce as command
from dcnn.cli.result_table import result_table
from dcnn.errors import DcnnError, InputError
from dcnn.grid import engine
from dcnn.grid.cells import collect
from dcnn.paper.cost import Cost
from dcnn.pde.build import build_problem, build_terms
from dcnn.pde.config import PdeLoss, ProblemConfig
from dcnn.results import fit_config as fit
from dcnn.results import resolve
from dcnn.train.text import to_yaml

TINY_NETWORK = {"overrides": {"features": 8, "filters": 8, "blocks": 1, "gaussians": 5}}
TINY_DATA = {"train": 20, "validation": 5, "test": 10}
TINY_POINTS = {"interior": 20, "boundary": 8, "initial": 8}

app = typer.Typer()
app.command()(command.reproduce)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def tiny(config):
    """The same run with a network, data and budget of next to nothing."""
    training = replace(config.training, minutes=None, steps=4, accelerator="cpu")
    if isinstance(config, AtomsConfig):
        model = config.model.model_copy(update=TINY_NETWORK)
        changed = {"model": model, "data": config.data.model_copy(update=TINY_DATA)}
    else:
        network = config.network.model_copy(update={"width": 6, "depth": 2})
        changed = {"network": network, "points": config.points.model_copy(update=TINY_POINTS), "steps_per_epoch": 2}
    return config.model_copy(update={**changed, "training": training})


@pytest.fixture
def in_process(monkeypatch):
    """Cells are trained here, tiny; the real engine has tests of its own."""
    asked = []

    def fake(cells, folder, on="local", jobs=2, watch=None):
        asked.append((on, jobs, str(folder)))
        for number, cell in enumerate(cells):
            watch([cell.name], number)
            path = engine.local_copy(folder) / cell.name
            if not (path / "result.json").exists():
                fit(tiny(cell.config), path)
        return [collect(cell, engine.local_copy(folder) / cell.name) for cell in cells]

    monkeypatch.setattr(engine, "run", fake)
    return asked


def test_a_table_of_potentials_stands_beside_the_papers(in_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dcnn", "reproduce", "table1", "--models", "schnet"])
    text = run("table1", "--models", "schnet", "--seeds", 2, "--jobs", 1, "--on", "ray:host:1", "-o", "out")
    assert in_process == [("ray:host:1", 1, "out/cells")]
    assert "(paper 0.680)" in text
    assert "force MAE against original:" in text
    result = json.loads((tmp_path / "out/result.json").read_text())
    assert result["scale"] == "smoke"
    assert result["command"] == "dcnn reproduce table1 --models schnet"
    assert len(result["runs"]) == 4
    original, method = result["rows"]
    error = method["errors"][paper.FORCES]
    assert (original["recipe"], method["recipe"]) == ("original", "paper")
    assert error["published"] == 1.53
    assert error["published_ratio"] == pytest.approx(1.53 / 0.68)
    assert error["ratio"] == pytest.approx(error["mean"] / original["errors"][paper.FORCES]["mean"])
    assert error["same_way"] is (error["ratio"] >= 1)
    assert error["beyond"] in (True, False)
    assert {"what": ["ethanol", "schnet", "paper"], paper.ENERGY: 13.39, paper.FORCES: 1.53} in result["published"]
    page = (tmp_path / "out/report.html").read_text()
    assert "GFN2-xTB frames of ethanol instead of MD17" in page
    assert "published 1.53" in page
    assert "force errors of CGCNN, DimeNet++ and ForceNet" in page


def test_a_sweep_is_drawn(monkeypatch, tmp_path):
    plan = paper.plan(paper.get("scaling"), paper.Options())
    runs = [
        {**cell.labels, "folder": "", "status": "finished", "test": {paper.FORCES: 1.0, paper.ENERGY: 2.0}}
        for cell in plan.cells
    ]
    rows = paper.rows(plan, runs)
    figures = command._figures(plan, rows)
    assert [f.title for f in figures] == [f"{e} MAE against the training frames" for e in ("Force", "Energy")]
    assert [row.labels["frames"] for row in rows] == [100, 400, 1600]
    assert result_table(rows).columns[0].header == "recipe"
    assert result_table(rows).columns[1].header == "frames"


def test_a_pde_shows_its_loss_terms_and_the_constant(in_process, tmp_path):
    text = run("table3", "-o", tmp_path, "--recipes", "paper")
    for word in ("nRMSE of the", "(paper", "0.990", "L_f", "0.0800", "10⁻⁴⁵"):
        assert word in text
    (row,) = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert set(row["terms"]) == {"f", "ic", "bc"}
    assert row["terms"]["ic"]["published"] == 0.08
    assert all(term["mean"] >= 0 for term in row["terms"].values())
    assert 0.5 < row["errors"]["constant_nrmse"]["mean"] < 1.5
    page = (tmp_path / "report.html").read_text()
    assert "Error and loss terms" in page
    assert "L_IC" in page


def test_the_scripts_terms_and_those_of_the_right_equations_make_the_same_columns():
    for name in ("table3", "table4", "table5"):
        experiment = paper.get(name)
        for fidelity in ("text", "scripts"):
            problem = build_problem(ProblemConfig(name=experiment.problem, fidelity=fidelity))
            ours = {term.name for term in build_terms(problem, problem.soft_conditions(), PdeLoss())}
            used = [term for column in experiment.terms.values() for term in column[fidelity]]
            assert sorted(used) == sorted(ours)


def test_table_2_and_other_rows_survive_what_diverged(tmp_path):
    plan = paper.plan(paper.get("table2"), paper.Options(models=("schnet",)))
    errors = {paper.FORCES: 2.0, paper.ENERGY: 3.0}
    runs = [
        {**plan.cells[0].labels, "status": "finished", "test": errors},
        {**plan.cells[1].labels, "status": "diverged", "test": {paper.FORCES: None}},
    ]
    first, second = paper.rows(plan, runs)
    assert first.cell(paper.FORCES).published == pytest.approx(2.306, rel=1e-3)
    assert (second.to_dict()["errors"], second.count) == ({}, "1 (1 diverged)")
    assert paper.agreement([first, second], paper.FORCES) == {"compared": 0, "same_way": 0, "beyond": 0}
    assert result_table([first, second]).row_count == 2


def test_figure_1_looks_up_the_papers_number_by_its_weight():
    plan = paper.plan(paper.get("fig1"), paper.Options())
    errors = {paper.FORCES: 1.0, paper.ENERGY: 2.0}
    runs = [{**cell.labels, "molecule": "aspirin", "status": "finished", "test": errors} for cell in plan.cells]
    known = [row.labels["beta"] for row in paper.rows(plan, runs) if row.cells[0].published is not None]
    assert known == [30.0]


def test_the_papers_scale_tells_its_cost_and_waits(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "estimate", lambda cells: [Cost("original", 4, 60_000, 0.6)])
    monkeypatch.setattr(engine, "run", lambda *a: pytest.fail("started without --yes"))
    with pytest.raises(InputError, match=r"table3 at the paper's scale takes 10 core hours; start with --yes"):
        run("table3", "--scale", "paper", "-o", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table9"], "unknown table or figure 'table9'"),
        (["table1", "--models", "schnet,gemnett"], "did you mean 'gemnet'"),
        (["table1", "--on", "cloud"], "--on cloud: valid are"),
        (["table1", "--data", "nowhere", "--scale", "small"], "nowhere: no such data folder"),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(arguments, message, tmp_path):
    with pytest.raises(InputError, match=message):
        run(*arguments, "-o", tmp_path)


def test_an_interrupted_grid_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.LocalWorkers, "finished", interrupted)
    monkeypatch.setattr(engine.LocalWorkers, "submit", lambda *_: None)
    monkeypatch.setattr(engine.LocalWorkers, "pending", ["x"])
    with pytest.raises(DcnnError, match=r"0 of 2 runs .*the same command goes on"):
        run("table1", "--models", "schnet", "-o", tmp_path)


@pytest.mark.parametrize("name", paper.EXPERIMENTS)
def test_the_process_of_a_cell_trains_just_what_the_cell_says(name, tmp_path):
    plan = paper.plan(paper.get(name), paper.Options())
    for cell in plan.cells:
        (tmp_path / "cell.yaml").write_text(to_yaml(cell.config.to_dict()))
        assert resolve(str(tmp_path / "cell.yaml"), None, []) == cell.config
