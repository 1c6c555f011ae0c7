"""`dcnn.fit`: trains whatever it is given and returns the finished run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dcnn.results import TrainedRun, fit_config
from dcnn.train.config import RunConfig
from dcnn.train.console import Console
from dcnn.train.run import Run


class FitResult(TrainedRun):
    """A finished run with its page."""

    def report(self, output: str | Path | None = None) -> Path:
        """Writes the page of the run (default: report.html in its folder) and returns its path."""
        from dcnn.report import write_page

        return write_page([self.folder], output or self.folder / "report.html", trust=True)


def fit(
    config: RunConfig | Mapping[str, Any] | str | Path,
    folder: str | Path | None = None,
    *,
    console: Console | None = None,
) -> FitResult:
    """Trains what `config` describes in `folder` and returns the finished run."""
    result = fit_config(config, folder, console=console)
    return FitResult(Run(result.folder), trust=True)
