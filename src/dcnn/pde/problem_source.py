"""Where a problem was written: its text (for a run folder and for the key of its stored reference) and its lines."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path

PACKAGE = Path(__file__).parent
_HEADER = "import math\n\nimport numpy as np\nimport torch\n\nfrom dcnn.pde import *\n\n\n"


def users_file(kind: type) -> Path | None:
    """The file a user wrote this class in; None for a problem of dcnn and for one written at a prompt."""
    try:
        path = Path(inspect.getsourcefile(kind) or "")
    except (TypeError, OSError):
        return None
    return path if path.is_file() and not path.is_relative_to(PACKAGE) else None


def source_text(kind: type) -> str | None:
    """Text that defines this class again: the whole file, or the class with the usual imports if there is no file.

    None if its text is not known, as for a class made by `exec`.
    """
    path = users_file(kind)
    if path is not None and path.suffix == ".py":
        return path.read_text(encoding="utf-8")
    try:
        classes = [c for c in reversed(kind.__mro__) if not c.__module__.startswith(("dcnn.", "builtins"))]
        return _HEADER + "\n\n".join(inspect.getsource(c) for c in classes or [kind])
    except (OSError, TypeError):
        return None


def line_of(error: BaseException, kind: type) -> str:
    """ ", line 12 (…)": the last line of the user's own code that led to `error`, or the last line at all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not Path(f.filename).is_relative_to(PACKAGE.parent)] if users_code(kind) else frames
    frame = next((f for f in reversed(own) if "torch" not in Path(f.filename).parts), frames[-1] if frames else None)
    return f", line {frame.lineno} ({frame.line})" if frame is not None and frame.line else ""


def users_code(kind: type) -> bool:
    """Whether the class is not one of dcnn's."""
    return not kind.__module__.startswith("dcnn.")


def prefixed(where: str, message: str) -> str:
    """`message` beginning with where it happened."""
    return message if where in message else f"{where}: {message}"
