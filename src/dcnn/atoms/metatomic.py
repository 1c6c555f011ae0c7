"""A potential as a metatomic model, which i-PI, ASE, torch-sim, LAMMPS and other programs load (metatensor.org).

``pip install 'dcnn[metatomic]'``.
"""

# TorchScript reads the annotations here: it takes typing's names only, and none that are postponed.
# ruff: noqa: UP006, UP035, UP045
import copy
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
import torch
from torch import Tensor, nn

from dcnn.activations import Activation
from dcnn.atoms.batching import collate
from dcnn.atoms.export import atom_by_atom, inputs, is_additive, padded_batch
from dcnn.atoms.potential import Potential
from dcnn.atoms.structures import Structure
from dcnn.errors import DcnnError, InputError, first_line, needs_extra
from dcnn.safe_files import written_beside
from dcnn.torch_internals import functions_as_operations, scripted_module

with needs_extra("metatomic"):
    from metatensor.torch import Labels, TensorBlock, TensorMap
    from metatomic.torch import (
        AtomisticModel,
        ModelCapabilities,
        ModelMetadata,
        ModelOutput,
        NeighborListOptions,
        System,
    )

TOLERANCE = 1e-4  # relative, of the traced numbers (float32 sums in another order)


class AtomicEnergies(nn.Module):
    """(z, positions, pair_i, pair_j, shift, cell, system, slots) → energies of atoms (N,) in eV, differentiable."""

    references: Tensor

    def __init__(self, potential: Potential) -> None:
        super().__init__()
        self.network, self.dtype, self.cutoff = _scripted(potential.network), potential.dtype, potential.cutoff
        self.unit = potential.scale.constant * potential.energy_unit_eV
        self.register_buffer("references", potential.reference_energies())

    def forward(
        self, z: Tensor, positions: Tensor, pair_i: Tensor, pair_j: Tensor, shift: Tensor, cell: Tensor, system: Tensor,
        slots: Tensor,
    ) -> Tensor:  # fmt: skip
        width = slots.shape[0]  # a variable of the trace, not a number
        batch = padded_batch(z, positions, pair_i, pair_j, shift, cell, system, self.cutoff, self.dtype, width)
        atomic: Tensor = self.network(atom_by_atom(batch)).double() * self.unit
        return atomic + self.references.index_select(0, z)


def _scripted(network: nn.Module) -> nn.Module:
    """A copy whose activations are TorchScript: as they are they bring derivatives in Python."""
    network = copy.deepcopy(network)
    for name, module in list(network.named_modules()):
        if isinstance(module, Activation):
            parent, _, own = name.rpartition(".")
            setattr(network.get_submodule(parent), own, scripted_module(_Plain(module)))
    return network


