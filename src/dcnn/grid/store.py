"""The folder of a grid, wherever fsspec reaches: runs go up while they train, and down to be continued."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import fsspec

from dcnn.errors import InputError
from dcnn.safe_files import is_partial


def is_url(folder: str | Path) -> bool:
    return "://" in str(folder)


def local_copy(folder: str | Path) -> Path:
    """The folder itself, or for a URL the directory of this machine that its runs are collected in."""
    if not is_url(folder):
        return Path(folder)
    from dcnn.pde.cache import cache_directory  # solvers and all, which a worker can do without

    url = str(folder).rstrip("/")
    return cache_directory() / "runs" / f"{Path(url).name}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"


class Store:
    """Run folders below `folder`, a path or an fsspec URL such as s3://bucket/grid."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder).rstrip("/")
        try:
            self._files, self._root = fsspec.url_to_fs(self.folder)
        except (ImportError, ValueError) as error:  # a protocol that is unknown, or whose package is missing
            raise InputError(f"{self.folder}: {error}") from None
        self._sent: dict[Path, tuple[int, int]] = {}

    def names_with(self, file: str) -> set[str]:
        """The runs that hold `file`."""
        self._files.invalidate_cache()
        try:
            return {path.split("/")[-2] for path in self._files.glob(f"{self._root}/*/{file}")}
        except Exception as error:  # every service has its own for a wrong key or bucket
            raise InputError(f"{self.folder}: cannot be read: {error}") from None

    def read(self, name: str, file: str) -> str:
        """The text of a run's file; empty if it is not there."""
        path = self._at(name, file)
        return self._files.cat_file(path).decode() if self._files.exists(path) else ""

    def put(self, local: Path, name: str) -> str:
        """Copies one file; returns its URL."""
        self._write(self._at(name), local.read_bytes())
        return f"{self.folder}/{name}"

    def up(self, local: Path, name: str) -> None:
        """Sends the files of the run folder `local` that changed since the last time.

        last.ckpt refers to best.ckpt, and result.json says that all is there. They are read first and sent last, so
        that whatever interrupts this, the files beside them are never older than they are.
        """
        changed = []
        for path in sorted(_files_of(local), key=_closing, reverse=True):
            try:
                stamp = _stamp(path)
                if self._sent.get(path) != stamp:
                    changed.append((path, stamp, path.read_bytes()))
            except FileNotFoundError:  # a passing file, such as a journal of a logger's data base
                continue
        for path, stamp, content in reversed(changed):
            self._write(self._at(name, path.relative_to(local).as_posix()), content)
            self._sent[path] = stamp

    def down(self, name: str, local: Path) -> None:
        """Makes `local` what the store has of the run `name`; an empty folder if the run was never begun."""
        shutil.rmtree(local, ignore_errors=True)
        local.mkdir(parents=True)
        root = self._at(name)
        self._files.invalidate_cache()
        for path in self._files.find(root) if self._files.exists(root) else []:
            target = local / path.removeprefix(root).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(path, str(target))
            self._sent[target] = _stamp(target)

    def _at(self, *parts: str) -> str:
        return "/".join([self._root, *parts])

    def _write(self, path: str, content: bytes) -> None:
        """Whole or not at all, also where a file appears while it is being written."""
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(f"{path}.partial", content)
        self._files.mv(f"{path}.partial", path)


def paced(action: Callable[[], None]) -> Callable[[], None]:
    """`action` to be called often: it is done once a second at most, and for a tenth of the time at most."""
    due = 0.0

    def act() -> None:
        nonlocal due
        began = time.monotonic()
        if began >= due:
            action()
            due = time.monotonic() + max(1.0, 9 * (time.monotonic() - began))

    return act


def _files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and not is_partial(path)]


def _closing(path: Path) -> int:
    return {"last.ckpt": 1, "result.json": 2}.get(path.name, 0)


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
