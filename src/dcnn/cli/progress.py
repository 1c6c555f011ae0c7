"""A progress bar on a terminal, about twenty plain lines elsewhere; always on stderr, so that results can be piped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


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
