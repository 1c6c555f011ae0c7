"""Splits: sizes, no leakage, files of every kind, and the official ones of rMD17."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from dcnn.atoms.splits import Split, block_split, random_split, read_indices, read_split
from dcnn.errors import InputError


def parts(split: Split) -> list[set]:
    return [set(part.tolist()) for part in (split.train, split.valid, split.test)]


@pytest.mark.parametrize(
    ("train", "valid", "test", "sizes"),
    [(10, 5, None, (10, 5, 35)), (0.5, 0.1, None, (25, 5, 20)), (10, 0, 7, (10, 0, 7)), (50, 0, 0, (50, 0, 0))],
)
def test_random(train, valid, test, sizes):
    split = random_split(50, train, valid, test, seed=3)
    assert tuple(map(len, parts(split))) == sizes
    assert len(set.union(*parts(split))) == sum(sizes)
    np.testing.assert_array_equal(split.train, random_split(50, train, valid, test, seed=3).train)
    if sizes[0] < 50:
        assert parts(split) != parts(random_split(50, train, valid, test, seed=4))


@pytest.mark.parametrize("shuffled", [False, True])
def test_blocks_keep_neighbours_together(shuffled):
    place = np.random.default_rng(0).permutation(1000) if shuffled else np.arange(1000)
    split = block_split(1000, 0.6, 0.2, 0.2, seed=1, blocks=20, gap=5, order=place if shuffled else None)
    train, valid, test = (np.sort(place[part]) for part in (split.train, split.valid, split.test))
    assert len(train) > 500
    assert len(valid) > 150
    for a, b in ((train, valid), (train, test), (valid, test)):
        assert np.abs(a[:, None] - b[None]).min() > 5


def test_groups_stay_whole():
    groups = np.repeat([f"relaxation {k}" for k in range(30)], 10)
    split = block_split(300, 100, 50, 60, groups=groups)
    owners = [set(groups[part]) for part in (split.train, split.valid, split.test)]
    assert len(set.union(*owners)) == sum(map(len, owners))
    assert [len(part) for part in parts(split)] == [100, 50, 60]


def write_indices(path: Path, numbers: list[int]) -> None:
    array = np.array(numbers)
    {
        ".npy": lambda: np.save(path, array),
        ".txt": lambda: np.savetxt(path, array, fmt="%d"),
        ".csv": lambda: np.savetxt(path, array, fmt="%d"),
        ".json": lambda: path.write_text(json.dumps(numbers)),
        ".pkl": lambda: path.write_bytes(pickle.dumps(numbers)),
        ".p": lambda: path.write_bytes(pickle.dumps(array)),
        ".pt": lambda: torch.save(torch.tensor(numbers), path),
    }[path.suffix]()


@pytest.mark.parametrize("suffix", [".npy", ".txt", ".csv", ".json", ".pkl", ".p", ".pt"])
def test_index_files(suffix, tmp_path):
    path = tmp_path / f"index{suffix}"
    write_indices(path, [4, 2, 7])
    assert read_indices(path).tolist() == [4, 2, 7]
    split = read_split(path, 10)
    assert split.train.tolist() == [4, 2, 7]
    assert split.test.tolist() == [0, 1, 3, 5, 6, 8, 9]


def test_files_with_named_parts(tmp_path):
    np.savez(tmp_path / "a.npz", idx_train=[0, 1], idx_val=[2], idx_test=[3, 4])
    (tmp_path / "b.pkl").write_bytes(pickle.dumps({"train": [0, 1], "val": [2], "test": np.array([3, 4])}))
    for name in ("a.npz", "b.pkl"):
        assert parts(read_split(tmp_path / name, 5)) == [{0, 1}, {2}, {3, 4}]


class Harmful:
    def __reduce__(self):
        return os.system, ("touch ran",)


def test_a_harmful_index_file_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("list.pkl").write_bytes(pickle.dumps(Harmful()))
    for read in (read_indices, lambda path: read_split(path, 10)):
        with pytest.raises(InputError, match=r"list.pkl: refused as unsafe .* it asks for posix.system"):
            read("list.pkl")
    assert not Path("ran").exists()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


BAD = {
    "training part of the split is empty": lambda p: random_split(10, 0),
    "more than there are": lambda p: random_split(10, 8, 8, 0),
    r"asks for more": lambda p: random_split(10, 8, 8),
    "valid part is empty: 2 blocks are too few": lambda p: block_split(10, 5, 2, 3, blocks=2),
    "asks for frame 12, there are 10": lambda p: read_split(write(p / "a.txt", "1\n12\n"), 10),
    "frame 3 stands in the split more than once": lambda p: Split([3, 3]).checked(10),
    "no such index file": lambda p: read_indices(p / "none.npy"),
    "not a readable list of frame numbers": lambda p: read_indices(write(p / "a.txt", "one\n")),
    "expected whole frame numbers": lambda p: read_indices(write(p / "a.txt", "1.5\n")),
    "no training frames under 'train'; the file holds a": lambda p: read_split(write(p / "a.json", '{"a": [1]}'), 5),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_splits(message, tmp_path):
    with pytest.raises(InputError, match=message):
        BAD[message](tmp_path)


def test_the_authors_folders_hold_one_pickled_list_a_part(tmp_path):
    for part, numbers in (("train", [4, 0, 2]), ("valid", [1]), ("test", [3])):
        (tmp_path / f"{part}.pkl").write_bytes(pickle.dumps(numbers))
    split = read_split(tmp_path, 5)
    assert (split.train.tolist(), split.valid.tolist(), split.test.tolist()) == ([4, 0, 2], [1], [3])
    with pytest.raises(InputError, match="frame 4, there are 4"):
        read_split(tmp_path, 4)
    (tmp_path / "train.pkl").unlink()
    with pytest.raises(InputError, match="no list of training frames"):
        read_split(tmp_path, 5)