class _Plain(nn.Module):
    """The values of an activation as torch operations alone."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation._evaluate(x, (0,))[0]


class MetatomicModel(nn.Module):
    """What metatomic calls: systems with their half lists of pairs in, energies out; it takes the derivatives."""

    def __init__(self, energies: nn.Module, cutoff: float) -> None:
        super().__init__()
        self.energies = energies
        self.options = NeighborListOptions(cutoff=cutoff, full_list=False, strict=True)

    def requested_neighbor_lists(self) -> List[NeighborListOptions]:
        return [self.options]

    def forward(
        self, systems: List[System], outputs: Dict[str, ModelOutput], selected_atoms: Optional[Labels] = None
    ) -> Dict[str, TensorMap]:
        results: Dict[str, TensorMap] = {}
        if "energy" not in outputs:
            return results
        device = systems[0].positions.device
        z: List[Tensor] = []
        positions: List[Tensor] = []
        pair_i: List[Tensor] = []
        pair_j: List[Tensor] = []
        shift: List[Tensor] = []
        cell: List[Tensor] = []
        owner: List[Tensor] = []
        number: List[Tensor] = []
        first = 0
        for index, system in enumerate(systems):
            count = len(system)
            pairs = system.get_neighbor_list(self.options).samples.values.to(torch.long)  # i, j, a, b, c
            z.append(system.types.to(torch.long))
            positions.append(system.positions.to(torch.float64))
            pair_i.append(pairs[:, 0] + first)
            pair_j.append(pairs[:, 1] + first)
            shift.append(pairs[:, 2:5].to(torch.float64))
            cell.append(system.cell.to(torch.float64))
            owner.append(torch.full((count,), index, dtype=torch.long, device=device))
            number.append(torch.arange(count, device=device))
            first += count
        system_of, atom_of = torch.cat(owner), torch.cat(number)
        i, j = torch.cat(pair_i), torch.cat(pair_j)
        neighbours = int(torch.bincount(torch.cat([i, j]), minlength=1).max())
        slots = torch.arange(max(neighbours, 2), device=device)
        atomic = self.energies(
            torch.cat(z), torch.cat(positions), i, j, torch.cat(shift), torch.stack(cell), system_of, slots
        )
        samples = torch.stack([system_of, atom_of], 1)
        if selected_atoms is not None:
            wanted = torch.zeros(samples.shape[0], dtype=torch.bool, device=device)
            for row in selected_atoms.values.to(torch.long):
                wanted = wanted | (samples == row).all(1)
            samples, atomic = samples[wanted], atomic[wanted]
        values, names = atomic, ["system", "atom"]
        if outputs["energy"].sample_kind != "atom":
            values = torch.zeros(len(systems), dtype=atomic.dtype, device=device).index_add(0, samples[:, 0], atomic)
            samples, names = torch.arange(len(systems), device=device).unsqueeze(1), ["system"]
        block = TensorBlock(
            values=values.unsqueeze(1).to(systems[0].positions.dtype),
            samples=Labels(names, samples.to(torch.int32)),
            components=torch.jit.annotate(List[Labels], []),
            properties=Labels(["energy"], torch.zeros(1, 1, dtype=torch.int32, device=device)),
        )
        results["energy"] = TensorMap(Labels(["_"], torch.zeros(1, 1, dtype=torch.int32, device=device)), [block])
        return results


def export_metatomic(potential: Potential, path: str | Path, examples: Sequence[Structure]) -> Dict[str, Any]:
    """Writes the potential as a metatomic model (.pt) and returns what it is; ``examples`` (Å) are tried first.

    The network is traced by TorchScript for any number of atoms, pairs and neighbours; its energy must be a sum over
    atoms.
    """
    path = Path(path)
    if path.suffix != ".pt":
        raise InputError(f"{path}: metatomic models end in .pt")
    if len(examples) < 2:
        raise InputError("a metatomic model is tried on at least two structures")
    small, batch = (collate(part, potential.cutoff, potential.dtype) for part in (examples[:1], examples))
    if not is_additive(potential, batch):
        raise InputError(f"the energy of {type(potential.network).__name__} is not a sum over atoms, as metatomic asks")
    energies = AtomicEnergies(potential).eval()
    with warnings.catch_warnings(action="ignore"), functions_as_operations():  # the warnings: torch's of TorchScript
        traced = torch.jit.trace(energies, inputs(small, angles=True), check_trace=False)
    atomic = traced(*inputs(batch, angles=True))
    found = torch.zeros(batch.n_systems, dtype=torch.float64).index_add(0, batch.system, atomic)
    expected = potential(batch).energy
    size = max(float((expected - expected.mean()).abs().max()), 1e-3)
    if not float((found - expected).abs().max()) < max(TOLERANCE * size, 1e-6 * float(expected.abs().max())):
        raise DcnnError("the traced energies are not those of the network; nothing was written")
    name, reach = type(potential.network).__name__, _reach(potential)
    model = AtomisticModel(
        MetatomicModel(traced, potential.cutoff).eval(),
        ModelMetadata(name=name, description="trained by dcnn"),
        ModelCapabilities(
            outputs={"energy": ModelOutput(unit="eV", sample_kind="atom")},
            atomic_types=sorted(potential.elements or range(1, 100)),
            interaction_range=reach,
            length_unit="angstrom",
            supported_devices=["cpu"],
            dtype="float64",
        ),
    )
    with written_beside(path) as temporary, warnings.catch_warnings(action="ignore"):
        try:
            model.save(str(temporary))
        except RuntimeError as error:
            raise InputError(f"{name} cannot be written as TorchScript: {first_line(error)}") from None
    return {"network": name, "cutoff_A": potential.cutoff, "interaction_range_A": reach, "format": "metatomic"}


def _reach(potential: Potential) -> float:
    """How far away, in Å, an atom may be and still change the energy of another: cutoffs that messages pass.

    Measured on a chain of atoms each of which sees only the next, with random weights, since trained ones may vanish.
    """
    network, chance = copy.deepcopy(potential.network).double(), torch.Generator().manual_seed(0)
    for weight in network.parameters():
        weight.data += 0.1 * torch.randn(weight.shape, generator=chance, dtype=weight.dtype)
    count, step = 24, 0.7 * potential.cutoff
    places = torch.zeros(count, 3, dtype=torch.float64)
    places[:, 0] = step * torch.arange(count)
    places += 0.1 * step * torch.rand(count, 3, generator=chance, dtype=torch.float64)  # angles that are not 180°
    z = np.full(count, min(potential.elements or [1]))
    batch = atom_by_atom(collate([Structure(z, places.numpy())], potential.cutoff, torch.float64))
    batch.positions.requires_grad_()
    (slope,) = torch.autograd.grad(network(batch)[0], batch.positions)
    return potential.cutoff * max(1, int((slope != 0).any(1).nonzero().max()))
