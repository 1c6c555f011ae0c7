"""What a user sees when an input is wrong: one message that says where, what was found and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class DcnnError(Exception):
    """Anything dcnn raises on purpose; the command line prints it without a traceback."""


class InputError(DcnnError, ValueError):
    """A file, a name or a value given by the user is wrong; the command line exits with code 2."""


def unknown(kind: str, name: object, valid: Iterable[str]) -> InputError:
    """An :class:`InputError` for a name that does not exist, with the closest valid one suggested.

    >>> print(unknown("activation", "irellu", ["irelu", "silu"]))
    unknown activation 'irellu'; did you mean 'irelu'? Valid: irelu, silu
    """
    names = sorted(valid)
    by_lower = {valid_name.lower(): valid_name for valid_name in names}
    close = get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
    hint = f"; did you mean {by_lower[close[0]]!r}?" if close else "."
    shown = repr(name) if len(repr(name)) <= 100 else repr(name)[:100] + "…"
    return InputError(f"unknown {kind} {shown}{hint} Valid: {', '.join(names)}")


def first_line(error: BaseException) -> str:
    """What an error of somebody else's code says, without the lines after the first.

    >>> first_line(ValueError("too small\\nat line 3")), first_line(AssertionError())
    ('too small', '')
    """
    return (str(error).strip().splitlines() or [""])[0]


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Around imports that only an extra of the package brings: says what to install if one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] == "dcnn":
            raise
        raise DcnnError(f"this needs {error.name}: pip install 'dcnn[{name}]'") from None
