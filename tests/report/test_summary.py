"""Groups, means, spreads and which way a comparison goes, from run folders made by hand."""

import json
import math
from statistics import stdev

import pytest

from dcnn.errors import InputError
from dcnn.report import write_page
from dcnn.report.curves import at_a_glance, colouring, validation_curves
from dcnn.report.reported_run import LABELS, find_runs, label_of, records, typical
from dcnn.results import as_config
from dcnn.results.statistics import summarise
from dcnn.train import Run

FORCE = "force_mae_kcal_mol_A"


def made(folder, recipe, seed=0, error=1.0, status="finished", model="schnet", data="demo", **loss):
    """A run folder as training leaves it, without the training."""
    values = {"recipe": recipe, "seed": seed, "data": {"path": data}, "model": {"name": model}, "loss": loss}
    config = as_config({"kind": "atoms", **values, "training": {"epochs": 2}})
    run = Run.create(folder, config)
    for epoch in (1, 2):
        row = {"epoch": epoch, "step": 10 * epoch, "train_loss": 1.0 / epoch, "train_energy_raw": 1.0 / epoch}
        run.append({**row, f"validation_{FORCE}": error / epoch})
    if status != "unfinished":
        test = {FORCE: None if status == "diverged" else error, "efwt": 0.0}
        sizes = {"steps": 20, "seconds": 1.0, "parameters": 5}
        versions = {"dcnn_version": "0", "torch_version": "0"}
        run.finish({"status": status, "test": test, **sizes, **versions})
    return folder


def found(folder):
    return summarise(records(find_runs([folder])), LABELS)


def rows_of(folder):
    return {row.labels["recipe"]: row for row in found(folder)}


def test_seeds_are_averaged_and_compared_with_the_original(tmp_path):
    for seed, (ours, theirs) in enumerate([(1.0, 4.0), (1.2, 4.4), (1.4, 3.6)]):
        made(tmp_path / f"best-{seed}", "best", seed, ours)
        made(tmp_path / f"original-{seed}", "original", seed, theirs)
    rows = rows_of(tmp_path)
    cell = rows["best"].cells[0]
    assert cell.stat.mean == pytest.approx(1.2)
    assert cell.stat.spread == pytest.approx(stdev([1.0, 1.2, 1.4]))
    assert (cell.verdict.direction, cell.verdict.text, cell.verdict.beyond) == ("better", "3.3× lower", True)
    assert cell.best
    assert rows["original"].reference is None
    text = write_page([tmp_path], tmp_path / "page.html").read_text()
    assert f"against original: 3.3× lower, {cell.verdict.certainty}" in text
    assert "2.9 degrees of freedom" in cell.verdict.certainty


def test_what_has_learnt_nothing_is_a_line_in_every_chart_of_its_error(tmp_path):
    for recipe in ("original", "best"):
        folder = made(tmp_path / recipe, recipe)
        values = json.loads((folder / "result.json").read_text())
        values["test"] |= {"zero_force_mae_kcal_mol_A": 20.0}
        (folder / "result.json").write_text(json.dumps(values))
    text = write_page([tmp_path], tmp_path / "page.html").read_text()
    assert "What has learnt nothing has: zero forces 20 kcal/mol/Å" in text
    for figure in (*validation_curves(found(tmp_path)), *at_a_glance(found(tmp_path))):
        assert "zero forces" in [key.text for key in figure.keys]
    alone = write_page([tmp_path / "best"], tmp_path / "page.html").read_text()
    assert alone.count("<title>zero forces</title>") == 1


def test_published_numbers_stand_beside_ours_and_say_whether_the_direction_agrees(tmp_path):
    made(tmp_path / "o", "original", error=1.0)
    made(tmp_path / "p", "paper", error=2.0)
    published = {("demo", "schnet", "original"): {FORCE: 1.21}, ("demo", "schnet", "paper"): {FORCE: 0.9}}
    text = write_page([tmp_path], tmp_path / "page.html", "t", published).read_text()
    assert "published 0.900, 26 % lower" in text
    assert "✗ other way" in text


