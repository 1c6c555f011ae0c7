"""Reference solutions are computed once and kept in the user's cache directory."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dcnn.pde.solution import Solution
from dcnn.safe_files import written_beside

VERSION = 1  # raise when a solver changes its results


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/dcnn, or ~/.cache/dcnn."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dcnn"


def cached(identity: dict[str, Any], compute: Callable[[], Solution | None]) -> Solution | None:
    """``compute()``, or what it returned for the same `identity` before."""
    text = json.dumps({"version": VERSION, **identity}, sort_keys=True)
    path = cache_directory() / "references" / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.npz"
    found = read_solution(path)
    if found is None:
        found = compute()
        if found is not None:
            try:
                write_solution(path, found)
            except OSError:  # a read-only home is no reason to fail: it is computed again next time
                return found
    return found


def read_solution(path: Path) -> Solution | None:
    """What :func:`write_solution` wrote; None if there is none or the file is damaged."""
    damaged = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
    try:
        with path.open("rb") as file, np.load(file) as stored:
            pick = {kind: {k[2:]: stored[k] for k in stored if k.startswith(kind)} for kind in ("g:", "f:")}
            return Solution(pick["g:"], pick["f:"], str(stored["source"]))
    except damaged:
        return None


def write_solution(path: Path, solution: Solution) -> None:
    """Whole or not at all: a reader never sees half a file."""
    arrays: dict[str, Any] = {f"g:{k}": v for k, v in solution.grid.items()}
    arrays |= {f"f:{k}": v for k, v in solution.fields.items()}
    with written_beside(path, shared=True) as partial, partial.open("wb") as file:
        np.savez(file, source=np.array(solution.source), **arrays)
