"""What a person sees while a run goes on: a progress bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from dcnn.train.config import Training
from dcnn.train.run import Result

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from dcnn.progress import ProgressBar


class Console:
    """Silent; what the library uses unless a command asks for more."""

    def start(self, folder: Path, settings: Training) -> None: ...

    def note(self, text: str) -> None: ...

    def step(self, used: float, step: int) -> None: ...

    def row(self, row: dict[str, float], status: str) -> None: ...

    def stop(self) -> None: ...

    def finish(self, result: Result) -> None: ...


class TerminalConsole(Console):
    """A bar with the time left on a terminal; about twenty plain lines when the output goes to a file."""

    def __init__(self, console: RichConsole, title: str = "training") -> None:
        self.console, self.title = console, title
        self.bar: ProgressBar | None = None
        self.used, self.shown = 0.0, -1.0

    def start(self, folder: Path, settings: Training) -> None:
        self.console.print(f"{self.title} → {folder}")
        if self.console.is_terminal:
            from dcnn.progress import ProgressBar

            self.bar = ProgressBar("", console=self.console)
            self.bar.start()

    def note(self, text: str) -> None:
        if self.bar:
            self.bar.show(min(self.used, 1.0), 1.0, text)
        else:
            self.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def step(self, used: float, step: int) -> None:
        self.used = used
        if self.bar and step % 10 == 0:
            self.bar.show(min(used, 1.0), 1.0)

    def row(self, row: dict[str, float], status: str) -> None:
        errors = [
            f"{name.removeprefix('validation_')} {value:.4g}"
            for name, value in row.items()
            if name.startswith("validation_") and math.isfinite(value)
        ]
        line = f"step {row['step']:.0f}, {row['seconds']:.0f} s, loss {row['train_loss']:.4g}, " + ", ".join(errors)
        if self.bar:
            self.note(line)
        elif self.used - self.shown >= 0.05 or status != "running":
            self.shown = self.used
            self.note(line)

    def stop(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None

    def finish(self, result: Result) -> None:
        self.stop()
        errors = ", ".join(f"{k} {v:.4g}" for k, v in result.test.items() if isinstance(v, float))
        self.note(f"{result.status} after {result.values['seconds']:.0f} s: test {errors}")
        if "message" in result.values:
            self.note(result.values["message"])
