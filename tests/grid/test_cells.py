"""A cell is known by its labels, its whole configuration and the content of its files."""

import json
import os

import pytest

from dcnn import atoms
from dcnn.errors import InputError
from dcnn.grid import engine
from dcnn.grid.cells import GridCell, write_json
from dcnn.grid.comparison import budget_words, cells_of, recipes_for
from dcnn.results import as_config, resolve
from dcnn.train.text import to_yaml

TINY = ["model.overrides={features: 16, filters: 16, blocks: 1, gaussians: 10}", "data.train=20"]
TINY += ["data.validation=5", "data.test=10"]


def cells(target="demo", recipes=("original", "best"), seeds=1, more=()):
    return cells_of(str(target), recipes, ["schnet"], seeds, [*TINY, "training.epochs=1", *more])


def test_every_recipe_and_seed_is_a_cell():
    found = cells(seeds=2)
    names = [cell.name.rpartition("-")[0] for cell in found]
    assert names == ["schnet-original-0", "schnet-original-1", "schnet-best-0", "schnet-best-1"]
    assert len({cell.name for cell in found}) == 4
    assert [cell.name for cell in cells(seeds=2)] == [cell.name for cell in found]


@pytest.mark.parametrize("word", ["training.epochs=2", "data.train=21", "model.overrides={features: 8}"])
def test_other_settings_are_another_cell(word):
    words = [w for w in [*TINY, "training.epochs=1"] if w.partition("=")[0] != word.partition("=")[0]]
    (usual,), (other,) = cells(recipes=["best"]), cells_of("demo", ["best"], ["schnet"], 1, [*words, word])
    assert usual.labels == other.labels
    assert usual.name != other.name


def test_a_file_that_changed_is_another_cell(tmp_path):
    path = tmp_path / "a.npz"
    atoms.write(atoms.demo_dataset()[:60], path)
    before = cells(path)[0].name
    os.utime(path, ns=(1, 1))
    assert cells(path)[0].name == before, "the same content"
    atoms.write(atoms.demo_dataset()[60:120], path)
    assert cells(path)[0].name != before


def test_index_lists_and_problems_of_ones_own_are_part_of_a_cell(tmp_path):
    lists, problem = tmp_path / "lists", tmp_path / "mine.py"
    lists.mkdir()
    config = as_config({"kind": "atoms", "data": {"split": str(lists)}, "training": {"epochs": 1}})
    own = as_config({"kind": "pde", "problem": {"name": str(problem)}, "training": {"epochs": 1}})
    seen = set()
    for text in ("1", "2"):
        (lists / "train.pkl").write_text(text)
        problem.write_text(text)
        seen |= {GridCell({}, config).digest, GridCell({}, own).digest}
    assert len(seen) == 4


def test_a_second_comparison_does_not_show_the_first_ones_numbers(tmp_path):
    """Other data under the same name, in the same folder: the runs are made anew, and the old ones stay."""
    path, out = tmp_path / "frames.npz", tmp_path / "out"
    frames = atoms.demo_dataset()
    found = []
    for part in (frames[:60], frames[1000:1060]):
        atoms.write(part, path)
        found += engine.run(cells(path, ["best"]), out, jobs=1)
    assert found[0]["test"] != found[1]["test"]
    assert len([run for run in out.iterdir() if run.is_dir()]) == 2
    atoms.write(frames[:60], path)
    assert engine.run(cells(path, ["best"]), out) == [found[0]], "kept"
    write_json(out / "compare.json", found, target="demo")
    assert json.loads((out / "compare.json").read_text())["runs"][1]["test"] == found[1]["test"]


def test_a_configuration_file_is_compared_under_every_recipe(tmp_path):
    (tmp_path / "c.yaml").write_text("kind: atoms\ndata: {path: demo}\ntraining: {epochs: 3}\n")
    original, best = cells_of(str(tmp_path / "c.yaml"), ["original", "best"], [None], 1)
    assert (original.config.recipe, original.config.scale.references) == ("original", None)
    assert (best.config.recipe, best.config.scale.references) == ("best", "elements")
    assert best.config.training.epochs == original.config.training.epochs == 3


def test_one_run_is_not_shown_as_three(tmp_path):
    (tmp_path / "c.yaml").write_text(to_yaml(resolve("demo", "best", TINY).to_dict()))
    with pytest.raises(InputError, match=r"c\.yaml: original 0 and paper 0 are the same run"):
        cells_of(str(tmp_path / "c.yaml"), ["original", "paper", "best"], [None], 1)
    with pytest.raises(InputError, match="best 0 and best 0 are the same run"):
        cells_of("demo", ["best", "best"], [None], 1)


@pytest.mark.parametrize(
    ("words", "epochs", "minutes"), [([], 1, 2.0), (["training.epochs=1"], None, 1.0), (["training.steps=5"], 3, None)]
)
def test_two_budgets_are_refused(words, epochs, minutes):
    with pytest.raises(InputError, match="give one budget"):
        budget_words(words, epochs, minutes)


def test_no_time_at_all_is_refused():
    with pytest.raises(InputError, match=r"training\.minutes"):
        cells_of("demo", ["best"], [None], 1, budget_words([], None, 0.0))


def test_no_recipe_is_refused():
    with pytest.raises(InputError, match="at least one recipe"):
        cells_of("demo", [], [None], 1)


def test_the_fair_opponent_is_compared_by_default():
    assert recipes_for("demo") == ("original", "paper", "standard", "best")
    assert recipes_for("heat") == ("original", "paper", "best")
    (cell,) = cells_of("demo", ["standard"], [None], 1)
    (stage,) = cell.config.training.stages
    assert (cell.config.scale.references, cell.config.loss.forces.norm, cell.config.training.batch_size) == (
        "mean",
        "l2",
        10,
    )
    assert (stage.optimizer, stage.learning_rate, stage.schedule) == ("adam", 5e-4, "plateau")
    assert (cell.config.model.activation, cell.config.model.normalization) == (None, True), "as published"
