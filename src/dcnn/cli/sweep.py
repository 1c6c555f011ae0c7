"""`dcnn sweep`: which hyper-parameters suit your data."""

from __future__ import annotations

import json
import math
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dcnn.grid import engine
from dcnn.grid.comparison import budget_words
from dcnn.grid.search import define, run_search
from dcnn.grid.store import local_copy
from dcnn.progress import watching


def sweep(
    target: Annotated[str, typer.Argument(help="data file, config.yaml, PDE name, problem.py, or demo")],
    pairs: Annotated[
        list[str], typer.Argument(help="key=choice(a,b), uniform(a,b), loguniform(a,b), randint(a,b), or key=value")
    ],
    samples: Annotated[int, typer.Option(help="number of trials")] = 20,
    recipe: Annotated[str | None, typer.Option(help="best if not given, nor in config.yaml")] = None,
    model: Annotated[str | None, typer.Option(help="network of a potential")] = None,
    epochs: Annotated[int | None, typer.Option(help="budget of a trial that is not stopped, in epochs")] = None,
    minutes: Annotated[float | None, typer.Option(help="budget of a trial that is not stopped, in minutes")] = None,
    seed: Annotated[int, typer.Option(help="of the trials and of what is drawn")] = 0,
    on: Annotated[str, typer.Option(help="local, ray (embedded), ray:HOST:PORT or ray://HOST:PORT")] = "local",
    jobs: Annotated[int | None, typer.Option(help="trials at the same time on this machine; 2 if not given")] = None,
    output: Annotated[str, typer.Option("--output", "-o", help="folder of the trials and best.yaml")] = "runs/sweep",
    as_json: Annotated[bool, typer.Option("--json", help="print all trials as JSON")] = False,
) -> None:
    """Search hyper-parameters at random; trials whose validation error lags behind are stopped early (ASHA).

    Example: dcnn sweep ethanol.npz "training.stages.0.learning_rate=loguniform(1e-4,1e-2)" --samples 12 --minutes 5
    """
    engine.check(on)
    defined = define(target, budget_words(pairs, epochs, minutes), recipe, model, seed)
    console = Console(stderr=as_json)
    with watching(console, samples, "trials") as watch:
        rows = run_search(defined, output, samples, on, jobs, watch)
    best = local_copy(output) / "best.yaml"
    if as_json:
        finite = [{**row, "score": row["score"] if math.isfinite(row["score"]) else None} for row in rows]
        typer.echo(json.dumps({"trials": finite, "best": str(best)}, indent=2))
        return
    shown = Table("trial", *defined.space, "validation", "budget", "status", title=f"trials on {target}, best first")
    for row in rows:
        values = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in row["sample"].values()]
        shown.add_row(row["trial"], *values, f"{row['score']:.4g}", f"{row['budget_percent']:.0f} %", row["status"])
    console.print(shown)
    console.print(f"the best one again: dcnn train {best}", soft_wrap=True, highlight=False)
