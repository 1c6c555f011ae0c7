"""A run folder: config.yaml, metrics.csv, checkpoints, result.json, log.txt."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dcnn.errors import InputError
from dcnn.safe_files import write_whole
from dcnn.train.config import AtomsConfig, PdeConfig, read_yaml, to_yaml, validate


@dataclass(frozen=True)
class Result:
    """What came out of a run; `values` is the content of result.json."""

    folder: Path
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def test(self) -> dict[str, Any]:
        return self.values["test"]

    @property
    def status(self) -> str:
        return self.values["status"]


class Run:
    """The files of one run; every file is written whole or appended by complete lines."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @classmethod
    def create(cls, folder: Path, config: AtomsConfig | PdeConfig) -> Run:
        run = cls(folder)
        if run.config_file.exists():
            raise InputError(
                f"{folder}: holds a run already; continue it with `dcnn train --resume {folder}` or name another folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(run.config_file, to_yaml(config))
        return run

    def withdraw(self) -> None:
        """Takes back a run that could not begin, so that the same command works once its input is mended."""
        self.config_file.unlink(missing_ok=True)
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

    def config(self) -> AtomsConfig | PdeConfig:
        return validate(read_yaml(self.config_file), str(self.config_file))

    def result(self) -> Result:
        if not self.result_file.exists():
            raise InputError(f"{self.folder}: not finished; continue it with `dcnn train --resume {self.folder}`")
        return Result(self.folder, json.loads(self.result_file.read_text()))

    def metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.csv as numbers (nan where a column was not measured in that row)."""
        if not self.metrics_file.exists():
            return []
        with self.metrics_file.open(newline="") as file:
            return [{k: float(v) if v else math.nan for k, v in row.items()} for row in csv.DictReader(file)]

    def append(self, row: dict[str, float]) -> None:
        """Adds a line; a column that appears for the first time is added to the header."""
        rows = self.metrics()
        header = list(dict.fromkeys([*(rows[0] if rows else {}), *row]))
        if rows and len(header) == len(rows[0]):
            with self.metrics_file.open("a", newline="") as file:
                csv.DictWriter(file, header).writerow(_cells(row))
            return
        self._rewrite([*rows, row], header)

    def _rewrite(self, rows: list[dict[str, float]], header: list[str]) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, header)
        writer.writeheader()
        writer.writerows(_cells(row) for row in rows)
        write_whole(self.metrics_file, text.getvalue())

    def forget_after(self, epoch: int) -> None:
        """Drops rows later than the checkpoint that a resumed run goes on from."""
        rows = self.metrics()
        if rows:
            self._rewrite([row for row in rows if row["epoch"] <= epoch], list(rows[0]))

    def finish(self, values: dict[str, Any]) -> Result:
        write_whole(self.result_file, json.dumps(values, indent=2, allow_nan=False, default=str) + "\n")
        return Result(self.folder, values)

    def logger(self) -> logging.Logger:
        """A logger that writes to log.txt only; what is shown on the terminal is the command's business."""
        logger = logging.getLogger(f"dcnn.run.{self.folder.resolve()}")
        if not logger.handlers:
            handler = logging.FileHandler(self.folder / "log.txt", delay=True)
            handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
            logger.propagate = False
        return logger


def _cells(row: dict[str, float]) -> dict[str, str]:
    return {key: "" if math.isnan(value) else f"{value:.9g}" for key, value in row.items()}


def finite_or_none(values: dict[str, Any]) -> dict[str, Any]:
    """NaN and inf as null: JSON has no other word for a diverged cell."""
    return {
        k: finite_or_none(v) if isinstance(v, dict) else (None if isinstance(v, float) and not math.isfinite(v) else v)
        for k, v in values.items()
    }
