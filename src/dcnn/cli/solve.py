"""`dcnn solve`: reference solutions of a PDE problem as a PDEBench file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from dcnn.errors import InputError
from dcnn.pde import problems
from dcnn.pde.generate import generate
from dcnn.progress import progress


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
    for name in ("sample", "seed"):
        if name in given:
            raise InputError(f"{name}={given[name]}: every solution has its own; give --samples and --seed")
    if "resolution" in given and resolution is not None:
        raise InputError("give resolution=… or --resolution, not both")
    if resolution is not None:
        given["resolution"] = resolution
    chosen = problems.get(problem, **given)
    with progress(f"solving {problem}", "samples") as show:
        for ready in generate(chosen, output, samples, seed):
            show(ready, samples)
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
