"""`dcnn lammps`: an input script of LAMMPS with the forces of a trained potential."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dcnn.atoms.lammps import open_lammps, run_script
from dcnn.guard import read_text


def lammps(
    run: Annotated[Path, typer.Argument(help="run folder, checkpoint, or folder of a committee")],
    script: Annotated[Path, typer.Argument(help="input script with a `fix NAME all external pf/callback 1 1`")],
    elements: Annotated[str, typer.Option(help="symbols of the atom types in their order, for example C,O,H")],
    dtype: Annotated[str, typer.Option(help="float64 or float32")] = "float64",
    outside: Annotated[str, typer.Option(help="where frames leave what was trained on: stop, warn or ignore")] = "stop",
    log: Annotated[str, typer.Option(help="log file of LAMMPS")] = "log.lammps",
) -> None:
    """Run LAMMPS on an input script, with energies, forces and pressure of a trained potential.

    Example: dcnn lammps runs/ethanol in.ethanol --elements C,O,H
    """
    lmp = open_lammps(["-log", log])
    symbols = [symbol.strip() for symbol in elements.split(",")]
    run_script(run, read_text(script, "input script", 1 << 22), symbols, lmp, dtype=dtype, outside=outside)
