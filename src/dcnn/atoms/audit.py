"""How `dcnn.audit` looks at a batch of atoms: positions are differentiated, rotations and cutoffs have a meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.batching import batch as make_batch
from dcnn.audit.subject import Subject, first_tensor, subject

_HAIR = 1e-6  # in the length unit of the positions


@subject.register
def _(sample: AtomsBatch, wrt: str | None = None, output: Callable[[Any], Any] | None = None) -> Subject:
    double = sample.to(dtype=torch.float64)

    def predict(model: nn.Module, positions: Tensor) -> Tensor:
        return first_tensor(model(replace(double, positions=positions)), output)

    def rotated(rotation: Tensor) -> Subject:
        cell = None if double.cell is None else double.cell @ rotation.T
        return subject(replace(double, positions=double.positions @ rotation.T, cell=cell), wrt, output)

    def crossings() -> list[tuple[Subject, Subject]]:
        """The last atom of the first system at the cutoff from its first atom, from both sides."""
        first = double.system == 0
        z, positions = double.z[first], double.positions[first].detach()
        if len(z) < 2 or double.cell is not None:
            return []
        away = positions[-1] - positions[0]

        def at(distance: float) -> Subject:
            moved = torch.cat([positions[:-1], (positions[0] + away / away.norm() * distance).unsqueeze(0)])
            return subject(make_batch(z=z, positions=moved, cutoff=double.cutoff), wrt, output)

        return [(at(double.cutoff - _HAIR), at(double.cutoff + _HAIR))]

    return Subject(double.positions, predict, double.system, rotated, crossings, expects_rotation_invariance=True)
