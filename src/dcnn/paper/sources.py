"""The files that an experiment reads: found in the usual folders, or one message on what to place where."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.errors import InputError
from dcnn.fetch import DATASETS, SHORT
from dcnn.paper.published import numbers
from dcnn.pde.cache import cache_directory
from dcnn.safe_files import written_beside

VALIDATION, TEST = 50, 1000  # frames at the small and long scales
PAPER_TRAIN = 50_000


@dataclass(frozen=True)
class Source:
    """The `data` section of a configuration, and what to call the data in a title."""

    data: dict[str, Any]
    words: str
    overrides: dict[str, Any] = field(default_factory=dict)  # of the network


def folders(given: Path | None) -> list[Path]:
    """Where data are looked for: the folder that was given, or $DCNN_DATA, ./data, the cache, …/shared/data."""
    if given is not None:
        if not given.exists():
            raise InputError(f"{given}: no such data folder")
        return [given]
    here = Path.cwd()
    usual = [Path(os.environ["DCNN_DATA"])] if os.environ.get("DCNN_DATA") else []
    usual += [here / "data", cache_directory(), *(parent / "shared" / "data" for parent in (here, *here.parents))]
    return [folder for folder in usual if folder.is_dir()]


def demo(train: int) -> Source:
    """The frames that come with the package."""
    data = {"path": "demo", "train": train, "validation": 20, "test": 100}
    return Source(data, "the package's own 2,000 GFN2-xTB frames of ethanol instead of MD17")


def molecule(name: str, scale: str, places: Sequence[Path], frames: int | None = None) -> Source:
    """MD17 labels of a molecule: 950 + 50 training and validation frames, the paper's split at its scale.

    frames: the most training frames that will be asked for.
    """
    if scale == "paper":
        return _paper_split(name, places, frames or PAPER_TRAIN)
    train = frames or 950
    for file in _files(places, _split_names(name, "train", 1)):
        test = file.with_name(file.name.replace("_train_", "_test_"))
        if not test.exists():
            raise InputError(f"{file}: its test frames, {test.name}, are not beside it")
        if train + VALIDATION <= _count(file):
            data = {"path": str(file), "labels": "md17", "train": train, "validation": VALIDATION, "test": str(test)}
            return Source(data, "MD17 labels of the frames of rMD17's split 01")
        path = _pool(name, file.parent)
        if train + VALIDATION + TEST <= _count(path):
            counts = {"train": train, "validation": VALIDATION, "test": TEST}
            return Source({"path": str(path), "labels": "md17", **counts}, "MD17 labels of all rMD17 splits' frames")
    for file in _files(places, _whole_names(name)):
        if train + VALIDATION + TEST <= _count(file):
            counts = {"train": train, "validation": VALIDATION, "test": TEST}
            return Source({"path": str(file), **_labels(file), **counts}, f"MD17 ({file.name})")
    raise _missing(name, places, train + VALIDATION + TEST)


def _paper_split(name: str, places: Sequence[Path], train: int) -> Source:
    """As in the paper, frames / 8 to validate and to test; the authors' index lists where they are found."""
    part = train // 8
    for file in _files(places, _whole_names(name)):
        if _count(file) < train + 2 * part:
            continue
        data = {"path": str(file), **_labels(file), "train": train, "validation": part, "test": part}
        words = f"MD17 ({file.name})"
        lists = _index_lists(name, train, places) if _count(file) == conformations(name) else None
        if lists is not None:
            return Source({**data, "split": str(lists)}, f"{words}, the authors' index lists")
        return Source(data, words)
    raise _missing(name, places, train + 2 * part)


