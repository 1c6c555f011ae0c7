"""How `dcnn.audit` looks at a batch of atoms: positions are differentiated, rotations and cutoffs have a meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.batching import batch as make_batch
from dcnn.auditing.differentiable_sample import DifferentiableSample, Output, differentiable_sample, spread

_HAIR = 1e-6  # in the length unit of the positions


@differentiable_sample.register
def _(
    sample: AtomsBatch, wrt: str | int | None = None, output: Output = None, dtype: torch.dtype = torch.float64
) -> DifferentiableSample:
    cast = sample.to(dtype=dtype)

    def rotated(rotation: Tensor) -> DifferentiableSample:
        turn = rotation.to(cast.positions).T
        cell = None if cast.cell is None else cast.cell @ turn
        return differentiable_sample(replace(cast, positions=cast.positions @ turn, cell=cell), wrt, output, dtype)

    def crossings(model: Any) -> list[tuple[DifferentiableSample, DifferentiableSample]]:
        cutoff = _cutoff_of(model, cast.cutoff)
        sides = [_at_cutoff(cast, cutoff, cutoff + hair) for hair in (-_HAIR, _HAIR)]
        pairs = [differentiable_sample(side, wrt, output, dtype) for side in sides if side is not None]
        return [(pairs[0], pairs[1])] if len(pairs) == 2 else []

    return DifferentiableSample(
        cast.positions.detach(),
        rebuild=lambda positions: replace(cast, positions=positions),
        call=lambda model, batch: model(batch),
        output=output,
        group=cast.system,
        scale=spread(cast.positions.detach().flatten()),
        rotated=rotated,
        crossings=crossings,
        expects_rotation_invariance=True,
    )


def _cutoff_of(model: Any, listed: float) -> float:
    """The model's own cutoff; pairs may have been listed to a larger distance."""
    own = getattr(model, "cutoff", None)
    return float(own) if isinstance(own, (int, float, Tensor)) else listed


def _at_cutoff(batch: AtomsBatch, cutoff: float, distance: float) -> AtomsBatch | None:
    """The first system with one pair at this distance, near the cutoff; None for a lone atom.

    Of a molecule the last atom is put beyond the outermost other one, so that only this pair crosses the cutoff. A
    crystal is scaled as a whole, since an atom of it has many images.
    """
    first = batch.system == 0
    z, positions = batch.z[first], batch.positions[first].detach()
    if batch.cell is None or batch.pbc is None or not bool(batch.pbc[0].any()):
        if len(z) < 2:
            return None
        others = positions[:-1]
        away = others - positions.mean(0)
        outermost = int(away.norm(dim=1).argmax())
        way = away[outermost] if bool(away[outermost].norm() > 1e-6) else positions[-1] - others[outermost]
        moved = others[outermost] + way / way.norm() * distance
        return make_batch(z=z, positions=torch.cat([others, moved.unsqueeze(0)]), cutoff=cutoff).to(
            dtype=positions.dtype
        )
    cell, pbc = batch.cell[0], batch.pbc[0]
    around = make_batch(z=z, positions=positions, cell=cell, pbc=pbc, cutoff=1.5 * cutoff)
    lengths = around.pair_vectors().norm(dim=1)
    if not len(lengths):
        return None
    factor = distance / float(lengths[(lengths - cutoff).abs().argmin()])
    return make_batch(z=z, positions=positions * factor, cell=cell * factor, pbc=pbc, cutoff=cutoff).to(
        dtype=positions.dtype
    )
