"""Values and derivatives at points as a training task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dcnn.auditing import Audit, Finding
from dcnn.auditing import audit as run_audit
from dcnn.derivatives import gradient, partials
from dcnn.derivatives.partials import coordinate_names
from dcnn.errors import InputError, unknown
from dcnn.losses import Fixed, Term, Weighting, term_values
from dcnn.scaling import LabelScale
from dcnn.sobolev.config import SobolevConfig
from dcnn.sobolev.scaled_network import GRADIENT, VALUE, FieldScales, columns
from dcnn.train.step import term_losses

FEWEST_STEPS = 200  # of an epoch: few points are gone through several times before they are validated


class SobolevTask:
    """Fits a network and its derivatives to labels by name: "" the value, "x", "xy" …, "grad" all first ones.

    Terms have the names of their labels, "value" for "". Errors are root mean squares in the units of the labels,
    beside those of a constant: the mean of the values, no slope.
    """

    monitor = "loss"

    def __init__(
        self,
        config: SobolevConfig,
        network: nn.Module,
        points: Mapping[str, tuple[Tensor, dict[str, Tensor]]],
        scale: FieldScales | None = None,
        weighting: Weighting | None = None,
    ) -> None:
        self.network, self.seed, self.points = network, config.seed, dict(points)
        x, labels = self.points["train"]
        self.wanted = [name for name in labels if name != GRADIENT]
        self.letters = letters_of(x, labels, config.coordinates)
        fields = next((label.shape[1] for name, label in labels.items() if name != GRADIENT), 1)
        if GRADIENT in labels and fields != 1:
            raise InputError(f"labels['grad'] needs a network of one output, not of {fields}; name its derivatives")
        if scale is None:
            unscaled = FieldScales([LabelScale(1.0)] * fields)
            scale = FieldScales.fit(x, labels, self.letters) if config.scale else unscaled
        self.scale = scale
        self.terms = tuple(
            Term(name or "value", config.weights.get(name or "value", 1.0), config.norm) for name in labels
        )
        self.weighting = weighting or Fixed(self.terms)
        if not isinstance(config.training.batch_size, int):
            raise InputError("training.batch_size: auto is for frames; give the number of points in a batch")
        self.batch_size = min(config.training.batch_size, len(x))
        self.steps_per_epoch = max(FEWEST_STEPS, len(x) // self.batch_size)
        self.cast(next(network.parameters()).dtype)

    def begin(self, number: int) -> None:
        """Nothing changes from round to round."""

    def cast(self, dtype: torch.dtype) -> None:
        self.network.to(dtype)
        self._scaled = {
            split: (
                self.scale.inputs(x).to(dtype),
                {name: label.to(dtype) for name, label in self.scale.scale(labels, self.letters).items()},
            )
            for split, (x, labels) in self.points.items()
        }

    def batches(self, epoch: int, rank: int = 0, world: int = 1, start: int = 0) -> Iterator[Any]:
        """Every point once before any comes again; each process takes its share of a batch."""
        x, labels = self._scaled["train"]
        rounds = -(-self.steps_per_epoch * self.batch_size // len(x))
        random = np.random.default_rng([self.seed, epoch])
        order = np.concatenate([random.permutation(len(x)) for _ in range(rounds)])
        for step in range(start, self.steps_per_epoch):
            rows = torch.from_numpy(order[step * self.batch_size : (step + 1) * self.batch_size][rank::world])
            yield x[rows], {name: label[rows] for name, label in labels.items()}

    def residuals(self, network: nn.Module, batch: Any) -> dict[str, Tensor]:
        """Of the terms that have a weight: what has none is evaluated, not trained."""
        return self._residuals(network, batch, {term.name for term in self.terms if term.weight != 0})

    def _residuals(self, network: nn.Module, batch: Any, active: set[str]) -> dict[str, Tensor]:
        x, labels = batch
        wanted = [name for name in self.wanted if (name or "value") in active]
        found: dict[str, Tensor] = {}
        if wanted:
            known = partials(_Columns(network), x, wanted, coordinates=self.letters)
            found = {name or "value": known[name] - labels[name] for name in wanted}
        if GRADIENT in active:
            training = torch.is_grad_enabled()
            with torch.enable_grad():
                points = x.detach().requires_grad_()
                slope = gradient(columns(network(points)), points, create_graph=training)
            found[GRADIENT] = slope - labels[GRADIENT]
        return found

    def evaluate(self, network: nn.Module, split: str) -> dict[str, Any]:
        """rmse_* of every label in its own unit, constant_rmse_* of a constant, and the loss."""
        x, labels = self._scaled[split]
        with torch.no_grad():
            residuals = self._residuals(network, (x, labels), {term.name for term in self.terms})
        values = term_values(self.terms, residuals)
        errors: dict[str, Any] = {"loss": sum(t.weight_at(0) * float(values[t.name]) for t in self.terms)}
        for name in labels:
            own = residuals[name or "value"].detach().double()
            errors[f"rmse_{name or 'value'}"] = _rms(self.scale.unscale_error(name, own, self.letters))
            label = self.points[split][1][name]
            constant = self.points["train"][1][name].mean(0) if name == VALUE else 0.0
            errors[f"constant_rmse_{name or 'value'}"] = _rms(label - constant)
        return errors

    def remember(self, folder: Path) -> None:
        """Points are drawn anew from the seed, or kept already."""

    def state(self) -> dict[str, Any]:
        return {"scale": [scale.to_dict() for scale in self.scale]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Points and scale are those of the run already."""

    def audit(self, network: nn.Module) -> Audit:
        batch = next(iter(self.batches(0)))
        orders = [1 if name == GRADIENT else len(name) for name in batch[1]]
        labels = {name or "value": label for name, label in self._scaled["train"][1].items()}
        return run_audit(network, batch[0], orders=orders, labels=labels, losses=term_losses(self, batch))

    def raw_label_findings(self) -> list[Finding]:
        return []

    def count(self, split: str) -> int | None:
        return len(self.points[split][0])

    def evaluate_file(self, network: nn.Module, path: Path, **reading: Any) -> dict[str, Any]:
        self.points["test"] = read_points(path)
        self.cast(next(network.parameters()).dtype)
        return self.evaluate(network, "test")


