"""The command line in a process that ends with the one that started it: ``python -m dcnn.cli.tethered train …``.

A worker that is killed cannot tidy up, and its training would go on beside the one that takes its place. This process
therefore reads a pipe that only its parent holds open; the system closes it however the parent ends.
"""

from __future__ import annotations

import os
import threading

import dcnn.cli


def _end_with_parent(descriptor: int = 0) -> None:
    while os.read(descriptor, 1024):
        continue
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    dcnn.cli.main()
