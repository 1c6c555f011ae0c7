"""`dcnn audit`: what keeps a network from learning its derivatives, before or after training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from torch import Tensor, nn

from dcnn import checkpoint
from dcnn.atoms.task import AtomsTask
from dcnn.audit import Audit, Finding
from dcnn.audit import audit as run_audit
from dcnn.audit.static import labels as judge_labels
from dcnn.losses import term_values
from dcnn.pde.task import PdeTask
from dcnn.train.fit import resolve
from dcnn.train.loop import Task
from dcnn.train.run import Run
from dcnn.train.tasks import build_task

FRAMES = 200  # whose labels are judged
POINTS = 256  # of a PDE that the network is run on


def audit(
    target: Annotated[str, typer.Argument(help="run folder, config.yaml, data file, PDE name, problem.py, or demo")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, for example model.fidelity=scripts")] = None,
    recipe: Annotated[str, typer.Option(help="best, paper or original")] = "best",
    model: Annotated[str | None, typer.Option(help="schnet, cgcnn, dimenet_plus_plus, forcenet or gemnet")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Say why a network will not learn its derivatives, with the calls that help.

    A run folder is audited with its trained weights; anything else as it would be when training starts.

    Example: dcnn audit ethanol.npz --model cgcnn --recipe original
    """
    task = _task(target, overrides or [], recipe, model)
    report, raw = _atoms(task) if isinstance(task, AtomsTask) else (_pde(task), [])
    if as_json:
        typer.echo(json.dumps({**report.to_dict(), "raw_labels": [asdict(finding) for finding in raw]}, indent=2))
        return
    console = Console(soft_wrap=True)
    console.print(report) if console.is_terminal else typer.echo(str(report))
    for finding in raw:
        typer.echo(f"in the file, before the label scale of this recipe: {finding}")


def _task(target: str, overrides: list[str], recipe: str, model: str | None) -> Task:
    folder = Run(target)
    if not folder.config_file.exists():
        return build_task(resolve(target, recipe, overrides, model=model))
    task = build_task(folder.config())
    if folder.best.exists():
        task.network.load_state_dict(checkpoint.load(folder.best)["network"])
    return task


def _atoms(task: AtomsTask) -> tuple[Audit, list[Finding]]:
    """The audit of one training batch with labels as they are trained on, and what is wrong with the raw ones."""
    frames = task.frames["train"][:FRAMES]
    raw: dict[str, Any] = {"energy": [], "forces": []}
    scaled: dict[str, Any] = {"energy": [], "forces": []}
    for frame in frames:
        raw["energy"].append(frame.energy)
        raw["forces"].extend(frame.forces)
        scaled["energy"].append(task.scale.scale_energy(frame.energy, frame.z))  # type: ignore[type-var]
        scaled["forces"].extend(task.scale.scale_forces(frame.forces))  # type: ignore[type-var]
    batch = next(iter(task.batches(0)))
    report = run_audit(task.network, batch, orders=1, labels=scaled, losses=_losses(task, batch))
    return report, [finding for finding in judge_labels(raw, None) if finding.code not in report.codes]


def _pde(task: Task) -> Audit:
    """The audit at interior points, with derivatives of the orders that the residuals hold."""
    assert isinstance(task, PdeTask)
    batch = next(iter(task.batches(0)))
    orders = [len(letters) for letters in task.problem.wanted]
    return run_audit(task.network, batch.interior[:POINTS], orders=orders, losses=_losses(task, batch))


def _losses(task: Task, batch: Any) -> Any:
    weights = {term.name: term.weight_at(0) for term in task.terms}

    def losses(network: nn.Module, _: Any) -> Mapping[str, Tensor]:
        values = term_values(task.terms, task.residuals(network, batch))
        return {name: weights[name] * value for name, value in values.items()}

    return losses
