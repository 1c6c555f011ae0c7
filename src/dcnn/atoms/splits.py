"""Which frames train, validate and test: random, by trajectory block, or from a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.errors import InputError
from dcnn.guard import decoding, read_array, read_arrays, read_json, read_text
from dcnn.unpickle import safe_loads

PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class Split:
    """Frame numbers of the three parts, with a line that says how they were chosen."""

    train: np.ndarray
    valid: np.ndarray = field(default_factory=lambda: np.array([], np.int64))
    test: np.ndarray = field(default_factory=lambda: np.array([], np.int64))
    origin: str = ""

    def __post_init__(self) -> None:
        for part in PARTS:
            object.__setattr__(self, part, np.asarray(getattr(self, part), np.int64).reshape(-1))

    def checked(self, n_frames: int, source: str = "") -> Split:
        """The split itself; refused if a part repeats, shares or lacks frames, or the training part is empty."""
        where = f"{source}: " if source else ""
        if len(self.train) == 0:
            raise InputError(f"{where}the training part of the split is empty; ask for at least one frame")
        everything = np.concatenate([self.train, self.valid, self.test])
        if everything.min() < 0 or everything.max() >= n_frames:
            wrong = everything[(everything < 0) | (everything >= n_frames)][0]
            raise InputError(f"{where}the split asks for frame {wrong}, there are {n_frames} (numbered from 0)")
        numbers, count = np.unique(everything, return_counts=True)
        if count.max() > 1:
            raise InputError(f"{where}frame {numbers[count > 1][0]} stands in the split more than once")
        return self


def sizes(n_frames: int, train: float, valid: float, test: float | None) -> tuple[int, int, int]:
    """Numbers of frames of the parts from counts (≥ 1) or fractions (< 1); ``test=None`` takes the rest."""
    counts = [round(part * n_frames) if 0 < part < 1 else int(part) for part in (train, valid, test or 0)]
    if test is None:
        counts[2] = n_frames - counts[0] - counts[1]
    if min(counts) < 0 or sum(counts) > n_frames:
        raise InputError(
            f"a split into {counts[0]} + {counts[1]} + {counts[2]} frames asks for more than there are ({n_frames})"
        )
    return counts[0], counts[1], counts[2]


def random_split(n_frames: int, train: float, valid: float = 0, test: float | None = None, seed: int = 0) -> Split:
    """Frames drawn at random. Neighbouring frames of a trajectory may end up in different parts.

    >>> random_split(10, train=6, valid=2, seed=1).valid
    array([..., ...])
    """
    n_train, n_valid, n_test = sizes(n_frames, train, valid, test)
    order = np.random.default_rng(seed).permutation(n_frames)
    first, second, third = np.split(order[: n_train + n_valid + n_test], [n_train, n_train + n_valid])
    return Split(first, second, third, f"random, seed {seed}").checked(n_frames)


def block_split(
    n_frames: int,
    train: float,
    valid: float = 0,
    test: float | None = None,
    seed: int = 0,
    blocks: int = 20,
    gap: int = 0,
    order: np.ndarray | None = None,
    groups: Iterable[Any] | None = None,
) -> Split:
    """Whole stretches of a trajectory go to one part, so that near copies of a frame never test it.

    The trajectory (``order`` gives each frame's place in it, if the file is shuffled) is cut into ``blocks``;
    the blocks are dealt out at random until each part has its share, and ``gap`` frames are left out at the end
    of a block whose neighbour belongs to another part. ``groups`` (a label per frame, e.g. the relaxation it
    comes from) takes the place of the blocks.
    """
    wanted = sizes(n_frames, train, valid, test)
    if groups is not None:
        _, label = np.unique([str(group) for group in groups], return_inverse=True)
        members = [np.flatnonzero(label == value) for value in range(label.max() + 1)]
    else:
        sequence = np.arange(n_frames) if order is None else np.argsort(order, kind="stable")
        members = [block for block in np.array_split(sequence, min(blocks, n_frames)) if len(block)]
    deal = np.random.default_rng(seed).permutation(len(members))
    owner = np.full(len(members), -1)
    filled = [0, 0, 0]
    for block in deal:
        lacking = [w - f for w, f in zip(wanted, filled, strict=True)]
        part = int(np.argmax(lacking))
        if lacking[part] <= 0:
            break
        owner[block] = part
        filled[part] += len(members[block])
    if gap and groups is None:
        members = [
            block[:-gap] if i + 1 < len(owner) and owner[i + 1] != owner[i] else block
            for i, block in enumerate(members)
        ]
    parts = [
        np.concatenate([m for m, o in zip(members, owner, strict=True) if o == part] or [np.array([], np.int64)])
        for part in range(3)
    ]
    for part, (name, size) in enumerate(zip(PARTS, wanted, strict=True)):
        if size and len(parts[part]) == 0:
            raise InputError(f"the {name} part is empty: {len(members)} blocks are too few; ask for more blocks")
    how = "groups" if groups is not None else f"{len(members)} blocks, gap {gap}"
    first, second, third = (part[:size] for part, size in zip(parts, wanted, strict=True))
    return Split(first, second, third, f"{how}, seed {seed}").checked(n_frames)


def read_indices(path: str | Path) -> np.ndarray:
    """Frame numbers of a file: npy, txt/csv (one a line), json or a pickled list (read without running it)."""
    path = Path(path)
    return _numbers(_content(path), path)


def read_split(path: str | Path, n_frames: int) -> Split:
    """A split from one file with ``train``, ``valid``, ``test`` (json, npz, pickle), or training frames alone.

    A file of bare numbers gives the training frames; all others become test frames. A folder holds one list a part
    (``train.pkl``, ``valid.pkl``, ``test.pkl``), as the paper's authors publish them.
    """
    path = Path(path)
    if path.is_dir():
        lists = [next((f for f in sorted(path.iterdir()) if f.stem == part and f.is_file()), None) for part in PARTS]
        if lists[0] is None:
            raise InputError(f"{path}: no list of training frames (train.pkl, .npy, .json, .csv) in this folder")
        train, valid, test = (read_indices(file) if file is not None else np.array([], np.int64) for file in lists)
        return Split(train, valid, test, f"index lists of {path.name}").checked(n_frames, str(path))
    content = _content(path)
    if not isinstance(content, dict):
        train = _numbers(content, path)
        rest = np.setdiff1d(np.arange(n_frames), train)
        return Split(train, test=rest, origin=f"training frames from {path.name}").checked(n_frames, str(path))
    found = [next((content[n] for n in names if n in content), None) for names in _NAMES.values()]
    if found[0] is None:
        raise InputError(
            f"{path}: no training frames under 'train'; the file holds {', '.join(map(str, content))[:200]}"
        )
    train, valid, test = (_numbers([] if part is None else part, path, empty=True) for part in found)
    return Split(train, valid, test, f"from {path.name}").checked(n_frames, str(path))


_NAMES = {
    "train": ("train", "idx_train", "train_idx"),
    "valid": ("valid", "val", "validation", "idx_val", "val_idx"),
    "test": ("test", "idx_test", "test_idx"),
}


def _content(path: Path) -> Any:
    """What an index file holds, by its ending: numbers, or a dictionary of them."""
    if not path.exists():
        raise InputError(f"{path}: no such index file")
    if path.suffix == ".npz":
        return read_arrays(path)
    if path.suffix == ".json":
        return read_json(path, "list of frame numbers")
    with decoding(path, "list of frame numbers"):
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return read_array(file, path.stat().st_size)
        if path.suffix in (".pkl", ".pickle", ".p"):
            return safe_loads(path.read_bytes(), str(path))
        if path.suffix in (".pt", ".pth"):
            from dcnn.train.checkpoint import load_tensors  # imports torch, which other files do not need

            return load_tensors(path)
        lines = read_text(path, "list of frame numbers").splitlines()
        return [float(entry) for line in lines for entry in line.split("#")[0].replace(",", " ").split()]


def _numbers(values: Any, path: Path, empty: bool = False) -> np.ndarray:
    with decoding(path, "list of frame numbers"):
        numbers = np.asarray(values, np.float64).reshape(-1)
    whole = np.array_equal(numbers, np.rint(numbers)) and bool((np.abs(numbers) < 2**53).all())
    if not whole or (len(numbers) == 0 and not empty):
        raise InputError(f"{path}: expected whole frame numbers, found {numbers[:3].tolist()}")
    return numbers.astype(np.int64)