def test_diverged_and_unfinished_runs_are_counted_and_shown(tmp_path):
    made(tmp_path / "a", "best", 0, 1.0)
    made(tmp_path / "b", "best", 1, status="diverged")
    made(tmp_path / "c", "best", 2, status="unfinished")
    row = rows_of(tmp_path)["best"]
    assert row.count == "3 (1 diverged, 1 unfinished)"
    assert row.cells[0].stat.values == (1.0,)
    text = write_page([tmp_path / "b"], tmp_path / "page.html").read_text()
    assert "Diverged: the loss was no number any more at step 20" in text
    assert "dcnn train --resume" in write_page([tmp_path / "c"], tmp_path / "page.html").read_text()


def test_runs_that_differ_in_a_setting_are_kept_apart(tmp_path):
    for weight in (0.1, 10.0):
        for seed in (0, 1):
            made(tmp_path / f"{weight}-{seed}", "original", seed, forces={"weight": weight, "norm": "l1"})
    kinds = found(tmp_path)
    assert [kind.labels["variant"] for kind in kinds] == ["loss.forces.weight=0.1", "loss.forces.weight=10.0"]
    assert [len(kind.runs) for kind in kinds] == [2, 2]
    assert label_of(kinds[0], kinds) == "loss.forces.weight=0.1"


def test_the_run_with_the_middle_error_is_looked_at(tmp_path):
    for seed, error in enumerate((5.0, 1.0, 3.0)):
        made(tmp_path / f"{seed}", "best", seed, error)
    assert typical(found(tmp_path)[0]).seed == 2


def test_curves_and_dots_are_drawn_data_by_data(tmp_path):
    for data in ("demo", "other.npz"):
        for recipe in ("original", "best"):
            made(tmp_path / f"{data}-{recipe}", recipe, data=data)
    kinds = found(tmp_path)
    curves, dots = validation_curves(kinds), at_a_glance(kinds)
    assert [figure.title for figure in curves] == [f"Validation force MAE, {data}" for data in ("demo", "other")]
    assert [figure.title for figure in dots] == [f"Test force MAE, {data}" for data in ("demo", "other")]


def test_beyond_eight_groups_a_colour_is_a_recipe(tmp_path):
    models = ["schnet", "gemnet", "cgcnn", "forcenet", "dimenet_plus_plus"]
    for model in models:
        for recipe in ("original", "best"):
            made(tmp_path / f"{model}-{recipe}", recipe, model=model)
    kinds = found(tmp_path)
    assert len({label for _, label in colouring(kinds[:8])}) == 8
    assert {label for _, label in colouring(kinds)} == {"original", "best"}


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_runs_is_explained(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no such folder" if name == "missing" else "holds no run"):
        find_runs([tmp_path / name])


def test_no_run_at_all_and_a_broken_result_are_explained(tmp_path):
    with pytest.raises(InputError, match="at least one run"):
        find_runs([])
    made(tmp_path / "a", "best")
    (tmp_path / "a" / "result.json").write_text("{")
    with pytest.raises(InputError, match=r"result\.json: not "):
        find_runs([tmp_path])


def test_a_run_given_twice_is_shown_once(tmp_path):
    made(tmp_path / "a", "best")
    assert len(find_runs([tmp_path, tmp_path / "a"])) == 1


def test_errors_that_are_no_numbers_are_not_averaged(tmp_path):
    folder = made(tmp_path / "a", "best")
    values = json.loads((folder / "result.json").read_text())
    values["test"] = {FORCE: None}
    (folder / "result.json").write_text(json.dumps(values))
    assert rows_of(folder)["best"].cells[0].stat is None
    assert math.isfinite(len(write_page([folder], tmp_path / "p.html").read_text()))