def oxides(scale: str, given: Path | None) -> Source:
    """OC22 or any other S2EF LMDB; the TiO₂₋ₓ crystals as stand-in; the package's ethanol frames for a smoke test."""
    if scale == "smoke":
        source = demo(400)
        return Source(source.data, source.words.replace("MD17", "OC22"))
    places = folders(given)
    found = [given] if given is not None and (given.suffix == ".lmdb" or any(given.glob("*.lmdb"))) else []
    roots = [place / "oc22" for place in places] + [place / "oc22" / "s2ef-total" for place in places]
    found += [root / "train" for root in roots if any((root / "train").glob("*.lmdb"))]
    if found:
        path = found[0]
        held_out = path.with_name("val_ood")
        paper = scale == "paper"
        data: dict[str, Any] = {"path": str(path), "train": 200_000 if paper else 2000, "validation": 200}
        data["test"] = str(held_out) if paper and held_out.is_dir() else (25_000 if paper else TEST)
        return Source(data, f"S2EF frames of {path}")
    if scale == "paper":
        raise InputError(f"no OC22 LMDB in {_where(places, 'oc22')}; {_get('oc22')}")
    for file in _files([place / "oxides" for place in places] + list(places), ["tio2_xsf.tar.gz"]):
        data = {"path": str(file), "train": 800, "validation": VALIDATION, "test": 150}
        # 85 neighbours an atom within 6 Å make millions of triplets a batch; 4 Å hold the first two shells.
        return Source(data, "1,000 TiO₂₋ₓ crystals as stand-in for OC22, cutoff 4 Å", {"cutoff": 4.0})
    raise InputError(f"neither an S2EF LMDB nor oxides/tio2_xsf.tar.gz in {_where(places, '')}; {_get('oc22')}")


def _split_names(name: str, part: str, number: int) -> list[str]:
    return [f"rmd17_{n}_{part}_{number:02d}.npz" for n in (name, SHORT.get(name, name))]


def _whole_names(name: str) -> list[str]:
    """What whole trajectories are called: by sGDML, by the paper's scripts, by rMD17."""
    sgdml = next(Path(remote.file).name for remote in DATASETS["md17"] if remote.key == name)
    short = SHORT.get(name, name)
    return [sgdml, f"md17_{name}.npz", f"{short}_dft.npz", f"rmd17_{short}.npz"]


def _files(places: Sequence[Path], names: Sequence[str]) -> Iterator[Path]:
    inside = ("", "md17", "rmd17", "rmd17/npz_data", "rmd17/rmd17/npz_data")
    seen = set()
    for place in places:
        for name in names:
            for path in (place / folder / name for folder in inside):
                if path.exists() and path not in seen:
                    seen.add(path)
                    yield path


def _labels(file: Path) -> dict[str, str]:
    return {"labels": "md17"} if file.name.startswith("rmd17_") else {}


def _count(file: Path) -> int:
    with np.load(file, allow_pickle=False) as arrays:
        return len(arrays["energies" if "energies" in arrays.files else "E"])


def conformations(name: str) -> int:
    """How many frames the trajectory of a molecule has."""
    return numbers()["molecules"][name]["conformations"]


def _pool(name: str, folder: Path) -> Path:
    """One file of the distinct frames of all official splits that are there, kept in the cache."""
    files = [
        file
        for part in ("train", "test")
        for n in range(1, 6)
        for file in _files([folder], _split_names(name, part, n))
    ]
    path = cache_directory() / "rmd17" / f"rmd17_{name}_{len(files)}_parts.npz"
    if path.exists():
        return path
    parts = [np.load(file, allow_pickle=False) for file in dict.fromkeys(files)]
    indices = np.concatenate([part["old_indices"] for part in parts])
    _, first = np.unique(indices, return_index=True)
    arrays = {
        key: parts[0][key] if key == "nuclear_charges" else np.concatenate([part[key] for part in parts])[first]
        for key in parts[0].files
    }
    with written_beside(path, shared=True) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return path


def _index_lists(name: str, train: int, places: Sequence[Path]) -> Path | None:
    """The authors' folder random/FRAMES/MOLECULE with train.pkl, valid.pkl and test.pkl, if it is there."""
    tails = [f"{start}random/{train}/{SHORT.get(name, name)}" for start in ("", "MD17/", "md17/", "SMD17/")]
    found = [place / tail for place in places for tail in tails]
    return next((path for path in found if (path / "train.pkl").exists()), None)


def _missing(name: str, places: Sequence[Path], frames: int) -> InputError:
    wanted = ", ".join(dict.fromkeys(_whole_names(name)))
    return InputError(
        f"no MD17 file of {name} with {frames:,} frames: looked for {wanted} in {_where(places, '')}; "
        f"{_get('md17', name)}"
    )


def _where(places: Sequence[Path], below: str) -> str:
    return ", ".join(str(place / below) for place in places) or "no folder at all (none of the usual ones exists)"


def _get(dataset: str, key: str = "") -> str:
    remote = next(remote for remote in DATASETS[dataset] if remote.key == key)
    only = f" --molecules {key}" if key else ""
    return (
        f"get it with `dcnn data fetch {dataset}{only} -o data`, or place {remote.url} ({remote.size}) "
        f"as data/{remote.file}"
    )
