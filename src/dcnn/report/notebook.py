"""Charts of a run inside a notebook; in a frame of their own, so that their style stays with them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from dcnn.report.chart import Figure
from dcnn.report.curves import own_validation_curves, term_curves
from dcnn.report.reported_run import ReportedRun
from dcnn.results.metrics import short

ROW = 330  # pixels of a row of charts


class Plots(list[Figure]):
    """Charts that a notebook shows side by side."""

    def _repr_html_(self) -> str:
        return framed(charts(self), ROW * -(-len(self) // 2))


def curves_of(folder: Path) -> Plots:
    """Validation errors and loss terms of a run over its steps."""
    entry = ReportedRun.read(folder)
    return Plots([*own_validation_curves(entry), *term_curves(entry)])


def result_table(title: str, errors: Mapping[str, Any]) -> str:
    """Errors of a run as a table."""
    rows = "".join(
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{escape(short(value))}</td></tr>"
        for name, value in errors.items()
        if isinstance(value, float)
    )
    return f"<h3>{escape(title)}</h3><table>{rows}</table>"


def charts(figures: list[Figure]) -> str:
    cells = (f"<figure><figcaption>{escape(f.title)}</figcaption>{f.svg}</figure>" for f in figures)
    return f'<div style="display:grid;grid-template-columns:1fr 1fr;gap:1em">{"".join(cells)}</div>'


def framed(body: str, height: int) -> str:
    style = (files("dcnn.report") / "templates" / "style.css").read_text()
    page = f"<!doctype html><meta charset=utf-8><style>{style}</style>{body}"
    return str(Markup('<iframe srcdoc="{}" style="width:100%;height:{}px;border:0"></iframe>').format(page, height))
