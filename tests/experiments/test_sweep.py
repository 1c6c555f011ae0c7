"""Sweeps: what is searched, what is reported of a trial, and what is refused before anything starts."""

import math

import pytest

from dcnn.errors import InputError
from dcnn.experiments.space import corner, overrides, split_space
from dcnn.experiments.sweep import Reporting, define, run_sweep
from dcnn.train.fit import resolve


def test_words_are_searched_or_shared():
    space, fixed = split_space(["a.b=choice(1, x, [2, 3])", "c=randint(1,5)", "d=uniform(0,1)", "e=7"])
    assert space == {"a.b": ("choice", [1, "x", [2, 3]]), "c": ("randint", [1, 5]), "d": ("uniform", [0.0, 1.0])}
    assert fixed == ["e=7"]
    assert overrides(corner(space)) == ["a.b=1", "c=1", "d=0.0"]
    assert overrides({"a": [1, 2]}) == ["a=[1, 2]"]


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
        (["training.devices=2", "seed=choice(1,2)"], "one device each"),
    ],
)
def test_mistakes_are_found_before_ray_starts(pairs, message):
    with pytest.raises(InputError, match=message):
        define("demo", pairs)


@pytest.mark.parametrize(
    ("folder", "samples", "message"), [("s3://bucket/sweep", 1, "not to a URL"), ("runs", 0, "at least one trial")]
)
def test_folders_and_counts_that_are_refused(folder, samples, message):
    with pytest.raises(InputError, match=message):
        run_sweep(define("demo", ["seed=choice(1)"]), folder, samples)


@pytest.mark.parametrize(
    ("recipe", "scores"), [("best", [3.0, 2.0, 2.0, math.inf]), ("paper", [3.0, 2.0, 4.0, math.inf])]
)
def test_a_trial_reports_the_validation_error_of_the_weights_it_would_keep(recipe, scores):
    """The best so far where the best weights are kept, the last where the last are; infinity for a diverged run."""
    told = []
    console = Reporting(told.append, resolve("demo", recipe, []))
    for number, error in enumerate((3.0, 2.0, None, 4.0)):
        console.step(number / 4, number)
        row = {"train_loss": 1.0} if error is None else {"validation_force_mae_kcal_mol_A": error}
        console.row(row, "running")
    console.row({"train_loss": math.nan}, "diverged")
    assert [report["score"] for report in told] == scores
    assert [report["budget_percent"] for report in told] == [0, 25, 75, 75]
