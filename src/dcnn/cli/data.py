"""``dcnn data``: look at files of frames, make new ones, convert them, fetch public ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dcnn.atoms.data import Recipe, inspect, load, write
from dcnn.atoms.data import make as make_frames
from dcnn.atoms.data.frame_checks import unread_labels
from dcnn.atoms.data.label_names import options
from dcnn.atoms.data.write import check_output
from dcnn.atoms.splits import block_split, random_split
from dcnn.cli.label_options import EnergyKey, ForcesKey, Labels, Sign, StressKey, UnitsOption, VirialKey
from dcnn.errors import InputError
from dcnn.fetch import DATASETS, choose, unpack
from dcnn.fetch import fetch as fetch_file
from dcnn.progress import progress

app = typer.Typer(help="Look at, make, convert and fetch files of labelled frames.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="npz, xyz, db, traj, lmdb, an archive of xsf files, or a folder")]


@app.command()
def info(
    file: File,
    labels: Labels = None,
    units: UnitsOption = None,
    force_sign: Sign = 1,
    energy_key: EnergyKey = None,
    forces_key: ForcesKey = None,
    stress_key: StressKey = None,
    virial_key: VirialKey = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Frames, elements, ranges, units, repeats, and whether energies and forces belong together.

    Example: dcnn data info rmd17_ethanol.npz --labels md17
    """
    keys = (energy_key, forces_key, stress_key, virial_key)
    dataset = load(file, labels, units, force_sign, (), *keys, check=False)
    summary = inspect(dataset)
    if as_json:
        typer.echo(json.dumps(summary.to_dict(), indent=2))
    else:
        table = Table(show_header=False, box=None)
        for name, text in summary.rows():
            table.add_row(escape(name), escape(text))
        console = Console(soft_wrap=True)
        console.print(table)
        for message in summary.warnings:
            console.print(f"warning: {message}", style="yellow", highlight=False, markup=False)
    summary.agreement.refuse(dataset)


@app.command()
def make(
    molecule: Annotated[str, typer.Argument(help="a name such as ethanol or CH3CH2OH, or a structure file")],
    frames: Annotated[int, typer.Option(help="number of frames")] = 1000,
    temperature: Annotated[float, typer.Option(help="K")] = 500.0,
    engine: Annotated[str, typer.Option(help="xtb (molecules) or chgnet (crystals)")] = "xtb",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="default: MOLECULE_ENGINE.npz")] = None,
    every: Annotated[int, typer.Option(help="steps of 0.5 fs between two frames")] = 10,
    equilibrate: Annotated[int, typer.Option(help="steps of 0.5 fs thrown away at the start")] = 2000,
    offset: Annotated[str | None, typer.Option(help="pbe: shift energies to the PBE total energy (pyscf)")] = None,
    seed: Annotated[int, typer.Option(help="of velocities and thermostat")] = 0,
) -> None:
    """Labels new frames along Langevin dynamics; a run that was stopped goes on when repeated.

    Example: dcnn data make ethanol --frames 2000 --temperature 500 -o ethanol.npz
    """
    path = output or Path(f"{Path(molecule).stem.replace(' ', '_')}_{engine}.npz")
    if path.exists():
        raise InputError(f"{path}: exists already; give another name with -o")
    recipe = Recipe(temperature, engine, every, equilibrate, offset=offset, seed=seed)
    console = Console(soft_wrap=True)
    with progress(f"{molecule} at {temperature:g} K", "frames", console) as show:
        make_frames(molecule, frames, path, recipe, show)
    console.print(f"{frames} frames in {path}", highlight=False)


