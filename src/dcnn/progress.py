"""A progress bar on a terminal, about twenty plain lines elsewhere: the only place that draws one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar:
    """How far `what` has come, counted in `unit` (none: in percent); on stderr unless a console is given."""

    def __init__(self, what: str, unit: str = "", console: Console | None = None) -> None:
        self.what, self.unit = what, unit
        self.console = console or Console(stderr=True, soft_wrap=True)
        count = MofNCompleteColumn() if unit else TextColumn("{task.percentage:>3.0f}%")
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), count, TimeRemainingColumn())
        self._bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal, transient=not unit)
        self._task = self._bar.add_task(what, total=None)
        self._shown = 0

    def show(self, done: float, total: float, text: str = "") -> None:
        """`text` stands in the place of the title, and in that of the count where lines are written."""
        self.what = text or self.what
        self._bar.update(self._task, completed=done, total=total, description=self.what)
        twentieth = int(20 * done / total) if total else 0
        if not self.console.is_terminal and twentieth > self._shown:
            self._shown = twentieth
            line = text or f"{self.what}: {done} of {total} {self.unit}"
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def start(self) -> ProgressBar:
        self._bar.start()
        return self

    def stop(self) -> None:
        self._bar.stop()


@contextmanager
def progress(what: str, unit: str, console: Console | None = None) -> Iterator[Callable[..., None]]:
    """A function (done, total) that shows how far `what` has come."""
    bar = ProgressBar(what, unit, console).start()
    try:
        yield bar.show
    finally:
        bar.stop()


@contextmanager
def watching(console: Console, total: int, what: str = "runs") -> Iterator[Callable[[list[str], int], None]]:
    """A function (running, done) for a grid of runs."""
    with progress(f"0 of {total} {what}", what, console) as show:
        yield lambda running, done: show(done, total, f"{done} of {total} {what} done; running: {', '.join(running)}")
