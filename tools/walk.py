"""Which files of dcnn a command goes through, in order of their first call; imports do not count.

Run: python tools/walk.py train my.xyz training.steps=2 --no-page
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import dcnn
from dcnn.cli import main

ROOT = str(Path(dcnn.__file__).parent)
seen: dict[str, str] = {}


def record(frame: FrameType, event: str, argument: Any) -> None:
    """Notes the first function that is called in each file, unless a module is being imported."""
    file = frame.f_code.co_filename
    if event != "call" or not file.startswith(ROOT) or file in seen:
        return
    caller: FrameType | None = frame
    while caller is not None:
        if caller.f_code.co_name == "<module>" and caller.f_code.co_filename.startswith(ROOT):
            return
        caller = caller.f_back
    seen[file] = frame.f_code.co_name


if __name__ == "__main__":
    sys.argv[0] = "dcnn"
    sys.setprofile(record)
    try:
        main()
    finally:
        sys.setprofile(None)
        lines = [
            f"{number:3} {Path(file).relative_to(ROOT)}: {name}" for number, (file, name) in enumerate(seen.items(), 1)
        ]
        sys.stdout.write("\n".join(lines) + "\n")
