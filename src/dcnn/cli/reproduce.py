"""`dcnn reproduce`: a table or figure of the paper, our numbers beside the published ones."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dcnn import paper
from dcnn.cli.reproduced import shown, write_report
from dcnn.errors import InputError
from dcnn.grid import engine
from dcnn.grid.cells import write_json
from dcnn.grid.store import local_copy
from dcnn.paper.cost import estimate
from dcnn.progress import watching
from dcnn.train.run import finite_or_none


def reproduce(
    name: Annotated[str, typer.Argument(help=", ".join(paper.EXPERIMENTS))],
    scale: Annotated[
        str, typer.Option(help="smoke (2 minutes, no data needed), small (an hour), paper (its exact settings)")
    ] = "smoke",
    models: Annotated[str | None, typer.Option(help="networks, separated by commas")] = None,
    molecules: Annotated[str | None, typer.Option(help="molecules, separated by commas")] = None,
    recipes: Annotated[str | None, typer.Option(help="recipes, for example original,paper,best")] = None,
    seeds: Annotated[int | None, typer.Option(help="runs of every kind; smoke 1, small 2, paper 1")] = None,
    fidelity: Annotated[str, typer.Option(help="text (what the paper says) or scripts (what its code does)")] = "text",
    minutes: Annotated[float | None, typer.Option(help="training time of every run, not for --scale paper")] = None,
    jobs: Annotated[int, typer.Option(help="runs at the same time, one thread each")] = 2,
    data: Annotated[
        Path | None, typer.Option(help="data folder; $DCNN_DATA, ./data, the cache and …/shared/data if not given")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="folder of the results; runs/NAME-SCALE if not given")
    ] = None,
    cells: Annotated[
        str | None, typer.Option(help="folder of the runs; several tables may share one. OUTPUT/cells if not given")
    ] = None,
    on: Annotated[str, typer.Option(help="local, ray, or ray:HOST:PORT")] = "local",
    yes: Annotated[bool, typer.Option("--yes", help="start --scale paper whatever it costs")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print result.json")] = False,
) -> None:
    """Run a table or figure of the paper and show our numbers beside the published ones.

    Example: dcnn reproduce table1 --scale smoke

    Finished runs in the output folder are kept: an interrupted command goes on where it stopped.
    """
    engine.check(on)
    options = paper.Options(scale, _names(models), _names(molecules), _names(recipes), seeds, fidelity, minutes, data)
    plan = paper.plan(paper.get(name), options)
    output = output or f"runs/{name}-{scale}"
    folder = cells or f"{output.rstrip('/')}/cells"
    console = Console(stderr=as_json, soft_wrap=True)
    console.print(plan.title, highlight=False, markup=False)
    if scale == "paper":
        _tell_cost(console, plan, yes)
    with watching(console, len(plan.cells)) as watch:
        runs = engine.run(plan.cells, folder, on, jobs, watch)
    command = shlex.join(["dcnn", *sys.argv[1:]])
    rows = paper.rows(plan, runs)
    local = local_copy(output)
    local.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {
        "name": name,
        "scale": scale,
        "title": plan.title,
        "claim": plan.experiment.claim,
        "command": command,
        "rows": [finite_or_none(row) for row in rows],
        "published": [{"what": list(what), **errors} for what, errors in paper.published(name).items()],
    }
    write_json(local / "result.json", runs, **facts)
    page = write_report(plan, runs, rows, local / "report.html", command)
    where = engine.publish(output, local / "result.json", page)
    if as_json:
        typer.echo(json.dumps({**facts, "runs": runs}, indent=2))
        return
    console.print(shown(plan, rows))
    for line in _verdicts(plan, rows):
        console.print(line, highlight=False)
    console.print(f"report: {where[1]}", highlight=False)


def _tell_cost(console: Console, plan: paper.Plan, yes: bool) -> None:
    """The estimated cost; nothing is started without --yes."""
    console.print("timing a few steps of every network …")
    costs = estimate(plan.cells)
    for cost in costs:
        console.print(
            f"{cost.what}: {cost.runs} runs, {cost.steps:,} steps at {cost.seconds_per_step:.3g} s "
            f"= {cost.hours:,.0f} core hours",
            highlight=False,
        )
    total = sum(cost.hours for cost in costs)
    console.print(f"all {len(plan.cells)} runs: about {total:,.0f} core hours on this machine", highlight=False)
    if not yes:
        raise InputError(f"{plan.experiment.name} at the paper's scale takes {total:,.0f} core hours; start with --yes")


def _verdicts(plan: paper.Plan, rows: list[dict[str, Any]]) -> list[str]:
    """How often our comparisons go the way of the paper's."""
    lines = []
    for name, words in (
        (paper.FORCES, "force errors"),
        (paper.ENERGY, "energy errors"),
        ("nrmse", "errors"),
    ):
        found = paper.agreement(rows, name)
        if found["compared"]:
            lines.append(
                f"{words} against {plan.experiment.recipes[0]}: {found['same_way']} of {found['compared']} go the "
                f"paper's way, {found['beyond']} of them beyond the spread"
            )
    return lines


def _names(given: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in given.split(",") if name.strip()) if given is not None else None
