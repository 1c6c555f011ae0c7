"""`dcnn predict`: energies and forces of structures by a trained potential."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dcnn import atoms
from dcnn.atoms.data.write import check_output
from dcnn.cli.run_frames import outside_frames, say_outside
from dcnn.progress import progress


def predict(
    run: Annotated[Path, typer.Argument(help="run folder, checkpoint, or folder of a committee")],
    structures: Annotated[Path, typer.Argument(help="npz, xyz, db, traj, lmdb or whatever else ASE reads")],
    output: Annotated[Path, typer.Option("-o", "--output", help=".xyz, .extxyz, .npz, .traj, .db or .lmdb")],
    units: Annotated[str | None, typer.Option(help="units of a file that does not state its own")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Energies (eV), forces (eV/Å) and, for crystals, stress (eV/Å³) of every structure in a file.

    Example: dcnn predict runs/ethanol conformers.xyz -o predicted.xyz
    """
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
