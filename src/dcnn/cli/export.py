"""`dcnn export`: a potential, or the solution of a PDE, as one file that torch runs without dcnn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dcnn import atoms
from dcnn.atoms.export import export as export_potential
from dcnn.cli.predict_fields import is_pde
from dcnn.cli.run_frames import own_test_frames
from dcnn.errors import InputError
from dcnn.results import TrainedRun

EXAMPLES = 3  # structures that the exported potential is tried on


def export(
    run: Annotated[Path, typer.Argument(help="run folder or checkpoint of a potential, or run folder of a PDE")],
    output: Annotated[Path, typer.Option("-o", "--output", help="package to write, .pt2")],
    structure: Annotated[
        Path | None, typer.Option(help="structures to try it on; default: test frames of the run")
    ] = None,
    aot: Annotated[bool, typer.Option(help="compile it for this kind of processor (AOTInductor)")] = False,
    dtype: Annotated[str | None, typer.Option(help="float64 or float32; default: as trained")] = None,
    max_neighbours: Annotated[
        int | None,
        typer.Option(help="of an atom, for networks with angles; default: 1.5 times the most there"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Write (z, positions, pair_i, pair_j, shift, cell, system) → energies (eV), forces (eV/Å) as a torch package.

    Example: dcnn export runs/ethanol -o ethanol.pt2
    """
    if is_pde(run):
        if structure or aot or dtype or max_neighbours:
            raise InputError(f"{run}: a run of a PDE is exported as it is; leave out the options of potentials")
        solution = TrainedRun.open(run).solution
        solution.export(output)
        about = {"file": str(output), "coordinates": solution.coordinates, "fields": solution.fields}
        typer.echo(json.dumps(about) if as_json else f"wrote {output}; load it with torch.export.load")
        return
    potential = atoms.Potential.load(run, dtype=dtype)
    frames = atoms.load(structure, require=(), check=False) if structure else own_test_frames(run)
    about = export_potential(potential, output, list(frames.to_units(length="Ang")[:EXAMPLES]), aot, max_neighbours)
    if as_json:
        typer.echo(json.dumps({"file": str(output), **about}, indent=2))
        return
    call = "torch._inductor.aoti_load_package" if aot else "torch.export.load"
    typer.echo(f"wrote {output}: {about['network']}, cutoff {about['cutoff_A']:g} Å; load it with {call}")
