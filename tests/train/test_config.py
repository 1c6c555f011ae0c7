"""Configurations: typed, complete, re-runnable, and clear about mistakes."""

import pytest
import yaml

from dcnn.atoms.config import AtomsConfig
from dcnn.errors import InputError
from dcnn.pde.config import PdeConfig
from dcnn.results import parse as validate
from dcnn.train.config import merge
from dcnn.train.text import parse_overrides, read_yaml, to_yaml


def test_yaml_round_trip_is_the_same_configuration():
    config = validate({"kind": "atoms", "training": {"epochs": 3}, "model": {"name": "gemnet"}})
    assert validate(yaml.safe_load(to_yaml(config.to_dict()))) == config


@pytest.mark.parametrize(("kind", "expected"), [("atoms", AtomsConfig), ("pde", PdeConfig)])
def test_kind_selects_the_schema(kind, expected):
    assert isinstance(validate({"kind": kind, "training": {"steps": 1}}), expected)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "atoms", "trainning": {"epochs": 1}}, r"unknown key in the top level 'trainning'.*'training'"),
        (
            {"kind": "atoms", "energy_key": "E"},
            r"unknown key in the top level 'energy_key'.*section: data\.energy_key\.",
        ),
        ({"kind": "atoms", "loss": {"stress": 0.1}}, r"loss.stress: a term has a weight and a norm; give .weight=0.1"),
        ({"kind": "atoms", "training": {"epoch": 1}}, r"unknown key in training 'epoch'.*'epochs'"),
        (
            {"kind": "atoms", "training": {"steps": 1, "stages": [{"optimiser": "adam"}]}},
            r"'optimiser'; did you mean 'optimizer'",
        ),
        ({"kind": "pde", "training": {"steps": 1}, "network": {"widht": 3}}, r"'widht'; did you mean 'width'"),
        ({"kind": "atoms", "training": {}}, r"exactly one of epochs, steps, minutes"),
        ({"kind": "atoms", "training": {"epochs": 1, "minutes": 2}}, r"exactly one of epochs, steps, minutes"),
        ({"kind": "atoms", "training": {"epochs": -1}}, r"training.epochs: .*found -1"),
        ({"kind": "atoms", "training": {"epochs": 1, "stages": [{"share": 0.5}]}}, r"must add up to 1"),
    ],
)
def test_mistakes_name_the_field_and_the_closest_key(values, message):
    with pytest.raises(InputError, match=message):
        validate(values, "my.yaml")


def test_only_keys_are_offered_in_the_place_of_a_misspelt_one():
    with pytest.raises(InputError) as caught:
        validate({"kind": "atoms", "training": {"minuts": 1}})
    assert "__" not in str(caught.value)


def test_overrides_are_nested_and_typed():
    assert parse_overrides(["training.minutes=2.5", "model.overrides.hidden=64", "training.ema=null"]) == {
        "training": {"minutes": 2.5, "ema": None},
        "model": {"overrides": {"hidden": 64}},
    }


def test_an_override_without_equals_says_what_it_should_look_like():
    with pytest.raises(InputError, match="key=value"):
        parse_overrides(["training.minutes"])


def test_a_new_budget_replaces_the_old_one():
    assert merge({"training": {"epochs": 50, "ema": 0.9}}, {"training": {"minutes": 3}}) == {
        "training": {"ema": 0.9, "minutes": 3}
    }


@pytest.mark.parametrize(("text", "message"), [("a: [", "not a readable YAML text"), ("- 1", "expected key: value")])
def test_a_broken_file_is_named(tmp_path, text, message):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"broken.yaml.*{message}"):
        read_yaml(path)


def test_one_stage_of_several_can_be_changed_by_its_number():
    base = {"stages": [{"optimizer": "adam", "share": 0.5}, {"optimizer": "lbfgs", "share": 0.5}]}
    merged = merge(base, parse_overrides(["stages.1.history=7"]))
    assert merged["stages"] == [base["stages"][0], {"optimizer": "lbfgs", "share": 0.5, "history": 7}]
    for wrong in ("stages.2.history=7", "stages.last.history=7"):
        with pytest.raises(InputError, match="stages has 2 entries, counted from 0"):
            merge(base, parse_overrides([wrong]))
