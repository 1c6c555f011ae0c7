"""`dcnn evaluate`: how good a finished run is, on its own test data or on another file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dcnn import atoms, checkpoint
from dcnn.cli.frames import own_test_frames
from dcnn.train.config import AtomsConfig, PdeConfig
from dcnn.train.run import Run, finite_or_none
from dcnn.train.tasks import build_task


def evaluate(
    run: Annotated[Path, typer.Argument(help="run folder of dcnn train")],
    data: Annotated[
        Path | None, typer.Option(help="file of labelled frames or, for a PDE, of its solution; default: the test data")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Errors of the best weights of a run, in the units that stand in their names.

    Example: dcnn evaluate runs/ethanol --data rmd17_ethanol.npz
    """
    config = Run.open(run).config()
    found: dict[str, Any] = {"run": str(run), "data": str(data) if data else "test data of the run"}
    if isinstance(config, AtomsConfig):
        frames = atoms.load(data) if data else own_test_frames(run)
        found["frames"] = len(frames)
        found["errors"] = dict(atoms.Potential.load(run).evaluate(frames))
    else:
        found["errors"] = _pde_errors(run, config, data)
    if as_json:
        typer.echo(json.dumps(finite_or_none(found), indent=2))
        return
    typer.echo(f"{run} on {found['data']}" + (f", {found['frames']} frames" if "frames" in found else ""))
    for name, value in found["errors"].items():
        typer.echo(f"  {name:<24} {value:.6g}" if isinstance(value, float) else f"  {name:<24} {value}")


def _pde_errors(run: Path, config: PdeConfig, data: Path | None) -> dict[str, Any]:
    if data is not None:
        config = config.model_copy(update={"problem": config.problem.model_copy(update={"reference": str(data)})})
    task = build_task(config)
    task.network.load_state_dict(checkpoint.load(Run(run).best)["network"])
    task.network.eval()
    return task.evaluate(task.network, "test")
