"""From the data section of a configuration to training, validation and test frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dcnn.atoms.config import DataConfig
from dcnn.atoms.data import demo_dataset, load
from dcnn.atoms.data.cache import cached
from dcnn.atoms.data.fingerprint import load_split
from dcnn.atoms.data.frame_checks import ANY
from dcnn.atoms.data.load import data_files
from dcnn.atoms.data.packed import SUFFIX, pack
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.references import named_energies
from dcnn.atoms.splits import Split, block_split, random_split, read_split
from dcnn.atoms.units import Units
from dcnn.errors import InputError
from dcnn.guard import decoding, read_json
from dcnn.train.text import read_yaml

LARGE = 64 * 1024**2  # bytes of files whose frames are not held in memory
SPLIT = "split.json"  # in a run folder: the numbers of its frames and fingerprints of their files


def split_frames(data: DataConfig) -> dict[str, Dataset]:
    """Training, validation and test frames; lengths in Å."""
    dataset = load_frames(data.path, data)
    count = len(dataset)
    validation = 0 if isinstance(data.validation, str) else data.validation
    if data.split in ("random", "blocks"):
        if validation >= count:
            raise InputError(f"{data.path}: {validation} validation frames of {count} leave none to train on")
        test = 0 if isinstance(data.test, str) else data.test
        train = data.train
        if train is None:  # all that is left, or four fifths of it where the test frames come from the same file
            train = count - validation - test if test is not None else int(0.8 * (count - validation))
        sizes = (count, train, validation, test, data.split_seed)
        blocks = data.split == "blocks"
        split = block_split(*sizes, order=dataset.trajectory_index()) if blocks else random_split(*sizes)
    else:
        split = _with_validation(read_split(Path(data.split), count), validation, data.split_seed)
    frames = {"train": dataset[split.train], "validation": dataset[split.valid], "test": dataset[split.test]}
    for name, file in (("validation", data.validation), ("test", data.test)):
        if isinstance(file, str):
            frames[name] = load_frames(file, data).to_units(frames["train"].units)
    return frames


def kept_frames(folder: Path, data: DataConfig) -> dict[str, Dataset]:
    """The frames that a run was split into; files that have changed since are refused."""
    frames = load_split(folder / SPLIT, lambda files: load_frames("demo" if files == ["demo"] else files, data))
    return {name: part.to_units(frames["train"].units) for name, part in frames.items()}


def _with_validation(split: Split, validation: int, seed: int) -> Split:
    """A split file that names no validation frames gives up some of its training frames."""
    if len(split.valid) or not validation:
        return split
    inner = random_split(len(split.train), len(split.train) - validation, validation, 0, seed)
    return Split(split.train[inner.train], split.train[inner.valid], split.test, split.origin)


def load_frames(path: str | Sequence[str], data: DataConfig) -> Dataset:
    """The frames of files as a configuration reads them, in flat arrays; lengths in Å.

    Small files are held in memory; large ones are read once, into a cache that is mapped.
    """
    if path == "demo":
        return pack(demo_dataset()).dataset()
    options = data.model_dump(include={"labels", "units", "energy_key", "forces_key", "stress_key", "virial_key"})
    options["force_sign"] = data.force_sign or 1

    def read() -> Dataset:
        return load(path, require=ANY, **options).to_units(length="Ang")

    files = data_files(path)
    if all(file.suffix in (".npz", SUFFIX) for file in files) or _size(files) <= LARGE:
        dataset = read()
        packed = dataset if dataset.packed else pack(dataset.everything()).dataset()  # free atoms of any file set aside
    else:
        packed = cached(files, options, Path(data.cache), read)
    return packed.to_units(length="Ang")


def _size(files: Sequence[Path]) -> int:
    return sum((file / "data.mdb" if file.is_dir() else file).stat().st_size for file in files)


def read_references(file: str, units: Units) -> dict[int, float]:
    """Energies of free atoms: frames of one atom each, or {element: energy} in JSON or YAML in the unit of the data."""
    if file.endswith((".json", ".yaml", ".yml")):
        values = read_json(Path(file), "reference energies") if file.endswith(".json") else read_yaml(Path(file))
        with decoding(file, "dictionary of reference energies"):
            return named_energies({name: float(energy) for name, energy in values.items()})
    if not Path(file).exists():
        raise InputError(f"scale.references: no such file {file!r}; give elements, mean, {{H: -13.6, …}} or a file")
    frames = load(file, require=("energy",), check=False).everything().to_units(units)
    if any(len(frame) != 1 for frame in frames):
        raise InputError(
            f"scale.references: {file} has frames of several atoms; references are frames of one atom each"
        )
    return {int(frame.z[0]): float(frame.energy) for frame in frames}  # type: ignore[arg-type]
