"""`dcnn bench`: what a training step costs on this machine, beside other tools."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from dcnn.bench.timing import CLOCKS, StepRatio
from dcnn.errors import InputError
from dcnn.progress import progress

app = typer.Typer(help="Time and memory of a training step on this machine.", no_args_is_help=True)

Rounds = Annotated[int, typer.Option(min=2, help="turns of each side, of five steps each")]
Threads = Annotated[int, typer.Option(min=1, help="threads of both sides")]
Clock = Annotated[str, typer.Option(help="wall, or cpu: time of one thread on a busy machine")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="JSON file to write besides")]
AsJson = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


@app.command()
def pde(
    problems: Annotated[str, typer.Option(help="which, separated by commas")] = (
        "advection,compressible,diffusion_reaction"
    ),
    activation: Annotated[str, typer.Option(help="tanh as published, irelu, or one that DeepXDE has")] = "tanh",
    step: Annotated[str, typer.Option(help="ours: compiled, traced or eager")] = "compiled",
    rounds: Rounds = 12,
    threads: Threads = 2,
    clock: Clock = "wall",
    memory: Annotated[bool, typer.Option(help="measure peak memory, too, in processes of their own")] = True,
    to_error: Annotated[bool, typer.Option(help="CPU seconds until DeepXDE's error for Burgers' equation")] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The paper's three PDE set-ups, ours against DeepXDE: same points, same loss, same weights.

    With --to-error: DeepXDE's own script for Burgers' equation (a minute or two), then `best` until it has that error.

    Needs DeepXDE (dcnn's extra "compare"). Making a compiled step takes about a minute a problem.

    Example: dcnn bench pde --problems advection,compressible --rounds 40 -o bench.json
    """
    from dcnn.bench.pde_steps import compare_pde  # imports deepxde

    _check_conditions(threads, clock)
    if to_error:
        from dcnn.bench.to_error import time_to_error

        torch.set_num_threads(1)  # CPU seconds of one thread
        run = time_to_error()
        line = f"burgers to nRMSE {run.error:.3g}: ours {run.ours_s:.1f} CPU s, {run.peer} {run.peer_s:.1f} CPU s"
        _write([run.to_dict()], output, as_json, line)
        return
    with progress("dcnn bench pde", "problems") as show:
        found = compare_pde(problems.split(","), activation, step, rounds, threads, clock, memory, show)
    _report(found, output, as_json)


@app.command()
def atoms(
    models: Annotated[str, typer.Option(help="which, separated by commas")] = (
        "schnet,cgcnn,dimenet_plus_plus,forcenet,gemnet"
    ),
    preset: Annotated[str, typer.Option(help="sizes of the networks: small, or paper")] = "small",
    step: Annotated[str, typer.Option(help="ours: compiled, traced or eager")] = "compiled",
    against: Annotated[
        str,
        typer.Option(
            help="our own eager step; the same network written as published (plain); PyTorch Geometric's SchNet (pyg)"
        ),
    ] = "eager",
    batch_size: Annotated[int, typer.Option(min=1, help="frames a step")] = 5,
    data: Annotated[str, typer.Option(help="file of frames; the shipped ethanol frames if not given")] = "demo",
    cutoff: Annotated[float | None, typer.Option(help="of the networks, in Å; their own if not given")] = None,
    rounds: Rounds = 12,
    threads: Threads = 2,
    clock: Clock = "wall",
    memory: Annotated[bool, typer.Option(help="measure peak memory, too, in processes of their own")] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Potentials: a training step against another one with the same weights on the same batches.

    Making a compiled step takes a minute or two a network. Frames of several sizes share one graph. Peers are checked
    to be the same network (energies and forces to 1e-5) before they are timed.

    Example: dcnn bench atoms --preset paper --against plain --batch-size 20 --threads 1 --clock cpu
    """
    from dcnn.bench.potential_steps import compare_atoms

    _check_conditions(threads, clock)
    with progress("dcnn bench atoms", "networks") as show:
        found = compare_atoms(
            models.split(","), step, rounds, threads, clock, batch_size, data, cutoff, preset, against, memory, show
        )
    _report(found, output, as_json)


@app.command()
def data(
    file: Annotated[str, typer.Argument(help="file, folder or pattern of frames")] = "demo",
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value of the configuration")] = None,
    workers: Annotated[str, typer.Option(help="numbers of data workers to try, separated by commas")] = "0,1,2",
    steps: Annotated[int, typer.Option(min=1, help="steps that are measured")] = 30,
    model: Annotated[str | None, typer.Option(help="network; schnet if not given")] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """How long a training step waits for its batch, time before the first step, and memory.

    A file of more than 64 MB is read into its cache first, which later runs on it use.

    Example: dcnn bench data oc22/*.lmdb training.batch_atoms=1000 --workers 0,2
    """
    from dcnn.bench.data_steps import measure_data
    from dcnn.results import resolve

    if not all(word.strip().isdigit() for word in workers.split(",")):
        raise InputError(f"--workers {workers}: give numbers separated by commas")
    config = resolve(file, None, ["training.steps=1", *(overrides or [])], model=model)
    with progress("dcnn bench data", "steps") as show:
        found = measure_data(config.to_dict(), [int(word) for word in workers.split(",")], steps, show)
    table = Table("workers", "s before", "step ms", "waiting ms", "share waiting", "peak MB", title=f"frames of {file}")
    for row in found:
        times = [f"{row[name]:.2f}" for name in ("cpu_seconds_before_first_step", "step_ms", "waiting_ms")]
        table.add_row(str(row["workers"]), *times, f"{100 * row['waiting_share']:.1f} %", f"{row['peak_mb']:.0f}")
    _write(found, output, as_json, table)


def _check_conditions(threads: int, clock: str) -> None:
    """Refuses an unknown clock; says what would spoil the times."""
    if clock not in CLOCKS:
        raise InputError(f"--clock {clock}: it can be {' or '.join(CLOCKS)}")
    if threads > 1 and os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE":
        typer.echo("OMP_WAIT_POLICY=PASSIVE slows every step of several threads; unset it for good times", err=True)


def _report(found: Sequence[StepRatio], output: Path | None, as_json: bool) -> None:
    rows = [line.to_dict() for line in found]
    _write(rows, output, as_json, _shown(rows))


def _write(rows: Sequence[dict[str, Any]], output: Path | None, as_json: bool, shown: Table | str) -> None:
    text = json.dumps({"results": rows, "machine": platform.processor(), "torch": torch.__version__}, indent=2)
    if output is not None:
        output.write_text(text + "\n")
    if as_json:
        typer.echo(text)
    else:
        Console().print(shown)


def _shown(rows: Sequence[dict[str, Any]]) -> Table:
    titles = {
        "product_share": "products at best speed",
        "ours_peak_mb": "ours MB",
        "peer_peak_mb": "peer MB",
        "gradient_difference": "gradients differ by",
    }
    extra = [name for name in titles if name in rows[0]]
    first = rows[0]
    title = f"a training step, ours ({first['step']}) against {first['peer']}, {first['threads']} threads"
    table = Table("", "ours ms", "peer ms", "ratio (quartiles)", *(titles[name] for name in extra), title=title)
    for row in rows:
        low, high = row["ratio_quartiles"]
        more = [f"{100 * row[name]:.0f} %" if name == "product_share" else _number(row[name]) for name in extra]
        times = [f"{row[name]:.2f}" for name in ("ours_ms", "peer_ms")]
        table.add_row(row["name"], *times, f"{row['ratio']:.2f} ({low:.2f}–{high:.2f})", *more)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}" if value < 0.1 else f"{value:.0f}"
