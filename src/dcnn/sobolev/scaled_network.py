"""A network that is trained in units of order one and used in those of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.scaling import LabelScale

VALUE, GRADIENT = "", "grad"  # labels that are no partial derivative of a letter each


class FieldScales(tuple[LabelScale, ...]):
    """One :class:`~dcnn.LabelScale` for each field; the inputs of all are the same. "grad" is all first derivatives."""

    @classmethod
    def fit(cls, x: Tensor, labels: Mapping[str, Tensor], letters: list[str]) -> FieldScales:
        fields = max((label.shape[1] for name, label in labels.items() if name != GRADIENT), default=1)
        return cls(LabelScale.fit(_of_field(labels, n, letters), x=x, coordinates=letters) for n in range(fields))

    def inputs(self, x: Tensor) -> Tensor:
        return self[0].scale_inputs(x)

    def scale(self, labels: Mapping[str, Tensor], letters: list[str]) -> dict[str, Tensor]:
        """Labels (N, fields) in scaled units."""
        by_field = [scale.scale(_of_field(labels, n, letters)) for n, scale in enumerate(self)]
        return {name: _columns_of(name, by_field, letters) for name in labels}

    def unscale_error(self, name: str, error: Tensor, letters: list[str]) -> Tensor:
        """An error in scaled units as one in those of the labels: an offset drops out."""
        without = [LabelScale(scale.constant, inputs=scale.inputs) for scale in self]
        by_field = [scale.unscale(_of_field({name: error}, n, letters)) for n, scale in enumerate(without)]
        return _columns_of(name, by_field, letters)


def _of_field(labels: Mapping[str, Tensor], field: int, letters: list[str]) -> dict[str, Tensor]:
    """The labels of one field by letters alone."""
    found = {name: label[:, field] for name, label in labels.items() if name != GRADIENT}
    if GRADIENT in labels:
        found |= {letter: labels[GRADIENT][:, n] for n, letter in enumerate(letters)}
    return found


def _columns_of(name: str, by_field: list[dict[str, Tensor]], letters: list[str]) -> Tensor:
    if name == GRADIENT:
        return torch.stack([by_field[0][letter] for letter in letters], 1)
    return torch.stack([labels[name] for labels in by_field], 1)


class ScaledNetwork(nn.Module):
    """y(x) = offset + C · net((x − centre) / unit), in float64 around a network of any precision.

    ``net`` is the network that was trained.
    """

    def __init__(self, net: nn.Module, scales: FieldScales) -> None:
        super().__init__()
        self.net, self.scales = net, scales

    def forward(self, x: Tensor) -> Tensor:
        found = columns(self.net(self.scales.inputs(x).to(next(self.net.parameters()).dtype)))
        return found.double() * self._row("constant") + self._row("offset")

    def _row(self, name: str) -> Tensor:
        return torch.tensor([getattr(scale, name) for scale in self.scales], dtype=torch.float64)


def columns(output: Any) -> Any:
    """(N,) as (N, 1): every network has fields."""
    return output.unsqueeze(-1) if output.ndim == 1 else output
