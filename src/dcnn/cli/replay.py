"""`dcnn replay`: the step at which a run diverged, evaluated again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dcnn.results import TrainedRun
from dcnn.train.run import finite_or_none


def replay(
    run: Annotated[Path, typer.Argument(help="run folder of a run that diverged")],
    trust: Annotated[bool, typer.Option("--trust", help="run the Python file that the run names")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Evaluate the batch at which a run diverged again, with the weights it had: which term, layer and gradient it was.

    Example: dcnn replay runs/ethanol
    """
    found = TrainedRun.open(run, trust).replay()
    if as_json:
        typer.echo(json.dumps(finite_or_none(found), indent=2))
        return
    typer.echo(f"{run}: {found['message']}")
    for name, value in found["terms"].items():
        typer.echo(f"  {name:<24} {value:.6g}")
    typer.echo(f"evaluated again: {found['again']}")
