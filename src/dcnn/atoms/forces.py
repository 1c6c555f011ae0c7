"""Forces and stress: derivatives of the energies a network returns."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.derivatives import gradient
from dcnn.errors import InputError


def energy_and_forces(network: nn.Module, batch: AtomsBatch) -> tuple[Tensor, Tensor]:
    """Energies (B,) and forces −∂ΣE/∂r (N, 3), with the network in the mode it is in.

    Where gradients are enabled, both can be differentiated again (a loss of forces); under
    ``torch.no_grad()`` they come out detached.
    """
    training = torch.is_grad_enabled()
    with torch.enable_grad():
        positions = _leaf(batch.positions)
        energy = network(_changed(batch, positions))
        forces = -gradient(energy, positions, create_graph=training)
    return (energy, forces) if training else (energy.detach(), forces)


def energy_forces_stress(network: nn.Module, batch: AtomsBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Energies (B,), forces (N, 3) and stress (B, 3, 3) = ∂E/∂ε / V, for strains ε of positions and cell.

    The stress is symmetric, in energy per volume, positive under tension. Systems that are not periodic in all three
    directions have none: theirs is NaN, and no gradient comes from it.
    """
    if batch.cell is None or batch.pbc is None:
        raise InputError("stress needs a cell; this batch has none")
    training = torch.is_grad_enabled()
    with torch.enable_grad():
        positions = _leaf(batch.positions)
        strain = positions.new_zeros(batch.n_systems, 3, 3).requires_grad_()
        symmetric = 0.5 * (strain + strain.mT)
        moved = positions + torch.einsum("na,nab->nb", positions, symmetric.index_select(0, batch.system))
        cell = batch.cell + batch.cell @ symmetric
        energy = network(_changed(batch, moved, cell))
        by_position, by_strain = gradient(energy, (positions, strain), create_graph=training)
        periodic = batch.pbc.all(1).view(-1, 1, 1)  # (B, 1, 1)
        volume = torch.linalg.det(batch.cell).abs().view(-1, 1, 1).where(periodic, 1.0)
        forces, stress = -by_position, (by_strain / volume).masked_fill(~periodic, torch.nan)
    return (energy, forces, stress) if training else (energy.detach(), forces, stress)


def _leaf(positions: Tensor) -> Tensor:
    """Positions to differentiate by: those given if they carry a graph, else a copy that does."""
    return positions if positions.requires_grad else positions.detach().requires_grad_()


def _changed(batch: AtomsBatch, positions: Tensor, cell: Tensor | None = None) -> AtomsBatch:
    """The batch at other positions; edges and angles that are found once stay with the original."""
    return replace(batch, positions=positions, cell=batch.cell if cell is None else cell, edges=batch._edges())
