"""`dcnn compare`: what a recipe is worth on your own data."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dcnn.cli.result_table import result_table
from dcnn.errors import InputError, unknown
from dcnn.grid import engine
from dcnn.grid.cells import write_json
from dcnn.grid.comparison import budget_words, cells_of, recipes_for
from dcnn.grid.store import local_copy
from dcnn.progress import watching
from dcnn.report import write_rows_page
from dcnn.results.statistics import summarise


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
    engine.check(on)
    words = budget_words(overrides or [], epochs, minutes)
    names = [name.strip() for name in recipes.split(",")] if recipes is not None else recipes_for(target, words)
    if reference is not None and reference not in names:
        raise unknown("reference, which is not among the recipes,", reference, names)
    if paired and seeds < 2:
        raise InputError("--paired: one seed has no spread; give --seeds 2 or more")
    cells = cells_of(target, names, model or [None], seeds, words)
    console = Console(stderr=as_json)
    with watching(console, len(cells)) as watch:
        runs = engine.run(cells, output, on, jobs, watch)
    rows = summarise(runs, ("data", "model", "recipe"), reference, paired=paired)
    local, facts = local_copy(output), {"rows": [row.to_dict() for row in rows]}
    write_json(local / "compare.json", runs, target=target, **facts)
    title, typed = f"{Path(target).stem}: {', '.join(names)}", shlex.join(["dcnn", *sys.argv[1:]])
    page = write_rows_page(rows, local / "compare.html", title, command=typed, trust=True)
    where = engine.publish(output, page, local / "compare.json")
    if as_json:
        typer.echo(json.dumps({**facts, "runs": runs}, indent=2))
    else:
        console.print(result_table(rows, f"test errors on {target}"))
        console.print(f"report: {where[0]}", soft_wrap=True, highlight=False)
