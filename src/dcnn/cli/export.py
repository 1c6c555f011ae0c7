"""`dcnn export`: a potential, or the solution of a PDE, as one file that other programs run without dcnn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dcnn import atoms
from dcnn.atoms.export import export as export_potential
from dcnn.cli.predict_fields import is_pde
from dcnn.cli.run_frames import own_test_frames
from dcnn.errors import InputError, unknown
from dcnn.results import TrainedRun

EXAMPLES = 3  # structures that the exported potential is tried on
FORMATS = ("torch", "metatomic")


def export(
    run: Annotated[Path, typer.Argument(help="run folder or checkpoint of a potential, or run folder of a PDE")],
    output: Annotated[Path, typer.Option("-o", "--output", help="file to write: .pt2, or .pt for metatomic")],
    structure: Annotated[
        Path | None, typer.Option(help="structures to try it on; default: test frames of the run")
    ] = None,
    to: Annotated[str, typer.Option(help="torch (needs torch only) or metatomic (i-PI, ASE, LAMMPS, …)")] = "torch",
    aot: Annotated[bool, typer.Option(help="compile it for this kind of processor (AOTInductor)")] = False,
    dtype: Annotated[str | None, typer.Option(help="float64 or float32; default: as trained")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Write energies, forces, stress and atomic energies as a package that torch runs, or as a metatomic model.

    Example: dcnn export runs/ethanol -o ethanol.pt2

    For i-PI and others: dcnn export runs/ethanol --to metatomic -o ethanol.pt
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    if is_pde(run):
        if structure or aot or dtype or to != FORMATS[0]:
            raise InputError(f"{run}: a run of a PDE is exported as it is; leave out the options of potentials")
        solution = TrainedRun.open(run).solution
        solution.export(output)
        about = {"file": str(output), "coordinates": solution.coordinates, "fields": solution.fields}
        typer.echo(json.dumps(about) if as_json else f"wrote {output}; load it with torch.export.load")
        return
    potential = atoms.Potential.load(run, dtype=dtype)
    frames = atoms.load(structure, require=(), check=False) if structure else own_test_frames(run)
    examples = list(frames.to_units(length="Ang")[:EXAMPLES])
    if to == "metatomic":
        if aot:
            raise typer.BadParameter("--aot goes with --to torch")
        from dcnn.atoms.metatomic import export_metatomic

        about = export_metatomic(potential, output, examples)
        call = "metatomic_ase.MetatomicCalculator"
    else:
        about = export_potential(potential, output, examples, aot)
        call = "torch._inductor.aoti_load_package" if aot else "torch.export.load"
    if as_json:
        typer.echo(json.dumps({"file": str(output), **about}, indent=2))
        return
    typer.echo(f"wrote {output}: {about['network']}, cutoff {about['cutoff_A']:g} Å; load it with {call}")
