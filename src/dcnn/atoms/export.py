"""A potential as one file that torch runs without dcnn: ``torch.export`` or, compiled, AOTInductor."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from dcnn._version import __version__
from dcnn.atoms.atoms_batch import AtomsBatch, Edges
from dcnn.atoms.batching import collate
from dcnn.atoms.potential import Potential
from dcnn.atoms.structures import Structure
from dcnn.errors import DcnnError, InputError
from dcnn.safe_files import written_beside
from dcnn.torch_internals import compile_package, recorded

INPUTS = ("z", "positions", "pair_i", "pair_j", "shift", "cell", "system")
METADATA = "dcnn.json"  # name of the extra file in a torch.export package
TOLERANCE = 1e-4  # relative, of the exported numbers (float32 sums in another order)


@dataclass
class _Padded(AtomsBatch):
    """A batch whose last pair is of atom 0 with itself, beyond the cutoff: it changes nothing, and no list is empty.

    (An index into an empty list, such as the edges of a lone atom, is an error in a graph of fixed width.)
    """

    def pair_vectors(self) -> Tensor:
        vectors = super().pair_vectors()  # (P + 1, 3)
        far = vectors.new_tensor([[1.5 * self.cutoff, 0.0, 0.0]])
        return vectors + torch.cat([torch.zeros_like(vectors[:-1]), far])


class Deployed(nn.Module):
    """(z, positions, pair_i, pair_j, shift, cell, system) → energies (B,) in eV and forces (N, 3) in eV/Å, float64.

    Of B systems with N atoms and P half pairs (every unordered pair and periodic image once, |r| < cutoff): z (N,),
    pair_i, pair_j (P,) and system (N,) are int64; positions (N, 3) and cell (B, 3, 3) are in Å, shift (P, 3) holds
    the images of pair_j, all float64; cell and shift are zeros for molecules. Elements that were not trained on, and
    atoms with more than ``slots`` neighbours where the network needs angles, make the result NaN.
    """

    references: Tensor

    def __init__(self, potential: Potential, slots: int | None) -> None:
        super().__init__()
        self.network, self.slots = potential.network, slots
        self.unit = potential.scale.constant * potential.energy_unit_eV
        self.cutoff, self.dtype = potential.cutoff, potential.dtype
        self.register_buffer("references", potential.reference_energies())  # (119,)

    def forward(
        self, z: Tensor, positions: Tensor, pair_i: Tensor, pair_j: Tensor, shift: Tensor, cell: Tensor, system: Tensor
    ) -> tuple[Tensor, Tensor]:
        n_atoms, n_systems = z.shape[0], cell.shape[0]
        degree = Edges(pair_i, pair_j, n_atoms).degree
        none = torch.zeros(1, dtype=torch.long)
        pair_i, pair_j, shift = (
            torch.cat([pair_i, none]),
            torch.cat([pair_j, none]),
            nn.functional.pad(shift, (0, 0, 0, 1)),
        )
        edges = Edges(pair_i, pair_j, n_atoms, slots=None if self.slots is None else self.slots + 2)
        with torch.enable_grad():
            leaf = positions.detach().requires_grad_()
            batch = _Padded(
                z=z,
                positions=leaf.to(self.dtype),
                system=system,
                n_systems=n_systems,
                cell=cell.to(self.dtype),
                pbc=None,
                pair_i=pair_i,
                pair_j=pair_j,
                pair_shift=shift.to(self.dtype),
                cutoff=self.cutoff,
                edges=edges,
            )
            energy = self.network(batch).double() * self.unit
            (slope,) = torch.autograd.grad(energy.sum(), leaf)
        atomic = self.references.index_select(0, z)  # (N,)
        if self.slots is not None:
            atomic = torch.where(degree > self.slots, torch.nan, atomic)
        bad = atomic.isnan().to(atomic.dtype)
        spoilt = torch.zeros_like(energy).index_add(0, system, bad)  # (B,) number of atoms that are not admitted
        energy = energy.detach().index_add(0, system, atomic)
        forces = torch.where(spoilt.index_select(0, system).unsqueeze(-1) > 0, torch.nan, -slope)
        return energy, forces


def export(
    potential: Potential,
    path: str | Path,
    examples: Sequence[Structure],
    aot: bool = False,
    max_neighbours: int | None = None,
) -> dict[str, Any]:
    """Writes the potential as ``.pt2`` and returns what stands in the file beside it (cutoff, elements, units, …).

    With ``aot`` the graph is compiled for this machine's kind of processor (a minute or more, needs a C++ compiler);
    otherwise any machine with torch runs it. Numbers of atoms, pairs and systems stay free. ``examples`` (Å) are
    predicted both ways before the file is written, and say how many neighbours an atom may have in a network with
    angles (DimeNet++, GemNet-T), unless ``max_neighbours`` does.
    """
    path = Path(path)
    if path.suffix != ".pt2":
        raise InputError(f"{path}: packages of torch.export end in .pt2")
    if potential.device.type != "cpu":
        raise InputError(f"the potential is on {potential.device}; load it on the cpu to export it")
    if not examples:
        raise InputError("export needs at least one structure to try the exported potential on")
    batch = collate(examples, potential.cutoff, potential.dtype)
    slots = _slots(potential, batch, max_neighbours)
    program = trace(potential, slots)
    _compare(program.module()(*inputs(batch)), potential, batch)
    about = {
        "dcnn_version": __version__,
        "network": type(potential.network).__name__,
        "inputs": list(INPUTS),
        "outputs": ["energy", "forces"],
        "units": {"energy": "eV", "length": "Ang"},
        "cutoff_A": potential.cutoff,
        "elements": None if potential.elements is None else sorted(potential.elements),
        "max_neighbours": slots,
        "dtype": str(potential.dtype).removeprefix("torch."),
    }
    with written_beside(path) as temporary, warnings.catch_warnings(action="ignore"):  # torch's, about itself
        if aot:
            compiled = compile_package(program, str(temporary), {METADATA: json.dumps(about)})
            _compare(compiled(*inputs(batch)), potential, batch)
        else:
            torch.export.save(program, temporary, extra_files={METADATA: json.dumps(about)})
    return about


def trace(potential: Potential, slots: int | None = None) -> ExportedProgram:
    """Energy and forces as one graph of torch operations, for any number of atoms, pairs and systems.

    ``torch.export`` does not follow ``autograd.grad``: the gradient is first written out by ``make_fx``.
    """
    # Sizes that differ from each other and from 3: equal ones would be taken for the same size.
    n_atoms, n_pairs, n_systems = 11, 17, 2
    element = min(potential.elements) if potential.elements else 1
    pairs = torch.arange(n_pairs) % n_atoms
    example = (
        torch.full((n_atoms,), element),
        torch.rand(n_atoms, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
        pairs,
        (pairs + 1) % n_atoms,
        torch.zeros(n_pairs, 3, dtype=torch.float64),
        torch.zeros(n_systems, 3, 3, dtype=torch.float64),
        torch.arange(n_atoms) % n_systems,
    )
    module = Deployed(potential, slots)
    atoms, several, systems = Dim("atoms", min=1), Dim("pairs", min=0), Dim("systems", min=1)
    sizes = ({0: atoms}, {0: atoms}, {0: several}, {0: several}, {0: several}, {0: systems}, {0: atoms})
    with warnings.catch_warnings(action="ignore"):  # torch's, about itself
        graph = recorded(module, *example, any_size=True)
        return torch.export.export(graph, example, dynamic_shapes=sizes)


def inputs(batch: AtomsBatch) -> tuple[Tensor, ...]:
    """The arguments of an exported potential for a batch."""
    shift, cell = batch.pair_shift, batch.cell
    if shift is None or cell is None:
        shift, cell = torch.zeros(len(batch.pair_i), 3), torch.zeros(batch.n_systems, 3, 3)
    positions, shift, cell = (tensor.double() for tensor in (batch.positions, shift, cell))
    return batch.z, positions, batch.pair_i, batch.pair_j, shift, cell, batch.system


def _slots(potential: Potential, batch: AtomsBatch, given: int | None) -> int | None:
    """Room for half as many neighbours again as the examples have, if the network asks for neighbourhoods."""
    potential(batch)
    if batch.edges is None or "neighbourhoods" not in vars(batch.edges):
        return None
    most = int(batch.edges.degree.max())
    if given is None:
        return most + max(4, most // 2)
    if given < most:
        raise InputError(f"an atom of the examples has {most} neighbours, more than max_neighbours={given}")
    return given


def _compare(found: Sequence[Tensor], potential: Potential, batch: AtomsBatch) -> None:
    """Raises if the exported numbers are not those of the potential, by more than rounding."""
    energy, forces, *_ = potential(batch)
    constant = torch.zeros_like(energy).index_add(0, batch.system, potential.reference_energies()[batch.z])
    size = max(float((energy - constant).abs().max()), float(forces.abs().max()), 1e-12)
    for name, ours, theirs in (("energy", found[0], energy), ("forces", found[1], forces)):
        error = float((ours - theirs).abs().max()) / size
        if not error < TOLERANCE:
            raise DcnnError(f"the exported {name} is {error:.2g} (relative) off the network's; nothing was written")
