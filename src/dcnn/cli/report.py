"""`dcnn report`: one page from any run folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dcnn.report import write_page


def report(
    runs: Annotated[list[Path], typer.Argument(help="run folders, or folders that hold them")],
    output: Annotated[Path, typer.Option("--output", "-o", help="page to write")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="heading of the page; made from the runs if not given")] = "",
    reference: Annotated[str | None, typer.Option(help="recipe that the others are compared with")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="run the Python files that runs name")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Write one self-contained HTML page: tables, learning curves, predictions against labels, audit.

    Example: dcnn report runs/ethanol runs/ethanol-paper -o ethanol.html
    """
    page = write_page(runs, output, title, reference=reference, trust=trust)
    size = page.stat().st_size
    typer.echo(json.dumps({"page": str(page), "bytes": size}) if as_json else f"wrote {page} ({size / 1e3:.0f} kB)")
