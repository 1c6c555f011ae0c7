"""A progress bar on a terminal, about twenty plain lines elsewhere; always on stderr, so that results can be piped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def progress(what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A function (done, total) that shows how far `what` has come, counted in `unit`."""
    console = Console(stderr=True, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        shown = 0

        def show(done: int, total: int) -> None:
            nonlocal shown
            bar.update(task, completed=done, total=total)
            if not console.is_terminal and 20 * done // total > shown:
                shown = 20 * done // total
                console.print(f"{what}: {done} of {total} {unit}", highlight=False)

        yield show


@contextmanager
def watching(console: Console, total: int, what: str = "runs") -> Iterator[Callable[[list[str], int], None]]:
    """A function (running, done) for the engine: a moving line on a terminal, one for each finished run elsewhere."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"0 of {total} {what}")
        last = 0

        def watch(running: list[str], done: int) -> None:
            nonlocal last
            text = f"{done} of {total} {what} done; running: {', '.join(running)}"
            bar.update(task, description=text)
            if not console.is_terminal and done > last:
                last = done
                console.print(text, highlight=False, markup=False, soft_wrap=True)

        yield watch
