"""`dcnn md`: molecular dynamics with a trained potential, and how well it keeps its energy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import ase.io
import torch
import typer

from dcnn import atoms
from dcnn.atoms.data.write import check_output
from dcnn.atoms.dynamics import Simulation, simulate
from dcnn.atoms.replicas import simulate_replicas
from dcnn.atoms.trained_range import OutsideRangeError
from dcnn.cli.run_frames import own_test_frames
from dcnn.errors import InputError
from dcnn.progress import progress


def md(
    run: Annotated[Path, typer.Argument(help="run folder, checkpoint, or folder of a committee")],
    steps: Annotated[int, typer.Option(help="number of steps")],
    temperature: Annotated[float, typer.Option(help="K: of the first velocities, and of the thermostat")] = 300.0,
    ensemble: Annotated[str, typer.Option(help="nve (velocity Verlet), nvt (Langevin) or npt (isotropic)")] = "nve",
    pressure: Annotated[float, typer.Option(help="GPa, for npt")] = 0.0,
    timestep: Annotated[float, typer.Option(help="fs")] = 0.5,
    structure: Annotated[
        Path | None, typer.Option(help="file whose first frame is the start; default: the first test frame of the run")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="trajectory, .traj or .xyz")] = None,
    every: Annotated[int, typer.Option(help="steps between two frames of the trajectory")] = 10,
    equilibrate: Annotated[int, typer.Option(help="steps of Langevin dynamics before the first step")] = 0,
    friction: Annotated[float, typer.Option(help="of the thermostat, 1/fs")] = 0.01,
    skin: Annotated[float, typer.Option(help="margin of the pair list, Å")] = 1.0,
    dtype: Annotated[str, typer.Option(help="float64 or float32")] = "float64",
    outside: Annotated[
        str, typer.Option(help="where frames leave what was trained on: stop (exit code 1), warn or ignore")
    ] = "stop",
    stop_uncertainty: Annotated[
        float | None, typer.Option(help="eV/Å; a committee that disagrees more on the force on an atom ends the run")
    ] = None,
    last_frame: Annotated[Path, typer.Option(help="where the frame goes at which a run is ended so")] = Path(
        "md-outside.xyz"
    ),
    replicas: Annotated[
        int, typer.Option(help="copies that move at once (nve, nvt); the trajectory then holds where each ended")
    ] = 1,
    seed: Annotated[int, typer.Option(help="of velocities and thermostat")] = 0,
    threads: Annotated[int | None, typer.Option(help="default: 1 below 100 atoms, else as torch decides")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Run molecular dynamics and report temperature and energy drift.

    Example: dcnn md runs/ethanol --steps 20000 --temperature 300 --timestep 0.5 -o ethanol.traj
    """
    calculator = atoms.Calculator(run, skin=skin, dtype=dtype, outside=outside)
    frames = atoms.load(structure, require=(), check=False) if structure else own_test_frames(run)
    moving = frames.to_units("eV", "Ang")[0].to_ase()
    moving.calc = calculator
    if threads or len(moving) < 100:  # the operations of a small molecule are too short to share
        torch.set_num_threads(threads or 1)
    if pressure and ensemble != "npt":
        raise InputError(f"--pressure {pressure}: only --ensemble npt holds a pressure")
    if replicas > 1:
        given = {
            "--equilibrate": equilibrate,
            "--stop-uncertainty": stop_uncertainty,
            "--outside warn": outside == "warn",
        }
        if ignored := [option for option, value in given.items() if value]:
            raise InputError(f"--replicas {replicas}: {', '.join(ignored)} would change nothing; leave it out")
        _replicas(
            calculator.potential, moving, output, last_frame, as_json, replicas=replicas, steps=steps,
            ensemble=ensemble, temperature=temperature, timestep=timestep, friction=friction, seed=seed,
            check_every=0 if outside == "ignore" else every,
        )  # fmt: skip
        return
    with progress(f"{ensemble} of {moving.get_chemical_formula()}", "steps") as shown:
        result = simulate(
            moving,
            steps,
            ensemble=ensemble,
            temperature=temperature,
            timestep=timestep,
            friction=friction,
            equilibrate=equilibrate,
            trajectory=output,
            every=every,
            seed=seed,
            pressure=pressure,
            stop_uncertainty=stop_uncertainty,
            last_frame=last_frame,
            progress=shown,
        )
    if as_json:
        typer.echo(json.dumps({**result.to_dict(), "trajectory": str(output) if output else None}, indent=2))
    else:
        _show(result, output)


def _replicas(
    potential: atoms.Potential, moving: Any, output: Path | None, last_frame: Path, as_json: bool, **settings: Any
) -> None:
    if output is not None:
        check_output(output)
    try:
        with progress(f"replicas of {moving.get_chemical_formula()}", "steps") as shown:
            found = simulate_replicas(potential, moving, progress=shown, **settings)
    except OutsideRangeError as error:
        ase.io.write(last_frame, error.atoms, format="extxyz")
        raise
    if output is not None:
        atoms.write(atoms.Dataset(found.frames, "eV"), output)
    about = {name: value for name, value in vars(found).items() if name != "frames"}
    if as_json:
        typer.echo(
            json.dumps({"replicas": len(found.frames), **about, "file": str(output) if output else None}, indent=2)
        )
        return
    typer.echo(
        f"{len(found.frames)} replicas of {found.steps} steps, {found.replica_steps_per_second:.0f} of them a second"
    )
    drift = "" if found.drift_meV_atom_ps is None else f", energy drift {found.drift_meV_atom_ps:.4f} meV/atom/ps (rms)"
    typer.echo(f"temperature {found.temperature_K:.1f} K{drift}")


def _show(result: Simulation, output: Path | None) -> None:
    typer.echo(f"{result.steps} steps of {result.timestep_fs:g} fs, {result.ms_per_step:.2f} ms each")
    typer.echo(f"temperature {result.temperature_K:.1f} ± {result.temperature_std_K:.1f} K")
    if result.drift_meV_atom_ps is not None:
        typer.echo(
            f"energy drift {result.drift_meV_atom_ps:+.4f} meV/atom/ps (fit of the total energy), "
            f"fluctuation {result.fluctuation_meV_atom:.4f} meV/atom"
        )
    if output is not None:
        typer.echo(f"trajectory in {output}")
