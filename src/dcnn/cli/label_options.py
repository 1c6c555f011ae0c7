"""Options of the commands that read labelled frames: under which names and in which units the labels stand."""

from __future__ import annotations

from typing import Annotated

import typer

Labels = Annotated[str | None, typer.Option(help="md17: the original labels of an rMD17 file")]
UnitsOption = Annotated[str | None, typer.Option("--units", help="units of the file, e.g. 'Hartree, Bohr'")]
Sign = Annotated[int, typer.Option(help="-1 if the file stores gradients instead of forces")]
EnergyKey = Annotated[str | None, typer.Option(help="name of the energy in the file, e.g. REF_energy")]
ForcesKey = Annotated[str | None, typer.Option(help="name of the forces in the file, e.g. REF_forces")]
StressKey = Annotated[str | None, typer.Option(help="name of the stress in the file (dE/dε / V)")]
VirialKey = Annotated[str | None, typer.Option(help="name of the virial in the file (−V · stress)")]
