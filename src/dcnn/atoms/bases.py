"""What distances become before a network sees them: gaussians and cutoff envelopes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.errors import InputError


class Gaussians(nn.Module):
    """g_k(x) = exp(−(x − μ_k)² / 2Δ²) with ``count`` centres μ_k evenly spread over [start, stop], Δ apart.

    >>> Gaussians(0.0, 2.0, 3)(torch.tensor([1.0])).tolist()
    [[0.60653..., 1.0, 0.60653...]]
    """

    numbers: Tensor

    def __init__(self, start: float, stop: float, count: int) -> None:
        super().__init__()
        if count < 2:
            raise InputError(f"a gaussian basis needs at least 2 centres, got {count}")
        self.start, self.spacing = start, (stop - start) / (count - 1)
        # the numbers of the centres, not their places: whole numbers are exact in every dtype
        self.register_buffer("numbers", torch.arange(count, dtype=torch.get_default_dtype()), persistent=False)

    @property
    def centers(self) -> Tensor:
        """The centres μ_k, (count,)."""
        return self.start + self.spacing * self.numbers

    def forward(self, x: Tensor) -> Tensor:
        """(…,) → (…, count)."""
        return gaussian(((x - self.start) / self.spacing).unsqueeze(-1) - self.numbers)


def gaussian(x: Tensor) -> Tensor:
    """exp(−x²/2), not below e⁻⁴⁰ = 4e-18.

    The tails would reach the denormal numbers, with which matrix products on a CPU are up to four times slower.
    """
    return (-0.5 * x.square()).clamp(min=-40.0).exp()


def cosine_cutoff(distance: Tensor, cutoff: float) -> Tensor:
    """½(1 + cos πr/r_c) inside the cutoff, 0 outside: value and slope vanish at r_c."""
    inside = (distance < cutoff).to(distance.dtype)
    return 0.5 * (1.0 + (distance * (math.pi / cutoff)).cos()) * inside


def quarter_cosine_cutoff(distance: Tensor, cutoff: float) -> Tensor:
    """cos(πr/2r_c) inside the cutoff, 0 outside: the value vanishes at r_c, the slope does not."""
    inside = (distance < cutoff).to(distance.dtype)
    return (distance * (0.5 * math.pi / cutoff)).cos() * inside


def sharp_cutoff(distance: Tensor, cutoff: float) -> Tensor:
    """1 inside the cutoff, 0 outside."""
    return (distance < cutoff).to(distance.dtype)


def require_cutoff(batch: AtomsBatch, cutoff: float) -> None:
    """Raise if the pair list of the batch is shorter than the network's cutoff: pairs would be missing."""
    if batch.cutoff < cutoff - 1e-9:
        raise InputError(
            f"the batch lists pairs up to {batch.cutoff:g} Å but the network sees up to {cutoff:g} Å; "
            f"make the batch with cutoff={cutoff:g}"
        )


def rows_of(table: Tensor, batch: AtomsBatch, first: int) -> Tensor:
    """The row of every atom in a table of elements that begins with Z = ``first``, (N, …)."""
    try:
        return table.index_select(0, batch.z - first if first else batch.z)
    except IndexError:
        raise InputError(
            f"the batch holds an atom with Z = {int(batch.z.max())}, the network knows elements up to "
            f"Z = {len(table) - 1 + first}; take another network, or elements=118 where it has that option"
        ) from None
