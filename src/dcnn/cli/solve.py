"""`dcnn solve`: reference solutions of a PDE problem as a PDEBench file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dcnn.errors import InputError
from dcnn.pde import problems
from dcnn.pde.generate import generate


def solve(
    problem: Annotated[str, typer.Argument(help="Name of a problem, or a Python file that defines one.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="HDF5 file to write.")],
    settings: Annotated[
        list[str] | None, typer.Argument(help="Parameters and options, e.g. beta=0.4 boundary=outgoing.")
    ] = None,
    samples: Annotated[int, typer.Option(help="How many solutions, each from its own initial condition.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the initial conditions.")] = 0,
    resolution: Annotated[int | None, typer.Option(help="Cells along each axis.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Solve a PDE problem and write PDEBench's HDF5 layout.

    Interrupted, the same command continues where it stopped.

    Example: dcnn solve advection -o advection.hdf5 --samples 100 beta=0.4
    """
    given = read_settings(settings or [])
    if resolution is not None:
        given["resolution"] = resolution
    chosen = problems.get(problem, **given)
    progress = generate(chosen, output, samples, seed)
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task(f"solving {problem}", total=samples)
            for ready in progress:
                bar.update(task, completed=ready)
    else:
        for ready in progress:
            typer.echo(f"{problem}: {ready} of {samples} samples", err=True)
    size = output.stat().st_size
    if as_json:
        typer.echo(json.dumps({"file": str(output), "samples": samples, "bytes": size}))
    else:
        typer.echo(f"wrote {output}: {samples} sample{'s' * (samples != 1)}, {size / 1e6:.1f} MB")


def read_settings(pairs: list[str]) -> dict[str, Any]:
    """{"beta": 0.4} from ["beta=0.4"]; values are read as YAML.

    >>> read_settings(["beta=0.4", "boundary=outgoing"])
    {'beta': 0.4, 'boundary': 'outgoing'}
    """
    found = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise InputError(f"{pair!r} is not of the form key=value, e.g. beta=0.4")
        found[key] = yaml.safe_load(value)
    return found
