"""Ctrl-C and SIGTERM: the step is finished, a checkpoint is written, and one line says how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop; its checkpoint holds everything up to the last step."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(f"{folder}: stopped; go on with `dcnn train --resume {folder}`")
        self.exit_code = 128 + number


class Stop:
    """The signal that asked for a stop, 0 while none did."""

    number = 0


@contextmanager
def watching_for_stop(tell: Callable[[], None] = lambda: None) -> Iterator[Stop]:
    """Inside the block a first SIGINT or SIGTERM is noted and passed on by `tell`; a second one interrupts at once.

    A signal that is ignored stays ignored.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield stop
        return

    def note(number: int, frame: FrameType | None) -> None:
        if stop.number:
            raise KeyboardInterrupt
        stop.number = number
        tell()

    watched = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in watched}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
