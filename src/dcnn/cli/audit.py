"""`dcnn audit`: what keeps a network from learning its derivatives, before or after training."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from dcnn.results.trained_run import open_or_build


def audit(
    target: Annotated[str, typer.Argument(help="run folder, config.yaml, data file, PDE name, problem.py, or demo")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, for example model.fidelity=scripts")] = None,
    recipe: Annotated[str | None, typer.Option(help="best, standard, paper or original; default: best")] = None,
    model: Annotated[
        str | None, typer.Option(help="schnet, cgcnn, dimenet_plus_plus, forcenet, gemnet or tensornet")
    ] = None,
    trust: Annotated[bool, typer.Option("--trust", help="run the Python file that a run folder names")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Say why a network will not learn its derivatives, with the calls that help.

    A run folder is audited with its trained weights; anything else as it would be when training starts.

    Example: dcnn audit ethanol.npz --model cgcnn --recipe original
    """
    task = open_or_build(target, recipe, overrides or [], model, trust)
    report = task.audit(task.network)
    raw = [finding for finding in task.raw_label_findings() if finding.code not in report.codes]
    if as_json:
        typer.echo(json.dumps({**report.to_dict(), "raw_labels": [asdict(finding) for finding in raw]}, indent=2))
        return
    console = Console(soft_wrap=True)
    console.print(report) if console.is_terminal else typer.echo(str(report))
    for finding in raw:
        typer.echo(f"in the file, before the label scale of this recipe: {finding}")
