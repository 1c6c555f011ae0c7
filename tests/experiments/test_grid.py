"""Grids of runs: finished cells are kept, a killed cell goes on from its checkpoint, a diverged one is a result."""

import json

import pytest

from dcnn.errors import DcnnError, InputError
from dcnn.experiments import grid
from dcnn.experiments.compare import cells_of, table
from dcnn.experiments.grid import Cell, run_grid, write_json
from dcnn.train import Run
from dcnn.train.fit import as_config

TINY = ["model.overrides={features: 16, filters: 16, blocks: 1, gaussians: 10}", "data.train=20", "data.test=10"]


def cells(seeds=1, recipes=("original", "best"), epochs=1):
    return cells_of("demo", recipes, ["schnet"], seeds, f"training.epochs={epochs}", TINY)


def test_every_recipe_and_seed_is_a_cell():
    names = [cell.name for cell in cells(seeds=2)]
    assert names == ["schnet-original-0", "schnet-original-1", "schnet-best-0", "schnet-best-1"]
    assert {cell.config.recipe for cell in cells()} == {"original", "best"}


def test_a_grid_runs_once_and_is_kept(tmp_path):
    seen = []
    runs = run_grid(cells(), tmp_path, jobs=2, watch=lambda running, done: seen.append(done))
    assert [run["recipe"] for run in runs] == ["original", "best"]
    assert all(run["status"] == "finished" for run in runs)
    assert seen[-1] == 2
    stamps = [(tmp_path / cell.name / "result.json").stat().st_mtime_ns for cell in cells()]
    assert run_grid(cells(), tmp_path) == runs
    assert stamps == [(tmp_path / cell.name / "result.json").stat().st_mtime_ns for cell in cells()]
    write_json(tmp_path / "compare.json", runs, target="demo")
    assert json.loads((tmp_path / "compare.json").read_text())["runs"][1]["test"] == runs[1]["test"]


def test_a_killed_cell_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    started = []
    start = grid.start

    def start_and_kill_once(config, folder):
        process = start(config, folder)
        started.append(folder)
        if len(started) == 1:
            while not Run(folder).last.exists() and process.poll() is None:
                pass
            process.kill()
        return process

    monkeypatch.setattr(grid, "start", start_and_kill_once)
    (run,) = run_grid(cells(recipes=("best",), epochs=40), tmp_path, jobs=1)
    assert len(started) == 2
    assert run["epochs"] == 40
    assert "resumed after epoch" in (tmp_path / "schnet-best-0" / "log.txt").read_text()


def test_a_cell_that_cannot_run_ends_the_grid_with_its_reason(tmp_path):
    config = as_config({"kind": "atoms", "data": {"path": "/no/such/file.npz"}, "training": {"epochs": 1}})
    with pytest.raises(InputError, match=r"no/such/file\.npz: no such file"):
        run_grid([Cell({"name": "missing"}, config)], tmp_path)


def test_a_cell_that_dies_again_and_again_leaves_the_others_their_results(tmp_path, monkeypatch):
    started = []
    start = grid.start

    def start_and_kill_original(config, folder):
        process = start(config, folder)
        started.append(folder.name)
        if "original" in folder.name:
            process.kill()
        return process

    monkeypatch.setattr(grid, "start", start_and_kill_original)
    with pytest.raises(DcnnError, match=r"1 of 2 runs died 3 times; the others are kept.*\n.*schnet-original-0: "):
        run_grid(cells(), tmp_path, jobs=1)
    assert started.count("schnet-original-0") == 3
    assert Run(tmp_path / "schnet-best-0").result().values["status"] == "finished"


def run(recipe, value, status="finished"):
    return {"model": "schnet", "recipe": recipe, "status": status, "test": {"nrmse": value}}


def test_the_table_has_mean_and_spread_and_counts_what_diverged():
    rows = table([run("best", 1.0), run("best", 3.0), run("best", None, "diverged"), run("paper", 5.0)])
    assert rows[0]["errors"]["nrmse"] == pytest.approx((2.0, 2**0.5))
    assert (rows[0]["runs"], rows[0]["diverged"]) == (3, 1)
    assert rows[1]["errors"]["nrmse"] == (5.0, None)


def test_no_recipe_is_refused():
    with pytest.raises(InputError, match="at least one recipe"):
        cells_of("demo", [], [None], 1)
