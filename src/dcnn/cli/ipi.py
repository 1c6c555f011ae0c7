"""`dcnn ipi`: forces of a trained potential for i-PI, through its socket."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer
from ase.calculators.socketio import SocketClient, SocketClosed

from dcnn import atoms
from dcnn.cli.run_frames import own_test_frames


def ipi(
    run: Annotated[Path, typer.Argument(help="run folder, checkpoint, or folder of a committee")],
    structure: Annotated[
        Path | None, typer.Option(help="file whose first frame has the atoms in i-PI's order; default: a test frame")
    ] = None,
    unix: Annotated[str | None, typer.Option(help="name of a unix socket, as in the input of i-PI")] = None,
    host: Annotated[str, typer.Option(help="of i-PI, where the socket is of kind inet")] = "localhost",
    port: Annotated[int, typer.Option(help="of the socket")] = 31415,
    outside: Annotated[str, typer.Option(help="where frames leave what was trained on: stop, warn or ignore")] = "stop",
) -> None:
    """Serve energies, forces and, for crystals, stress to a running i-PI until it ends; several may serve one.

    Example: dcnn ipi runs/ethanol --structure start.xyz --unix ethanol
    """
    frames = atoms.load(structure, require=(), check=False) if structure else own_test_frames(run)
    served = frames.to_units("eV", "Ang")[0].to_ase()
    served.calc = atoms.Calculator(run, outside=outside)
    if len(served) < 100:  # the operations of a small molecule are too short to share
        torch.set_num_threads(1)
    client = SocketClient(unixsocket=unix) if unix else SocketClient(host=host, port=port)
    try:
        client.run(served, use_stress=bool(served.pbc.all()))
    except SocketClosed:
        typer.echo("i-PI has closed the socket")
