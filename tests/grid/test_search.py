"""Searches: what is searched, how trials are scored and given up, and what is refused before anything starts."""

import math

import numpy as np
import pytest

from dcnn.errors import InputError
from dcnn.grid.halving import Halving
from dcnn.grid.search import define, history, run_search
from dcnn.grid.space import corner, drawn, overrides, split_space
from dcnn.results import TrainedRun, as_config, build_task, resolve
from dcnn.train import Run


@pytest.mark.parametrize("on", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_search_ranks_its_trials_by_validation_and_writes_the_best(on, tiny, tmp_path):
    pairs = [*tiny, "training.stages.0.learning_rate=loguniform(1e-5,1e-1)", "network.activation=choice(tanh,sin)"]
    plan = define("heat", [*pairs, "training.epochs=4"])
    seen = []
    rows = run_search(plan, tmp_path / "search", 3, on, watch=lambda running, done: seen.append(done))
    assert [row["score"] for row in rows] == sorted(row["score"] for row in rows)
    assert {row["trial"] for row in rows} == {"trial-00000", "trial-00001", "trial-00002"}
    assert {row["status"] for row in rows} <= {"finished", "stopped"}
    assert seen[-1] == 3
    best = as_config(tmp_path / "search" / "best.yaml")
    assert best.training.stages[0].learning_rate == rows[0]["sample"]["training.stages.0.learning_rate"]
    kept = TrainedRun.open(rows[0]["folder"]).config  # with what "auto" stood for
    assert (best.training, best.points, best.loss) == (kept.training, kept.points, kept.loss)
    assert best.network.activation == kept.network.activation
    stamps = {row["folder"]: Run(row["folder"]).metrics_file.stat().st_mtime_ns for row in rows}
    again = run_search(plan, tmp_path / "search", 3)
    assert [(row["trial"], row["score"]) for row in again] == [(row["trial"], row["score"]) for row in rows]
    assert stamps == {row["folder"]: Run(row["folder"]).metrics_file.stat().st_mtime_ns for row in again}


def test_tiny_weights_do_not_win(tiny):
    """The score of the same network is the same whatever the weights and norms of its loss are."""
    words = ([], ["loss.weights.boundary=1.0e-6", "loss.weights.residual=1.0e-6"], ["loss.norm=l1"])
    tasks = [build_task(resolve("heat", "best", [*tiny, "network.hard=false", *more])) for more in words]
    found = [task.evaluate(task.network, "validation") for task in tasks]
    assert found[1]["loss"] < 0.9 * found[0]["loss"]
    assert found[0]["unit_loss"] == found[1]["unit_loss"] == found[2]["unit_loss"]
    lines = ["epoch,train_loss,validation_loss,validation_unit_loss", "1,1,0.5,7.0", "2,1,0.4,8.0", "3,1,0.6,6.0"]
    config = resolve("heat", "best", [*tiny, "training.epochs=10", "training.select=best"])
    assert history("\n".join(lines), config) == [(0.1, 7.0), (0.2, 8.0), (0.3, 8.0)]


def test_a_trial_that_lags_is_given_up_at_the_first_rung():
    halving = Halving()
    assert not halving.lags("a", [(0.05, 9.0), (0.2, 3.0)])
    assert not halving.lags("b", [(0.05, 1.0)]), "not there yet"
    assert halving.lags("c", [(0.12, 3.5), (0.2, 1.0)]), "judged by what it was at the rung"
    assert not halving.lags("d", [(0.12, 2.0)])
    assert not halving.lags("a", [(0.2, 3.0), (0.5, 2.5)])
    assert halving.lags("d", [(0.12, 2.0), (0.4, 2.6)])
    assert halving.lags("e", [(0.12, math.nan)])


def test_words_are_searched_or_shared():
    space, fixed = split_space(["a.b=choice(1, x, [2, 3])", "c=randint(1,5)", "d=uniform(0,1)", "e=7"])
    assert space == {"a.b": ("choice", [1, "x", [2, 3]]), "c": ("randint", [1, 5]), "d": ("uniform", [0.0, 1.0])}
    assert fixed == ["e=7"]
    assert overrides(corner(space)) == ["a.b=1", "c=1", "d=0.0"]
    assert overrides({"a": [1, 2]}) == ["a=[1, 2]"]


def test_points_are_drawn_from_the_whole_space_and_by_the_seed():
    words = ["choice(1,x)", "randint(1,4)", "uniform(2,3)", "loguniform(1e-4,1)"]
    space, _ = split_space([f"{key}={word}" for key, word in zip("abcd", words, strict=True)])
    random = np.random.default_rng(0)
    points = [drawn(space, random) for _ in range(400)]
    assert {point["a"] for point in points} == {1, "x"}
    assert {point["b"] for point in points} == {1, 2, 3}
    assert all(2 <= point["c"] <= 3 for point in points)
    below = sum(point["d"] < 1e-2 for point in points)
    assert 150 < below < 250, "half of the decades"
    plan = define("demo", ["training.batch_size=randint(1,1000)"], seed=3)
    first, more = plan.cells(3), plan.cells(5)
    assert [cell.name for cell, _ in more[:3]] == [cell.name for cell, _ in first]
    other = define("demo", ["training.batch_size=randint(1,1000)"], seed=4).cells(3)
    assert [sample for _, sample in first] != [sample for _, sample in other]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("a=lognormal(0,1)", r"unknown distribution in 'a=lognormal\(0,1\)': 'lognormal'; did you mean 'loguniform'"),
        ("a=choice()", "no choice given"),
        ("a=choice([)", "cannot be read"),
        ("a=uniform(1)", "takes two numbers"),
        ("a=uniform(one,two)", "takes two numbers"),
        ("a=uniform(2,1)", "needs low < high"),
        ("a=loguniform(0,1)", "needs 0 < low < high"),
        ("a=1", "needs a key to search"),
    ],
)
def test_words_that_cannot_be_searched(word, message):
    with pytest.raises(InputError, match=message):
        split_space([word])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["training.stages.0.learnin_rate=choice(1)"], "did you mean 'learning_rate'"),
        (["training.stages.7.share=choice(1)"], "stages has 1 entries"),
    ],
)
def test_mistakes_are_found_before_anything_starts(pairs, message):
    with pytest.raises(InputError, match=message):
        define("demo", pairs)


def test_a_weight_of_zero_and_no_trial_are_refused():
    with pytest.raises(InputError, match="weight 0 is not computed"):
        define("heat", ["loss.weights.initial=choice(0,1)"])
    with pytest.raises(InputError, match="at least one trial"):
        run_search(define("demo", ["seed=choice(1)"]), "runs", 0)


@pytest.mark.parametrize(("recipe", "scores"), [("best", [3.0, 2.0, 2.0]), ("paper", [3.0, 2.0, 4.0])])
def test_a_trial_is_scored_by_the_weights_it_would_keep(recipe, scores):
    """The best so far where the best weights are kept, the last where the last are; infinity for a diverged run."""
    config = resolve("demo", recipe, ["training.steps=40"])
    lines = ["step,train_loss,validation_force_mae_kcal_mol_A", "10,1,3.0", "20,1,2.0", "25,1,", "30,1,4.0", "35,,"]
    found = history("\n".join(lines), config)
    assert [score for _, score in found] == [*scores, math.inf]
    assert [share for share, _ in found] == [0.25, 0.5, 0.75, 0.875]
