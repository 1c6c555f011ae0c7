"""Files that are there whole or not at all: written beside their place, then renamed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import getpid
from pathlib import Path

MARK = ".partial"


@contextmanager
def written_beside(path: Path, shared: bool = False) -> Iterator[Path]:
    """A name with the same ending to write to; it becomes `path` at the end, or is removed if anything goes wrong.

    shared: several processes may write the same file at the same time, so that each needs a name of its own.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    own = f".{getpid()}" if shared else ""
    partial = path.with_name(f"{path.stem}{own}{MARK}{path.suffix}")
    try:
        with naming(path):
            yield partial
        partial.replace(path)
    except BaseException:
        if partial.is_file():
            partial.unlink()
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """A full disk does not say which file it was that could not be written."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def is_partial(path: Path) -> bool:
    """Whether a file is one that is being written, or was when its writer was killed."""
    return MARK in path.name


def write_whole(path: Path, text: str) -> None:
    with written_beside(path) as partial:
        partial.write_text(text)
