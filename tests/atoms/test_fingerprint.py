"""A run knows its frames again: fingerprints of data files and stored splits."""

import json
import os

import numpy as np
import pytest

from dcnn.atoms import demo_dataset, load
from dcnn.atoms.data import write
from dcnn.atoms.data.fingerprint import BLOCK, BLOCKS, check, fingerprint, load_split, save_split
from dcnn.errors import InputError


@pytest.fixture
def files(tmp_path):
    for k, name in enumerate(("a.npz", "b.npz")):
        write(demo_dataset()[20 * k : 20 * k + 20], tmp_path / name)
    return tmp_path / "a.npz", tmp_path / "b.npz"


def test_a_copy_agrees_and_a_changed_file_does_not(tmp_path):
    path, large = tmp_path / "a.xyz", tmp_path / "large.xyz"
    path.write_bytes(b"1\n\nH 0 0 0\n")
    large.write_bytes(bytes(BLOCK * BLOCKS * 2))
    stored, of_large = fingerprint(path), fingerprint(large)
    os.utime(path, (1, 1))
    check(path, stored)
    path.write_bytes(b"1\n\nH 0 0 1\n")
    with pytest.raises(InputError, match=r"a\.xyz: changed since the run began"):
        check(path, stored)
    check(large, of_large)
    with large.open("ab") as file:
        file.write(b"0")
    with pytest.raises(InputError, match="8,388,609 bytes now, 8,388,608 then"):
        check(large, of_large)
    assert fingerprint([path, large]) != fingerprint([large, path])


def test_a_split_of_several_files_comes_back(files, tmp_path):
    a, b = load(files[0], check=False), load(files[1], check=False)
    both = load(files, check=False)
    parts = {"train": both[[3, 25, 1]], "validation": a[5:7], "test": b, "demo": demo_dataset()[[8]]}
    save_split(tmp_path / "split.json", parts)
    asked = []
    back = load_split(tmp_path / "split.json", lambda names: asked.append(names) or load(names, check=False))
    assert len(asked) == 4
    assert back.keys() == parts.keys()
    for name, part in parts.items():
        assert [frame.energy for frame in back[name]] == [frame.energy for frame in part]
        np.testing.assert_array_equal(back[name].numbers, part.numbers)
    write(demo_dataset()[30:50], files[1])
    with pytest.raises(InputError, match=r"b\.npz: changed since"):
        load_split(tmp_path / "split.json", load)


def test_frames_of_python_have_no_file(files, tmp_path):
    from dcnn.atoms import Dataset

    save_split(tmp_path / "split.json", {"train": Dataset(list(demo_dataset()[:3]))})
    with pytest.raises(InputError, match="given as Python objects"):
        load_split(tmp_path / "split.json", load)


BAD = ["[]", "{}", "nonsense", '{"format": 9}', '{"format": 1, "parts": {"train": {}}}', "[" * 100_000]


@pytest.mark.parametrize("text", BAD)
def test_bad_splits_of_a_run(text, tmp_path):
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(InputError, match=r"split\.json"):
        load_split(tmp_path / "split.json", load)


def test_frames_that_are_not_there(files, tmp_path):
    save_split(tmp_path / "split.json", {"train": load(files[0], check=False)})
    content = json.loads((tmp_path / "split.json").read_text())
    wrong = {"no frame 20 among its 20": [20], "frame numbers are whole": [0.5], "no frame -1": [[-1]]}
    for message, frames in wrong.items():
        content["parts"]["train"]["frames"] = frames
        (tmp_path / "split.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=message):
            load_split(tmp_path / "split.json", lambda names: load(names, check=False))
