"""One run of a grid, and the name by which it is known: its labels and a digest of its settings and its data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from dcnn.atoms.config import AtomsConfig
from dcnn.pde.config import PdeConfig
from dcnn.safe_files import write_whole
from dcnn.train import Run

#: Settings that may name a file whose content is part of the run.
FILES = (("data", "path"), ("data", "test"), ("data", "split"), ("problem", "reference"), ("problem", "name"))
WHOLE = 1 << 28  # bytes of a file that is read from end to end; of a longer one, 256 pieces
PIECE = 1 << 16


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
        """SHA-256 of the whole configuration and of the content of the files that it names."""
        values = self.config.to_dict()
        named = [values.get(section, {}).get(key) for section, key in FILES]
        contents = [content_digest(name) for name in named if isinstance(name, str) and Path(name).exists()]
        text = json.dumps([values, contents], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def content_digest(name: str) -> str:
    """SHA-256 of a file, or of all files below a folder with their names."""
    root = Path(name)
    files = sorted(path for path in root.rglob("*") if path.is_file()) if root.is_dir() else [root]
    found = [_file_digest(path, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    if root.is_file():
        return found[0]
    named = [[path.relative_to(root).as_posix(), digest] for path, digest in zip(files, found, strict=True)]
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()


@cache
def _file_digest(path: Path, size: int, stamp: int) -> str:
    """`stamp` is in the key of the cache: all cells of a grid read the same file."""
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= WHOLE:
            while block := file.read(1 << 20):
                digest.update(block)
        else:
            for piece in range(256):
                file.seek(piece * (size - PIECE) // 255)
                digest.update(file.read(PIECE))
    return digest.hexdigest()


def collect(cell: GridCell, folder: Path) -> dict[str, Any]:
    """What a finished cell has to say."""
    return {**cell.labels, "folder": str(folder), **Run(folder).result().values, "recipe": cell.config.recipe}


def write_json(path: Path, runs: Sequence[dict[str, Any]], **more: Any) -> None:
    write_whole(path, json.dumps({**more, "runs": list(runs)}, indent=2) + "\n")
