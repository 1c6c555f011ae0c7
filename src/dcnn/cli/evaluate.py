"""`dcnn evaluate`: how good a finished run is, on its own test data or on another file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dcnn import atoms
from dcnn.atoms.committee import member_folders
from dcnn.cli.label_options import EnergyKey, ForcesKey, Labels, Sign, StressKey, UnitsOption, VirialKey
from dcnn.cli.run_frames import own_test_frames
from dcnn.errors import DcnnError
from dcnn.results import TrainedRun
from dcnn.train.run import finite_or_none


def evaluate(
    run: Annotated[Path, typer.Argument(help="run folder of dcnn train, or folder of a committee")],
    data: Annotated[
        Path | None, typer.Option(help="file of labelled frames or, for a PDE, of its solution; default: the test data")
    ] = None,
    labels: Labels = None,
    units: UnitsOption = None,
    force_sign: Sign = 1,
    energy_key: EnergyKey = None,
    forces_key: ForcesKey = None,
    stress_key: StressKey = None,
    virial_key: VirialKey = None,
    trust: Annotated[bool, typer.Option("--trust", help="run the Python file that the run names")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Errors of the best weights of a run, in the units that stand in their names.

    Of a committee also its disagreement beside its errors. `outside`: frames unlike any that was trained on.

    Example: dcnn evaluate runs/ethanol --data rmd17_ethanol.npz
    """
    found: dict[str, Any] = {"run": str(run), "data": str(data) if data else "test data of the run"}
    errors: dict[str, Any]
    frames: int | None
    keys = {"energy_key": energy_key, "forces_key": forces_key, "stress_key": stress_key, "virial_key": virial_key}
    named = {"labels": labels, "units": units, "force_sign": None if force_sign == 1 else force_sign, **keys}
    reading: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if member_folders(run):
        tested = atoms.load(data, require="any", **reading) if data else own_test_frames(run)
        errors, frames = atoms.Potential.load(run, trust=trust).evaluate(tested), len(tested)
    else:
        opened = TrainedRun.open(run, trust)
        errors = opened.evaluate(data, **reading)
        frames = errors.pop("frames", None) if data else opened.task.count("test")
    found |= {"errors": errors} if frames is None else {"frames": frames, "errors": errors}
    if as_json:
        typer.echo(json.dumps(finite_or_none(found), indent=2))
    else:
        typer.echo(f"{run} on {found['data']}" + (f", {found['frames']} frames" if "frames" in found else ""))
        _show(found["errors"])
    if not all(math.isfinite(value) for value in found["errors"].values() if isinstance(value, float)):
        raise DcnnError(f"{run}: errors that are not finite: the run diverged, or the data hold what it cannot take")


def _show(errors: dict[str, Any], indent: int = 2) -> None:
    for name, value in errors.items():
        if isinstance(value, dict):
            typer.echo(f"{' ' * indent}{name}")
            _show(value, indent + 2)
        else:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            typer.echo(f"{' ' * indent}{name:<{26 - indent}} {text}")
