"""The table of sound and broken models: no false error, every planted fault found; docs/audit.md gives its counts."""

import re
from pathlib import Path

import pytest
import torch
from models_broken import BROKEN
from models_sound import SOUND

import dcnn


def codes_of(case):
    torch.manual_seed(0)
    model, sample = case.make()
    return dcnn.audit(model, sample, **case.options)


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_sound_model_gets_no_error(name):
    report = codes_of(SOUND[name])
    assert set(report.codes) == SOUND[name].codes, str(report)
    assert not [finding for finding in report if finding.severity == "error"], str(report)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_planted_fault_is_found(name):
    report = codes_of(BROKEN[name])
    assert set(report.codes) == BROKEN[name].codes, str(report)
    assert not report.ok


def test_the_counts_of_the_documentation():
    text = Path(__file__).parents[2].joinpath("docs", "audit.md").read_text()
    found = re.search(r"(\d+) sound and (\d+) broken models", text)
    assert found is not None
    assert (int(found[1]), int(found[2])) == (len(SOUND), len(BROKEN))
    assert min(len(SOUND), len(BROKEN)) >= 40