@app.command()
def convert(
    file: File,
    output: Annotated[Path, typer.Argument(help=".dcnn (fast to train on), .npz, .lmdb, .xyz, .extxyz, .traj or .db")],
    labels: Labels = None,
    units: UnitsOption = None,
    force_sign: Sign = 1,
    energy_key: EnergyKey = None,
    forces_key: ForcesKey = None,
    stress_key: StressKey = None,
    virial_key: VirialKey = None,
    to_units: Annotated[str | None, typer.Option(help="units of an npz output, e.g. eV; the others are eV, Å")] = None,
    first: Annotated[int | None, typer.Option(help="only so many frames")] = None,
    drop_labels: Annotated[bool, typer.Option(help="leave out entries that look like labels but are not read")] = False,
) -> None:
    """Writes the frames of a file in another format, with the units converted.

    Example: dcnn data convert rmd17_ethanol.npz ethanol.xyz
    """
    keys = (energy_key, forces_key, stress_key, virial_key)
    dataset = load(file, labels, units, force_sign, (), *keys, check=False).everything()
    if first is not None:
        dataset = dataset[:first]
    unread: dict[str, str] = {}
    for number in () if drop_labels else range(0, len(dataset), max(1, len(dataset) // 1000)):
        unread |= unread_labels(dataset[number])
    if unread:
        raise InputError(
            f"{file}: {', '.join(unread)} would be lost; take it with {options(unread, '--')}, or say --drop-labels"
        )
    with progress(f"writing {output.name}", "frames") as show:
        write(dataset.to_units(*_parts(to_units)), output, show)
    Console(soft_wrap=True).print(f"{len(dataset)} frames in {output}", highlight=False)


@app.command()
def split(
    file: File,
    output: Annotated[Path, typer.Option("-o", "--output", help="folder for train, validation and test files")],
    train: Annotated[float, typer.Option(help="frames, or a share below 1")] = 0.8,
    validation: Annotated[float, typer.Option(help="frames, or a share below 1")] = 0.1,
    blocks: Annotated[bool, typer.Option(help="whole stretches of the trajectory instead of single frames")] = False,
    seed: Annotated[int, typer.Option(help="of the choice")] = 0,
    labels: Labels = None,
    units: UnitsOption = None,
    force_sign: Sign = 1,
    energy_key: EnergyKey = None,
    forces_key: ForcesKey = None,
    stress_key: StressKey = None,
    virial_key: VirialKey = None,
    ending: Annotated[str, typer.Option("--format", help="xyz, npz, lmdb, db, traj or dcnn")] = "xyz",
) -> None:
    """Writes training, validation and test frames (the rest) to files of their own; free atoms go with the first.

    Example: dcnn data split rmd17_ethanol.npz --blocks --train 1000 --validation 100 -o ethanol
    """
    dataset = load(file, labels, units, force_sign, (), energy_key, forces_key, stress_key, virial_key)
    everything, count = dataset.everything(), len(dataset)
    if blocks:
        parts = block_split(count, train, validation, seed=seed, order=dataset.trajectory_index())
    else:
        parts = random_split(count, train, validation, seed=seed)
    chosen = {"train": parts.train, "validation": parts.valid, "test": parts.test}
    files = {name: check_output(output / f"{name}.{ending}") for name in chosen}
    for path in files.values():
        if path.exists():
            raise InputError(f"{path}: exists already; give another folder")
    free = np.setdiff1d(everything.numbers, dataset.numbers)
    for name, entries in chosen.items():
        if len(entries):
            numbers = dataset.numbers[np.sort(entries)]
            write(everything[np.concatenate([free, numbers]) if name == "train" else numbers], files[name])
            typer.echo(f"{len(numbers)} frames in {files[name]}")


@app.command()
def fetch(
    dataset: Annotated[str, typer.Argument(help=", ".join(DATASETS))],
    only: Annotated[
        str | None, typer.Option("--molecules", "--problems", help="molecules (or PDEs of pdebench), by commas")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="$DCNN_DATA, else ~/.cache/dcnn")] = None,
) -> None:
    """Downloads a public data set, verifies and unpacks it; what was interrupted goes on when repeated.

    Example: dcnn data fetch md17 --molecules ethanol,aspirin -o data
    """
    from dcnn.pde.cache import cache_directory  # imports torch

    files, keys = choose(dataset, [name.strip() for name in only.split(",")] if only else None)
    folder = output or Path(os.environ.get("DCNN_DATA") or cache_directory())
    for remote in files:
        with progress(Path(remote.file).name, "bytes") as show:
            path, done = fetch_file(remote, folder, show)
        typer.echo(done)
        if remote.unpack:
            typer.echo(f"unpacked {len(unpack(remote, path, keys))} files in {path.parent}")


def _parts(units: str | None) -> list[str]:
    return [part.strip() for part in units.split(",")] if units else []
