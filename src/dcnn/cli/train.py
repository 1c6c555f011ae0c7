"""`dcnn train`: from a data file, a PDE or a configuration to a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console as RichConsole

from dcnn.report import write_run_page
from dcnn.results import fit_committee, fit_config, resolve, resume_run
from dcnn.train.console import TerminalConsole
from dcnn.train.processes import is_first


def train(
    target: Annotated[str | None, typer.Argument(help="data file, config.yaml, PDE name, problem.py, or demo")] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, for example training.minutes=10")] = None,
    recipe: Annotated[str | None, typer.Option(help="best, standard, paper or original; default: best")] = None,
    model: Annotated[
        str | None, typer.Option(help="schnet, cgcnn, dimenet_plus_plus, forcenet, gemnet or tensornet")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="of weights and order of batches (the split has data.split_seed)")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="run folder")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="go on with this run folder; training.epochs=… and the like give a new budget")
    ] = None,
    start_from: Annotated[
        Path | None, typer.Option("--from", help="begin with the weights of this run; references are fitted anew")
    ] = None,
    freeze: Annotated[
        list[str] | None, typer.Option(help="with --from: part that keeps its weights, for example embedding")
    ] = None,
    committee: Annotated[
        int | None, typer.Option(help="train so many potentials that differ in their seed, as one committee")
    ] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="write report.html in the run folder")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print result.json")] = False,
) -> None:
    """Train a potential or a physics-informed network.

    Example: dcnn train ethanol.npz --model schnet training.minutes=10 -o runs/ethanol

    Further training on other frames: dcnn train new.xyz --from runs/ethanol --freeze embedding -o runs/new
    """
    console = TerminalConsole(RichConsole(stderr=as_json))
    if resume is not None:
        pairs = [word for word in (target, *(overrides or [])) if word is not None]
        given = {
            "--committee": committee,
            "--recipe": recipe,
            "--model": model,
            "--seed": seed,
            "--output": output,
            "--from": start_from,
        }
        if ignored := [name for name, value in given.items() if value is not None]:
            raise typer.BadParameter(f"{', '.join(ignored)} would change nothing: the run folder has its configuration")
        result = resume_run(resume, console, pairs)
    else:
        if target is None:
            raise typer.BadParameter("give a data file, a config.yaml or the name of a PDE (or --resume RUN)")
        if freeze and start_from is None:
            raise typer.BadParameter("--freeze keeps weights of an earlier run: give it with --from RUN")
        start = {"run": str(start_from), "freeze": freeze or []} if start_from else None
        config = resolve(target, recipe, overrides or [], model=model, seed=seed, start=start)
        if committee is not None:
            _committee(config, output, committee, console, page, as_json)
            return
        result = fit_config(config, output, console=console)
    if not is_first():  # under torchrun every process comes here
        page = as_json = False
    if page:
        console.console.print(f"report: {write_run_page(result.folder, trust=True)}", soft_wrap=True, highlight=False)
    if as_json:
        typer.echo(json.dumps(result.values, indent=2))
    if result.status == "diverged":
        raise typer.Exit(1)


def _committee(
    config: Any, output: Path | None, members: int, console: TerminalConsole, page: bool, as_json: bool
) -> None:
    results = fit_committee(config, output, members, console=console)
    if not is_first():
        return
    from dcnn.report.committee_charts import write_committee_page

    folder = results[0].folder.parent
    if page and all(result.status != "diverged" for result in results):
        console.console.print(f"report: {write_committee_page(folder)}", soft_wrap=True, highlight=False)
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "members": [result.values for result in results]}, indent=2))
    if any(result.status == "diverged" for result in results):
        raise typer.Exit(1)
