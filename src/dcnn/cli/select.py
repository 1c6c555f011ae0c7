"""`dcnn select`: the frames of a pool that are worth labelling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from dcnn import atoms
from dcnn.atoms.data.write import check_output
from dcnn.atoms.selection import select as select_frames
from dcnn.progress import progress


def select(
    paths: Annotated[list[Path], typer.Argument(help="runs or the folder of a committee, then the pool of structures")],
    output: Annotated[Path, typer.Option("-o", "--output", help=".xyz, .extxyz, .npz, .traj, .db or .lmdb")],
    count: Annotated[int, typer.Option("-n", "--count", help="frames to take")] = 50,
    by: Annotated[
        str, typer.Option(help="disagreement, farthest (from each other), or both: the farthest where they disagree")
    ] = "both",
    known: Annotated[Path | None, typer.Option(help="labelled frames to be far from, too")] = None,
    units: Annotated[str | None, typer.Option(help="units of a pool that does not state its own")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Take the frames on which a committee disagrees most, unlike each other, for labelling.

    Example: dcnn select runs/committee pool.xyz -n 50 -o to_label.xyz
    """
    check_output(output)
    *runs, pool = paths
    frames = atoms.load(pool, units=units, require=(), check=False)
    potential = atoms.Potential.load(runs if len(runs) > 1 else runs[0]) if runs else None
    labelled = atoms.load(known, require=(), check=False).to_units(length="Ang") if known else ()
    with progress(f"looking at {pool.name}", "structures") as shown:
        chosen, spread = select_frames(potential, frames.to_units(length="Ang"), count, by, labelled, shown)
    atoms.write(frames[chosen], output)
    found = None if spread is None else [float(spread[n]) for n in chosen]
    if as_json:
        typer.echo(json.dumps({"file": str(output), "frames": chosen, "force_std_eV_A": found}))
        return
    typer.echo(f"{len(chosen)} of {len(frames)} structures in {output}")
    if spread is not None and found:
        mean, most = sum(found) / len(found), max(found)
        typer.echo(f"disagreement {mean:.3g} eV/Å on average, {most:.3g} at most; {spread.mean():.3g} in the pool")
