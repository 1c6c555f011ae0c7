"""A network that is trained in units of order one and used in those of the labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

VALUE, GRADIENT = "", "grad"  # labels that are no partial derivative of a letter each


@dataclass(frozen=True)
class PointScale:
    """x → (x − origin) / width and y → (y − offset) / unit, all in float64; a derivative follows by the chain rule."""

    origin: tuple[float, ...]  # (d,)
    width: tuple[float, ...]  # (d,)
    offset: tuple[float, ...]  # (fields,)
    unit: tuple[float, ...]  # (fields,)

    @classmethod
    def fit(cls, x: Tensor, labels: Mapping[str, Tensor], letters: Mapping[str, int]) -> PointScale:
        """Mean and spread of inputs and values; without values the unit is that of the first derivatives."""
        width = x.std(0).clamp_min(1e-300) if len(x) > 1 else torch.ones(x.shape[1], dtype=x.dtype)
        width = torch.where(width > 1e-12 * x.abs().amax(0), width, torch.ones_like(width))
        trial = cls(tuple(x.mean(0).tolist()), tuple(width.tolist()), (), ())
        if VALUE in labels:
            offset = labels[VALUE].mean(0)
            unit = (labels[VALUE] - offset).square().mean(0).sqrt()
        else:
            rows = [label / trial._factor(name, letters) for name, label in labels.items() if name != GRADIENT]
            rows += [labels[GRADIENT] * width] if GRADIENT in labels else []
            unit = torch.cat([row.reshape(len(x), -1) for row in rows], 1).square().mean().sqrt().reshape(1)
            fields = next((label.shape[1] for name, label in labels.items() if name != GRADIENT), 1)
            unit, offset = unit.expand(fields), torch.zeros(fields)
        unit = torch.where(unit > 0, unit, torch.ones_like(unit))
        return cls(trial.origin, trial.width, tuple(offset.tolist()), tuple(unit.tolist()))

    @classmethod
    def none(cls, inputs: int, fields: int) -> PointScale:
        return cls((0.0,) * inputs, (1.0,) * inputs, (0.0,) * fields, (1.0,) * fields)

    def inputs(self, x: Tensor) -> Tensor:
        return (x.double() - x.new_tensor(self.origin, dtype=torch.float64)) / x.new_tensor(
            self.width, dtype=torch.float64
        )

    def labels(self, labels: Mapping[str, Tensor], letters: Mapping[str, int]) -> dict[str, Tensor]:
        """Labels (N, fields) in scaled units: ∂ŷ/∂x̂ = (width / unit) ∂y/∂x."""
        scaled = {}
        for name, label in labels.items():
            unit = label.new_tensor(self.unit)
            if name == VALUE:
                scaled[name] = (label - label.new_tensor(self.offset)) / unit
            elif name == GRADIENT:
                scaled[name] = label * label.new_tensor(self.width) / unit
            else:
                scaled[name] = label / (self._factor(name, letters) * unit)
        return scaled

    def _factor(self, name: str, letters: Mapping[str, int]) -> float:
        """1 / Π width over the letters of a derivative: what it is multiplied by in the units of the labels."""
        factor = 1.0
        for letter in name:
            factor /= self.width[letters[letter]]
        return factor

    def errors(self, name: str, error: Tensor, letters: Mapping[str, int]) -> Tensor:
        """An error in scaled units as one in those of the labels."""
        unit = error.new_tensor(self.unit)
        if name == GRADIENT:
            return error * unit / error.new_tensor(self.width)
        return error * unit * (1.0 if name == VALUE else self._factor(name, letters))


class ScaledNetwork(nn.Module):
    """y(x) = offset + unit · net((x − origin) / width), in float64 around a network of any precision.

    ``net`` is the network that was trained.
    """

    def __init__(self, net: nn.Module, scale: PointScale) -> None:
        super().__init__()
        self.net, self.scale = net, scale

    def forward(self, x: Any) -> Any:
        dtype = next(self.net.parameters()).dtype
        scale = self.scale
        scaled = (x - torch.tensor(scale.origin, dtype=torch.float64)) * (
            1 / torch.tensor(scale.width, dtype=torch.float64)
        )
        found = columns(self.net(scaled.to(dtype)))
        return found.double() * torch.tensor(scale.unit, dtype=torch.float64) + torch.tensor(
            scale.offset, dtype=torch.float64
        )


def columns(output: Any) -> Any:
    """(N,) as (N, 1): every network has fields."""
    return output.unsqueeze(-1) if output.ndim == 1 else output
