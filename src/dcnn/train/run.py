"""A run folder: config.yaml, metrics.csv, checkpoints, result.json, log.txt."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import logging
import math
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dcnn.errors import InputError
from dcnn.guard import decoding, read_json, read_text
from dcnn.safe_files import is_partial, naming, write_whole
from dcnn.train.config import RunConfig
from dcnn.train.text import read_yaml, to_yaml


@dataclass(frozen=True)
class Result:
    """What came out of a run; `values` is the content of result.json."""

    folder: Path
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def test(self) -> dict[str, Any]:
        return dict(self.values["test"])

    @property
    def status(self) -> str:
        return str(self.values["status"])


class Run:
    """The files of one run; every file is written whole or appended by complete lines."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._header: list[str] = []  # of metrics.csv, once it is known

    @classmethod
    def create(cls, folder: Path | str, config: RunConfig) -> Run:
        """A new run; of two that are begun in one folder at the same time one is refused."""
        run = cls(folder)
        run.folder.mkdir(parents=True, exist_ok=True)
        partial = run.folder / f"config.{uuid.uuid4().hex}.partial"
        partial.write_text(to_yaml(config.to_dict()))
        try:
            os.link(partial, run.config_file)  # fails if it is there, and is never seen half written
        except FileExistsError:
            run.refuse_if_there()
            raise
        finally:
            partial.unlink()
        return run

    def update(self, config: RunConfig) -> None:
        """Goes on with another budget: the result of the old one is dropped."""
        if config.to_dict() != self.config_values():
            write_whole(self.config_file, to_yaml(config.to_dict()))
            self.result_file.unlink(missing_ok=True)

    def refuse_if_there(self) -> None:
        """Raises if the folder holds a run already."""
        if self.config_file.exists():
            raise InputError(
                f"{self.folder}: holds a run already; continue it with `dcnn train --resume {self.folder}` "
                "or name another folder"
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Inside the block no other process may train in this folder; the system ends the lock of a dead process.

        The file stays: another process may have opened it already, and would lock what is no longer there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise InputError(f"{self.folder}: {holder} trains there; wait for it, or stop it") from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            for left in (path for path in self.folder.glob("**/*") if is_partial(path)):  # by a process that was killed
                left.unlink()
            yield

    def withdraw(self) -> None:
        """Takes back a run that could not begin, so that the same command works once its input is mended."""
        for path in (self.config_file, self.folder / "log.txt", self.folder / ".lock"):
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        run = cls(folder)
        if not run.config_file.exists():
            raise InputError(f"{folder}: not a run folder (no config.yaml)")
        return run

    @property
    def config_file(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def metrics_file(self) -> Path:
        return self.folder / "metrics.csv"

    @property
    def result_file(self) -> Path:
        return self.folder / "result.json"

    @property
    def last(self) -> Path:
        return self.folder / "checkpoints" / "last.ckpt"

    @property
    def best(self) -> Path:
        return self.folder / "checkpoints" / "best.ckpt"

    def config_values(self) -> dict[str, Any]:
        """The content of config.yaml; :func:`dcnn.results.config_of` makes a typed configuration of it."""
        return read_yaml(self.config_file)

    def result(self) -> Result:
        if not self.result_file.exists():
            raise InputError(f"{self.folder}: not finished; continue it with `dcnn train --resume {self.folder}`")
        values = read_json(self.result_file, "result")
        with decoding(self.result_file, "result of a run (remove it and resume)"):
            return Result(self.folder, {**values, "test": dict(values["test"]), "status": str(values["status"])})

    def metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv as numbers (nan where a column was not measured in that row).

        A row that a killed process left unfinished is not one.
        """
        if not self.metrics_file.exists():
            return []
        lines = read_text(self.metrics_file, "table of metrics", 1 << 30).splitlines(keepends=True)
        with decoding(self.metrics_file, "table of metrics"):
            rows = csv.DictReader(line for line in lines if line.endswith("\n"))
            return [{k: float(v) if v else math.nan for k, v in row.items()} for row in rows]

    def append(self, row: dict[str, float]) -> None:
        """Adds a line; a column that appears for the first time is added to the header."""
        if not self._header:
            self._header = list(next(iter(self.metrics()), {}))
        if not row.keys() <= set(self._header):
            self._rewrite([*self.metrics(), row], list(dict.fromkeys([*self._header, *row])))
            return
        text = io.StringIO(newline="")
        csv.DictWriter(text, self._header).writerow(_cells(row))
        with naming(self.metrics_file), self.metrics_file.open("a", newline="") as file:
            file.write(text.getvalue())

    def _rewrite(self, rows: list[dict[str, float]], header: list[str]) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, header)
        writer.writeheader()
        writer.writerows(_cells(row) for row in rows)
        write_whole(self.metrics_file, text.getvalue())
        self._header = header

    def forget_after(self, epoch: int) -> None:
        """Drops rows later than the checkpoint that a resumed run goes on from."""
        kept = [row for row in self.metrics() if row.get("epoch", math.inf) <= epoch]
        if kept:
            self._rewrite(kept, list(kept[0]))
        else:
            self.metrics_file.unlink(missing_ok=True)

    def finish(self, values: dict[str, Any]) -> Result:
        write_whole(self.result_file, json.dumps(values, indent=2, allow_nan=False, default=str) + "\n")
        return Result(self.folder, values)

    def logger(self, writes: bool = True) -> logging.Logger:
        """A logger that writes to log.txt only; what is shown on the terminal is the command's business.

        writes: false for all but one of several processes.
        """
        logger = logging.getLogger(f"dcnn.run.{self.folder.resolve()}")
        if not logger.handlers:
            handler = _LogFile(self.folder / "log.txt", delay=True) if writes else logging.NullHandler()
            handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
        return logger


class _LogFile(logging.FileHandler):
    """A full disk ends a run by what cannot be stored; a line that is missing in log.txt is no reason to."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        self.close()


def _cells(row: dict[str, float]) -> dict[str, str]:
    return {key: "" if math.isnan(value) else f"{value:.9g}" for key, value in row.items()}


def finite_or_none(values: dict[str, Any]) -> dict[str, Any]:
    """NaN and inf as null: JSON has no other word for a diverged cell."""
    return {
        k: finite_or_none(v) if isinstance(v, dict) else (None if isinstance(v, float) and not math.isfinite(v) else v)
        for k, v in values.items()
    }
