"""The documentation is whole: tutorials run, every audit code and every configuration key is explained."""

import importlib.util
import json
import re
import runpy
from pathlib import Path

import pytest

from dcnn.auditing import CODES

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
SMALLER = ((r"^MINUTES = .*", "MINUTES = 0.01"), (r"^SEEDS = .*", "SEEDS = 2"))  # show that it works, no more


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "tools" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(TUTORIALS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_tutorials_run(path, tmp_path, monkeypatch):
    cells = json.loads(path.read_text())["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for pattern, smaller in SMALLER:
        code = re.sub(pattern, smaller, code, flags=re.MULTILINE)
    script = tmp_path / f"{path.stem.replace('-', '_')}.py"
    script.write_text(code)
    monkeypatch.chdir(TUTORIALS)
    runpy.run_path(str(script), run_name=script.stem)


def test_every_audit_code_has_its_section():
    page = (ROOT / "docs" / "audit-codes.md").read_text()
    assert re.findall(r"^## (DC\d+)$", page, re.MULTILINE) == sorted(CODES)


def test_every_configuration_key_is_explained(site):
    text = site.configuration()
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \| (.*) \| (.*) \|$", text, re.MULTILINE)
    names = {name for name, *_ in rows}
    assert {"model.name", "problem.name", "points.time_windows", "training.stages.N.learning_rate"} <= names
    assert [name for name, *_, meaning in rows if not meaning.strip()] == []
