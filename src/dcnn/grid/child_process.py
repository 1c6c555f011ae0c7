"""One training process: a run that begins or goes on in a folder, and ends with the process that started it.

A worker that is killed cannot tidy up, and its training would go on beside the one that takes its place. The child
therefore reads a pipe that only its parent holds open; the system closes it however the parent ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from dcnn.errors import DcnnError, InputError

MODULE = "dcnn.grid.child_process"


def start(
    config: str, folder: Path, cwd: str | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Trains the YAML `config` in `folder`, or goes on there, with one thread; its words go to output.txt.

    It writes no page of its own: the page of the grid shows all its runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.yaml").exists():
        (folder / "cell.yaml").write_text(config)
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", MODULE, str(folder.absolute())],
            cwd=cwd,
            env={**os.environ, **threads, **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.PIPE,
        )


def last_words(folder: Path) -> str:
    """The last line that the process in `folder` wrote: why it could not go on."""
    lines = (folder / "output.txt").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "the process ended without a word"


def _train(folder: Path) -> int:
    """The exit code: 0 for a result (a diverged run is one), 2 for input that is refused, 1 for any other failure."""
    from rich.console import Console as RichConsole

    from dcnn.results import fit_config, resume_run
    from dcnn.train.console import TerminalConsole

    console = TerminalConsole(RichConsole())
    try:
        if (folder / "config.yaml").exists():
            resume_run(folder, console)
        else:
            fit_config(folder / "cell.yaml", folder, console=console)
    except DcnnError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, InputError) else 1
    return 0


def _end_with_parent(descriptor: int = 0) -> None:
    while os.read(descriptor, 1024):
        continue
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(_train(Path(sys.argv[1])))
