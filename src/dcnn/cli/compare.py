"""`dcnn compare`: what a recipe is worth on your own data."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dcnn.grid import engine
from dcnn.grid.cells import write_json
from dcnn.grid.comparison import budget_words, cells_of
from dcnn.grid.store import local_copy
from dcnn.progress import watching
from dcnn.report import write_page
from dcnn.results.metrics import METRICS
from dcnn.results.statistics import table


def compare(
    target: Annotated[str, typer.Argument(help="data file, PDE name, problem.py, or demo")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value for every run")] = None,
    recipes: Annotated[str, typer.Option(help="which recipes, separated by commas")] = "original,paper,best",
    model: Annotated[list[str] | None, typer.Option(help="network; may be given several times")] = None,
    epochs: Annotated[int | None, typer.Option(help="budget of every run in epochs")] = None,
    minutes: Annotated[float | None, typer.Option(help="budget of every run in minutes")] = None,
    seeds: Annotated[int, typer.Option(help="runs of every recipe")] = 3,
    jobs: Annotated[int, typer.Option(help="runs at the same time, one thread each")] = 2,
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

    Finished runs in the output folder are kept: an interrupted comparison goes on where it stopped.
    """
    engine.check(on)
    words = budget_words(overrides or [], epochs, minutes)
    cells = cells_of(target, [name.strip() for name in recipes.split(",")], model or [None], seeds, words)
    console = Console(stderr=as_json)
    with watching(console, len(cells)) as watch:
        runs = engine.run(cells, output, on, jobs, watch)
    local = local_copy(output)
    write_json(local / "compare.json", runs, target=target)
    title, typed = f"{Path(target).stem}: {recipes.replace(',', ', ')}", shlex.join(["dcnn", *sys.argv[1:]])
    page = write_page([run["folder"] for run in runs], local / "compare.html", title, command=typed, trust=True)
    where = engine.publish(output, page, local / "compare.json")
    if as_json:
        typer.echo(json.dumps({"runs": runs}, indent=2))
    else:
        console.print(_shown(runs, target))
        console.print(f"report: {where[0]}", soft_wrap=True, highlight=False)


def _shown(runs: list[dict[str, object]], target: str) -> Table:
    rows = table(runs)
    metrics = [metric for metric in METRICS if any(metric.name in row["errors"] for row in rows)]
    labels = [metric.label for metric in metrics]
    shown = Table("model", "recipe", *labels, "runs", title=f"test errors on {target}")
    for row in rows:
        cells = [_number(row["errors"].get(metric.name)) for metric in metrics]
        failed = f" ({row['diverged']} diverged)" if row["diverged"] else ""
        shown.add_row(str(row["model"] or ""), row["recipe"], *cells, f"{row['runs']}{failed}")
    return shown


def _number(value: tuple[float, float | None] | None) -> str:
    if value is None:
        return "–"
    mean, spread = value
    return f"{mean:.4g}" if spread is None else f"{mean:.4g} ± {spread:.2g}"
