"""One training process: `dcnn train` in a folder, begun or continued."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: How often a process that dies is started again from its last checkpoint.
RETRIES = 2


def start(
    config: str, folder: Path, cwd: str | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Trains the YAML `config` in `folder`, or goes on there; one thread; it ends with this process at the latest.

    It writes no page of its own: the page of the grid shows all its runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.yaml").exists():
        (folder / "cell.yaml").write_text(config)
        arguments = [str(folder / "cell.yaml"), "-o", str(folder)]
    else:
        arguments = ["--resume", str(folder)]
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "dcnn.cli.tethered", "train", "--no-page", *arguments],
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
