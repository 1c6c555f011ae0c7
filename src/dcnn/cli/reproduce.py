"""`dcnn reproduce`: a table or figure of the paper, our numbers beside the published ones."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dcnn import paper
from dcnn.cli.result_table import result_table, terminal_table
from dcnn.errors import InputError
from dcnn.grid import engine
from dcnn.grid.cells import write_json
from dcnn.grid.store import local_copy
from dcnn.paper.cost import estimate
from dcnn.progress import watching
from dcnn.report import Figure, Table, series_figure, write_rows_page
from dcnn.results.metrics import BY_NAME, METRICS
from dcnn.results.statistics import ResultRow
from dcnn.train.run import finite_or_none

_TERM = {"f": "L_f", "ic": "L_IC", "bc": "L_BC"}
_NOTE = {
    "smoke": "A smoke test: seconds of training show that everything works, not which recipe is better.",
    "small": "Minutes of training, potentials with small networks in batches of 5 at a rate of 1e-3: not the paper's "
    "50 epochs on 50,000 frames in batches of 20 at 1e-4, nor its 15,000 steps for PDEs.",
    "long": "Small networks and 950 frames, with the paper's own batches, rate and loss; PDEs as in the paper.",
    "paper": "The paper's own settings.",
}


def reproduce(
    name: Annotated[str, typer.Argument(help=", ".join(paper.EXPERIMENTS))],
    scale: Annotated[
        str,
        typer.Option(
            help="smoke (2 minutes, no data needed), small (an hour), long (its batches and rate, small networks), "
            "paper (its exact settings)"
        ),
    ] = "smoke",
    models: Annotated[str | None, typer.Option(help="networks, separated by commas")] = None,
    molecules: Annotated[str | None, typer.Option(help="molecules, separated by commas")] = None,
    recipes: Annotated[str | None, typer.Option(help="recipes, for example original,paper,best")] = None,
    seeds: Annotated[int | None, typer.Option(help="runs of every kind; small and long 2, else 1")] = None,
    fidelity: Annotated[str, typer.Option(help="text (what the paper says) or scripts (what its code does)")] = "text",
    minutes: Annotated[float | None, typer.Option(help="training time of every run at smoke or small")] = None,
    steps: Annotated[int | None, typer.Option(help="steps of every run at long; 30,000 or, for PDEs, 15,000")] = None,
    jobs: Annotated[int | None, typer.Option(help="runs at the same time, one thread each; 2 if not given")] = None,
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
    chosen = _names(models), _names(molecules), _names(recipes)
    options = paper.Options(scale, *chosen, seeds, fidelity, minutes, data, steps)
    plan = paper.plan(paper.get(name), options)
    output = output or f"runs/{name}-{scale}"
    folder = cells or f"{output.rstrip('/')}/cells"
    console = Console(stderr=as_json, soft_wrap=True)
    console.print(plan.title, highlight=False, markup=False)
    if yes and scale != "paper":
        raise InputError(f"--yes is for --scale paper; {scale} asks for nothing")
    if scale == "paper":
        _tell_cost(console, plan, yes)
    with watching(console, len(plan.cells)) as watch:
        runs = engine.run(plan.cells, folder, on, jobs, watch)
    command = shlex.join(["dcnn", *sys.argv[1:]])
    rows = paper.rows(plan, runs)
    local = local_copy(output)
    facts: dict[str, Any] = {
        "name": name,
        "scale": scale,
        "title": plan.title,
        "claim": plan.experiment.claim,
        "command": command,
        "rows": [finite_or_none(paper.to_dict(plan, row)) for row in rows],
        "published": [{"what": list(what), **errors} for what, errors in paper.published(name).items()],
    }
    write_json(local / "result.json", runs, **facts)
    tables = [_terms_table(plan, rows)] if plan.experiment.terms else []
    note = f"The paper: “{plan.experiment.claim}” {_NOTE[plan.options.scale]}"
    page = write_rows_page(
        rows, local / "report.html", plan.title, figures=_figures(plan, rows), tables=tables, command=command, note=note
    )
    where = engine.publish(output, local / "result.json", page)
    if as_json:
        typer.echo(json.dumps({**facts, "runs": runs}, indent=2))
        return
    for table in (result_table(rows), *map(terminal_table, tables)):
        console.print(table)
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


def _verdicts(plan: paper.Plan, rows: Sequence[ResultRow]) -> list[str]:
    """How often our comparisons go the way of the paper's."""
    lines = []
    for metric in METRICS:
        found = paper.agreement(rows, metric.name)
        if found["compared"]:
            lines.append(
                f"{metric.title} against {plan.experiment.recipes[0]}: {found['same_way']} of {found['compared']} go "
                f"the paper's way, {found['beyond']} of them beyond the spread"
            )
    return lines


def _terms_table(plan: paper.Plan, rows: Sequence[ResultRow]) -> Table:
    """The layout of Tables 3 to 5: our line and the paper's for every method."""
    lines: list[list[str | float | None]] = []
    for row in rows:
        error, constant = row.cell("nrmse"), row.cell("constant_nrmse")
        terms = paper.terms(plan, row).values()
        means = (cell.stat.mean if cell and cell.stat else None for cell in (error, constant))
        lines.append([row.labels["recipe"], "ours", *means, *(term["mean"] for term in terms)])
        if any(term["published"] is not None for term in terms):
            published = (term["published"] for term in terms)
            lines.append([row.labels["recipe"], "paper", error.published if error else None, None, *published])
    names = (name.partition("_") for name in plan.experiment.terms)
    columns = ["method", "", "nRMSE", "of a constant", *(f"{_TERM[first]} {rest}".strip() for first, _, rest in names)]
    note = (
        "original: tanh, paper: IReLU, -bn: with BatchNorm. Loss terms are means over the last epoch; where our loss "
        "has several equations, L_f is their sum. The paper calls its nRMSE “MSE”; it prints 10⁻⁴⁵ as “< e-45”."
    )
    return Table("Error and loss terms", columns, lines, note, labels=2)


def _figures(plan: paper.Plan, rows: Sequence[ResultRow]) -> list[Figure]:
    """Errors against what is varied, one figure an error."""
    varied = plan.experiment.varied
    if varied is None:
        return []
    figures = []
    for metric in (BY_NAME[paper.FORCES], BY_NAME[paper.ENERGY]):
        ours: dict[str, list[tuple[float, float, float | None]]] = {}
        theirs: dict[str, list[tuple[float, float, float | None]]] = {}
        for row in rows:
            cell = row.cell(metric.name)
            if cell is None or cell.stat is None:
                continue
            series = "{model} {recipe}, {molecule}".format(**row.labels)
            ours.setdefault(series, []).append((row.labels[varied.label], cell.stat.mean, cell.stat.spread))
            if cell.published is not None:
                theirs.setdefault(series, []).append((row.labels[varied.label], cell.published, None))
        title = f"{metric.title} against the {varied.axis}"
        if ours:
            figures.append(
                series_figure(title[0].upper() + title[1:], ours, varied.axis, metric.label, published=theirs)
            )
    return figures


def _names(given: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in given.split(",") if name.strip()) if given is not None else None