class _Columns(nn.Module):
    """The network with an axis of fields; a module, so that batch statistics in it are seen."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Any) -> Any:
        return columns(self.network(x))


def letters_of(x: Tensor, labels: Mapping[str, Tensor], coordinates: Any = None) -> list[str]:
    """The letter of every column of x."""
    names = [name for name in labels if name != GRADIENT]
    if coordinates is None and not "".join(names):  # no column is asked for by its letter
        coordinates = [chr(ord("a") + n) for n in range(x.shape[1])]
    letters = list(coordinate_names(x, names, coordinates))
    for letter in "".join(names):
        if letter not in letters:
            raise unknown("coordinate in the labels", letter, letters)
    return letters


def checked_points(x: Any, labels: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """Points (N, d) and labels (N, fields) in float64; one message for what does not fit."""
    points = _float64(x)
    points = points.unsqueeze(-1) if points.ndim == 1 else points
    if points.ndim != 2 or not len(points):
        raise InputError(f"x has the shape {tuple(points.shape)}; it is (N, d): one row a point")
    if not labels:
        raise InputError('labels are empty; give values and derivatives by name, for example {"": y, "x": dydx}')
    found = {}
    for name, label in labels.items():
        tensor = columns(_float64(label))
        if len(tensor) != len(points):
            raise InputError(f"labels[{name!r}] has {len(tensor)} rows, x has {len(points)}")
        if name == GRADIENT and tensor.shape != points.shape:
            raise InputError(f"labels['grad'] has the shape {tuple(tensor.shape)}, x {tuple(points.shape)}")
        for what, values in (("x", points), (f"labels[{name!r}]", tensor)):
            bad = (~torch.isfinite(values)).any(-1).nonzero()[:, 0].tolist()
            if bad:
                raise InputError(f"{what} is not finite in row {bad[0]} ({len(bad)} rows in all): remove them")
        found[name] = tensor
    return points, found


def write_points(path: Path, x: Tensor, labels: Mapping[str, Tensor]) -> None:
    arrays: dict[str, Any] = {f"label_{name}": label.numpy() for name, label in labels.items()}
    np.savez(path, x=x.numpy(), **arrays)


def read_points(path: Path) -> tuple[Tensor, dict[str, Tensor]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            labels = {k.removeprefix("label_"): file[k] for k in file.files if k.startswith("label_")}
            return checked_points(file["x"], labels)
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path}: not points with labels: an npz file with x and label_* ({error})") from None


def split_points(
    x: Tensor, labels: Mapping[str, Tensor], config: SobolevConfig
) -> dict[str, tuple[Tensor, dict[str, Tensor]]]:
    """Training, validation and test points, drawn with the seed of the run."""
    sizes = [max(1, round(share * len(x))) for share in (config.validation, config.test)]
    if sum(sizes) >= len(x):
        raise InputError(f"{len(x)} points leave none to train on; give more, or smaller validation and test")
    order = torch.from_numpy(np.random.default_rng([config.seed, 7]).permutation(len(x)))
    parts = torch.split(order, [len(x) - sum(sizes), *sizes])
    rows = dict(zip(("train", "validation", "test"), parts, strict=True))
    return {split: (x[r], {name: label[r] for name, label in labels.items()}) for split, r in rows.items()}


def _float64(values: Any) -> Tensor:
    known = values.detach().cpu() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    return known.to(torch.float64)


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
