"""One run of a grid, and the name by which it is known: its labels and a digest of its settings and its data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dcnn.atoms.config import AtomsConfig
from dcnn.atoms.data.fingerprint import fingerprint
from dcnn.atoms.data.load import data_files
from dcnn.errors import InputError
from dcnn.pde.config import PdeConfig
from dcnn.safe_files import write_whole
from dcnn.train import Run

#: Settings that may name files whose content is part of the run: frames, and others.
FRAMES = (("data", "path"), ("data", "test"))
FILES = (("data", "split"), ("problem", "reference"), ("problem", "name"), ("model", "name"))


@dataclass(frozen=True)
class GridCell:
    """The labels under which a run is shown, and its configuration."""

    labels: dict[str, Any]
    config: AtomsConfig | PdeConfig

    @cached_property
    def name(self) -> str:
        """The run's folder. Runs of other settings, or of a file that changed, have other names."""
        return "-".join([*(str(value) for value in self.labels.values()), self.digest[:8]]).replace("/", "_")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the whole configuration and of the fingerprints of the files that it names."""
        values = self.config.to_dict()
        frames = [values.get(section, {}).get(key) for section, key in FRAMES]
        others = [str(values.get(section, {}).get(key)).partition(":")[0] for section, key in FILES]
        contents = [fingerprint(name) for name in frames if isinstance(name, (str, list)) and _is_there(name)]
        contents += [fingerprint(files) for name in others if (files := _files_of(Path(name)))]
        return hashlib.sha256(json.dumps([values, contents], sort_keys=True).encode()).hexdigest()


def _is_there(frames: Any) -> bool:
    """A file that is missing here is the affair of the worker, which may see it or refuses it."""
    try:
        return bool(data_files(frames))
    except InputError:
        return False


def _files_of(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path] if path.is_file() else []


def collect(cell: GridCell, folder: Path) -> dict[str, Any]:
    """What a finished cell has to say."""
    return {**cell.labels, "folder": str(folder), **Run(folder).result().values, "recipe": cell.config.recipe}


def write_json(path: Path, runs: Sequence[dict[str, Any]], **more: Any) -> None:
    write_whole(path, json.dumps({**more, "runs": list(runs)}, indent=2) + "\n")
