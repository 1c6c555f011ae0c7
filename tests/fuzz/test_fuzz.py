"""The short run of the fuzzer: hostile files and a hundred mutations a reader; `make fuzz` is the long one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
linux = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured by Linux' /proc")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)


@linux
def test_hostile_files_are_refused_at_once():
    done = run(str(HERE / "fuzz.py"), "--hostile")
    assert done.returncode == 0, done.stdout + done.stderr


@linux
def test_damaged_files_are_read_or_refused():
    done = run(str(HERE / "fuzz.py"), "--mutations", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(line.split(" | ")[1:2] == ["100"] for line in done.stdout.splitlines()) == 20


FAULTS = """
import os
from pathlib import Path
from fuzz import run
from seeds import Reader

def forever(path):
    while True:
        pass

held = []
faults = {
    "slow": forever,
    "crash": lambda path: os.abort(),
    "traceback": lambda path: {}["missing"],
    "memory": lambda path: held.append(bytearray(b"x") * (300 << 20)),
    "wrote": lambda path: (path.parent / "another").write_text(""),
}
for name, read in faults.items():
    counts = run(Reader(name, "file", lambda folder: [b""], read), lambda number: b"", 2)
    assert counts[name] >= 1 and counts.total() == 2, (name, counts)
"""


@linux
def test_the_fuzzer_sees_every_kind_of_fault():
    done = run("-c", FAULTS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_name_with_a_question_mark_is_only_a_name(tmp_path):
    from dcnn.atoms import Structure, load
    from dcnn.atoms.data import write
    from dcnn.atoms.dataset import Dataset
    from dcnn.errors import InputError

    (tmp_path / "a?b.db").write_bytes(b"text")
    with pytest.raises(InputError, match=r"a\?b\.db: not a readable ASE database"):
        load(tmp_path / "a?b.db")
    assert [path.name for path in tmp_path.iterdir()] == ["a?b.db"]
    write(Dataset([Structure([1], [[0, 0, 0]], energy=-1.0)]), tmp_path / "c?d@1.db")
    assert load(tmp_path / "c?d@1.db", require=())[0].energy == -1.0
