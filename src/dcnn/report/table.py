"""A table of a caller's own on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers (None: not known) under `columns`, of which the first `labels` hold words."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]
    note: str = ""
    labels: int = 1
