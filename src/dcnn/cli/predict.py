"""`dcnn predict`: energies and forces of structures by a trained potential, fields of a solved PDE."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dcnn import atoms
from dcnn.atoms.data.write import check_output
from dcnn.cli.predict_fields import is_pde, predict_fields
from dcnn.cli.run_frames import outside_frames, say_outside
from dcnn.errors import InputError
from dcnn.progress import progress


def predict(
    run: Annotated[Path, typer.Argument(help="run folder, checkpoint, or folder of a committee")],
    structures: Annotated[
        Path, typer.Argument(help="structures: npz, xyz, db, traj, lmdb, …; of a PDE: grid, or points in .csv or .npz")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help=".xyz, .extxyz, .npz, .traj, .db or .lmdb; of a PDE .npz or .csv")
    ],
    units: Annotated[str | None, typer.Option(help="units of a file that does not state its own")] = None,
    trust: Annotated[bool, typer.Option("--trust", help="the run of a PDE may execute a file that it names")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Energies (eV), forces (eV/Å) and, for crystals, stress (eV/Å³) of every structure in a file; fields of a PDE.

    Example: dcnn predict runs/ethanol conformers.xyz -o predicted.xyz

    Example: dcnn predict runs/burgers grid -o burgers.npz
    """
    if is_pde(run):
        if units is not None:
            raise InputError(f"--units {units}: {run} is a run of a PDE, whose fields are in the units of the problem")
        about = predict_fields(run, structures, output, trust)
        text = f"{about['points']} points in {output}: {', '.join(about['fields'])}"
        typer.echo(json.dumps(about) if as_json else text)
        return
    if trust:
        raise InputError("--trust is for runs of a PDE: a potential from a file is opened in Python (Potential.load)")
    check_output(output)
    potential = atoms.Potential.load(run)
    frames = atoms.load(structures, units=units, require=(), check=False)
    with progress(f"predicting {structures.name}", "structures") as shown:
        found = potential.predict(frames, shown)
    atoms.write(found, output)
    strange = outside_frames(potential, found)
    if as_json:
        energies = [frame.energy for frame in found]
        typer.echo(json.dumps({"file": str(output), "frames": len(found), "energy_eV": energies, "outside": strange}))
    else:
        typer.echo(f"{len(found)} structures in {output} (eV, eV/Å)")
        say_outside(strange, len(found))
