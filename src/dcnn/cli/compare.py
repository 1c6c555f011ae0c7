"""`dcnn compare`: what a recipe is worth on your own data."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Annotated

import typer
from rich.console import Console

import dcnn
from dcnn.cli.result_table import result_table


def compare(
    target: Annotated[str, typer.Argument(help="data file, config.yaml, PDE name, problem.py, or demo")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value for every run")] = None,
    recipes: Annotated[
        str | None, typer.Option(help="by commas; original,paper,best and, for potentials, standard if not given")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="network; may be given several times")] = None,
    epochs: Annotated[int | None, typer.Option(help="budget of every run in epochs")] = None,
    minutes: Annotated[float | None, typer.Option(help="budget of every run in minutes")] = None,
    seeds: Annotated[int, typer.Option(help="runs of every recipe")] = 3,
    reference: Annotated[
        str | None,
        typer.Option(help="recipe to compare with; standard, else original, else the best"),
    ] = None,
    paired: Annotated[bool, typer.Option("--paired", help="compare run by run of the same seed, not means")] = False,
    jobs: Annotated[int | None, typer.Option(help="runs at the same time, one thread each; 2 if not given")] = None,
    on: Annotated[
        str, typer.Option(help="local, ray (embedded), ray:HOST:PORT or ray://HOST:PORT (a cluster)")
    ] = "local",
    output: Annotated[
        str, typer.Option("--output", "-o", help="folder of the runs and the page, or a URL such as s3://bucket/runs")
    ] = "runs/compare",
    as_json: Annotated[bool, typer.Option("--json", help="print all runs as JSON")] = False,
) -> None:
    """Train the same network on the same data under several recipes and seeds, and show what each is worth.

    Example: dcnn compare ethanol.npz --model schnet --minutes 5 --seeds 2 -o runs/ethanol

    Finished runs of the same settings and data in the output folder are kept: an interrupted comparison goes on where
    it stopped.
    """
    console = Console(stderr=as_json)
    found = dcnn.compare(
        target,
        [name.strip() for name in recipes.split(",")] if recipes is not None else None,
        model,
        epochs=epochs,
        minutes=minutes,
        seeds=seeds,
        reference=reference,
        paired=paired,
        overrides=overrides or [],
        folder=output,
        on=on,
        jobs=jobs,
        console=console,
        command=shlex.join(["dcnn", *sys.argv[1:]]),
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2))
    else:
        console.print(result_table(found.rows, f"test errors on {target}"))
        console.print(f"report: {found.page}", soft_wrap=True, highlight=False)
