"""A potential as one file that torch runs without dcnn: ``torch.export`` or, compiled, AOTInductor."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

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

OUTPUTS = ("energy", "forces", "stress", "atomic_energies")
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


def padded_batch(
    z: Tensor, positions: Tensor, pair_i: Tensor, pair_j: Tensor, shift: Tensor, cell: Tensor, system: Tensor,
    cutoff: float, dtype: torch.dtype, slots: Any,
) -> AtomsBatch:  # fmt: skip
    """A batch of these tensors with one pair more, so that no list is empty; ``slots``: neighbours an atom may have."""
    none = torch.zeros(1, dtype=torch.long)
    pair_i, pair_j = torch.cat([pair_i, none]), torch.cat([pair_j, none])
    edges = Edges(pair_i, pair_j, z.shape[0], slots=None if slots is None else slots + 2)
    return _Padded(
        z=z,
        positions=positions.to(dtype),
        system=system,
        n_systems=cell.shape[0],
        cell=cell.to(dtype),
        pbc=None,
        pair_i=pair_i,
        pair_j=pair_j,
        pair_shift=nn.functional.pad(shift, (0, 0, 0, 1)).to(dtype),
        cutoff=cutoff,
        edges=edges,
    )


def atom_by_atom(batch: AtomsBatch) -> AtomsBatch:
    """The batch with every atom as a system of its own and all pairs: energies of atoms come out."""
    n_atoms = batch.z.shape[0]
    own = torch.arange(n_atoms, device=batch.z.device)
    cell = None if batch.cell is None else batch.cell.index_select(0, batch.system)
    return replace(batch, system=own, n_systems=n_atoms, cell=cell, edges=batch._edges())


def is_additive(potential: Potential, batch: AtomsBatch) -> bool:
    """Whether the energy is a sum of energies of atoms; not so where features are averaged first (CGCNN)."""
    batch = batch.to(dtype=potential.dtype)
    with torch.no_grad():
        total, atomic = potential.network(batch).double(), potential.network(atom_by_atom(batch)).double()
    summed = torch.zeros_like(total).index_add(0, batch.system, atomic)
    return bool((summed - total).abs().max() <= TOLERANCE * max(float(total.abs().max()), float(atomic.abs().max())))


class Deployed(nn.Module):
    """(z, positions, pair_i, pair_j, shift, cell, system) → energy (B,), forces (N, 3), stress (B, 3, 3), atomic (N,).

    Of B systems with N atoms and P half pairs (every unordered pair and periodic image once, |r| < cutoff): z (N,),
    pair_i, pair_j (P,) and system (N,) are int64; positions (N, 3) and cell (B, 3, 3) are in Å, shift (P, 3) holds
    the images of pair_j, all float64; cell and shift are zeros for molecules. Networks with angles take one tensor
    more, slots: its length is the number of neighbours that an atom may have. Results are float64 in eV, eV/Å and
    eV/Å³ (NaN without a cell); atomic energies are NaN where the network has none. Elements that were not trained on,
    and atoms with more neighbours than slots, make the result NaN.
    """

    references: Tensor

    def __init__(self, potential: Potential, additive: bool) -> None:
        super().__init__()
        self.network, self.additive = potential.network, additive
        self.unit = potential.scale.constant * potential.energy_unit_eV
        self.cutoff, self.dtype = potential.cutoff, potential.dtype
        self.register_buffer("references", potential.reference_energies())  # (119,)

    def forward(
        self, z: Tensor, positions: Tensor, pair_i: Tensor, pair_j: Tensor, shift: Tensor, cell: Tensor, system: Tensor,
        slots: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        room = None if slots is None else slots.shape[0]
        with torch.enable_grad():
            leaf = positions.detach().requires_grad_()
            strain = torch.zeros_like(cell).requires_grad_()
            symmetric = 0.5 * (strain + strain.mT)
            moved = leaf + torch.einsum("na,nab->nb", leaf, symmetric.index_select(0, system))
            stretched = cell + cell @ symmetric
            batch = padded_batch(
                z, moved, pair_i, pair_j, shift, stretched, system, self.cutoff, self.dtype, room
            )  # fmt: skip
            if self.additive:
                atomic = self.network(atom_by_atom(batch)).double() * self.unit  # (N,)
                energy = torch.zeros_like(cell[:, 0, 0]).index_add(0, system, atomic)  # (B,)
            else:
                energy = self.network(batch).double() * self.unit
                atomic = torch.full_like(positions[:, 0], torch.nan)
            slope, by_strain = torch.autograd.grad(energy.sum(), (leaf, strain))
        constant = self.references.index_select(0, z)  # (N,)
        if room is not None:
            constant = torch.where(Edges(pair_i, pair_j, z.shape[0]).degree > room, torch.nan, constant)
        spoilt = torch.zeros_like(energy).index_add(0, system, constant.isnan().to(constant.dtype))  # (B,) atoms
        energy = energy.detach().index_add(0, system, constant)
        bad = spoilt > 0
        volume = torch.linalg.det(cell).abs()  # (B,)
        stress = by_strain / torch.where((volume > 0) & ~bad, volume, torch.nan).view(-1, 1, 1)
        bad_atom = bad.index_select(0, system)  # (N,)
        forces = torch.where(bad_atom.unsqueeze(-1), torch.nan, -slope)
        return energy, forces, stress, torch.where(bad_atom, torch.nan, atomic.detach() + constant)


def export(
    potential: Potential,
    path: str | Path,
    examples: Sequence[Structure],
    aot: bool = False,
) -> dict[str, Any]:
    """Writes the potential as ``.pt2`` and returns what stands in the file beside it (cutoff, elements, units, …).

    With ``aot`` the graph is compiled for this machine's kind of processor (a minute or more, needs a C++ compiler);
    otherwise any machine with torch runs it. Numbers of atoms, pairs, neighbours and systems stay free. ``examples``
    (Å) are predicted both ways before the file is written.
    """
    path = Path(path)
    if path.suffix != ".pt2":
        raise InputError(f"{path}: packages of torch.export end in .pt2")
    if potential.device.type != "cpu":
        raise InputError(f"the potential is on {potential.device}; load it on the cpu to export it")
    if not examples:
        raise InputError("export needs at least one structure to try the exported potential on")
    batch = collate(examples, potential.cutoff, potential.dtype)
    angles, additive = _asks_for_angles(potential, batch), is_additive(potential, batch)
    program, given = trace(potential, angles, additive), inputs(batch, angles)
    _compare(program.module()(*given), potential, batch)
    about = {
        "dcnn_version": __version__,
        "network": type(potential.network).__name__,
        "inputs": [*INPUTS, "slots"] if angles else list(INPUTS),
        "outputs": list(OUTPUTS),
        "atomic_energies": additive,
        "units": {"energy": "eV", "length": "Ang"},
        "cutoff_A": potential.cutoff,
        "elements": None if potential.elements is None else sorted(potential.elements),
        "dtype": str(potential.dtype).removeprefix("torch."),
    }
    with written_beside(path) as temporary, warnings.catch_warnings(action="ignore"):  # torch's, about itself
        if aot:
            compiled = compile_package(program, str(temporary), {METADATA: json.dumps(about)})
            _compare(compiled(*given), potential, batch)
        else:
            torch.export.save(program, temporary, extra_files={METADATA: json.dumps(about)})
    return about


def trace(potential: Potential, angles: bool = False, additive: bool = True) -> ExportedProgram:
    """Energies, forces and stress as one graph of torch operations, for any number of atoms, pairs and systems.

    ``torch.export`` does not follow ``autograd.grad``: the gradient is first written out by ``make_fx``.
    """
    # Sizes that differ from each other and from 3: equal ones would be taken for the same size.
    n_atoms, n_pairs, n_systems, n_slots = 11, 17, 2, 7
    element = min(potential.elements) if potential.elements else 1
    pairs = torch.arange(n_pairs) % n_atoms
    example: tuple[Tensor, ...] = (
        torch.full((n_atoms,), element),
        torch.rand(n_atoms, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
        pairs,
        (pairs + 1) % n_atoms,
        torch.zeros(n_pairs, 3, dtype=torch.float64),
        5.0 * torch.eye(3, dtype=torch.float64).repeat(n_systems, 1, 1),
        torch.arange(n_atoms) % n_systems,
    )
    module = Deployed(potential, additive)
    atoms, several, systems = Dim("atoms", min=1), Dim("pairs", min=0), Dim("systems", min=1)
    sizes: tuple[Any, ...] = (
        {0: atoms}, {0: atoms}, {0: several}, {0: several}, {0: several}, {0: systems}, {0: atoms}
    )  # fmt: skip
    if angles:
        example, sizes = (*example, torch.arange(n_slots)), (*sizes, {0: Dim("slots", min=1)})
    with warnings.catch_warnings(action="ignore"):  # torch's, about itself
        graph = recorded(module, *example, any_size=True)
        # of guards such as min(2 + n, 4 + 2n) = 2 + n torch does not see that they hold for every n
        return torch.export.export(
            graph, example, dynamic_shapes=sizes, prefer_deferred_runtime_asserts_over_guards=angles
        )  # fmt: skip


def inputs(batch: AtomsBatch, angles: bool = False) -> tuple[Tensor, ...]:
    """The arguments of an exported potential for a batch; ``angles``: with the slots that networks with angles take."""
    shift, cell = batch.pair_shift, batch.cell
    if shift is None or cell is None:
        shift, cell = torch.zeros(len(batch.pair_i), 3), torch.zeros(batch.n_systems, 3, 3)
    positions, shift, cell = (tensor.double() for tensor in (batch.positions, shift, cell))
    given = batch.z, positions, batch.pair_i, batch.pair_j, shift, cell, batch.system
    most = int(batch._edges().degree.max())
    return (*given, torch.arange(max(most, 2))) if angles else given


def _asks_for_angles(potential: Potential, batch: AtomsBatch) -> bool:
    potential(batch)
    return batch.edges is not None and "neighbourhoods" in vars(batch.edges)


def _compare(found: Sequence[Tensor], potential: Potential, batch: AtomsBatch) -> None:
    """Raises if the exported numbers are not those of the potential, by more than rounding."""
    energy, forces, *_ = potential(batch)
    constant = torch.zeros_like(energy).index_add(0, batch.system, potential.reference_energies()[batch.z])
    size = max(float((energy - constant).abs().max()), float(forces.abs().max()), 1e-12)
    checked = [("energy", found[0], energy), ("forces", found[1], forces)]
    if not found[3].isnan().all():
        checked.append(
            ("sum of atomic energies", torch.zeros_like(energy).index_add(0, batch.system, found[3]), energy)
        )
    if batch.cell is not None and batch.pbc is not None and bool(batch.pbc.all()):
        checked.append(("stress", found[2], cast(Tensor, potential(batch, stress=True).stress)))
    for name, ours, theirs in checked:
        error = float((ours - theirs).abs().max()) / size
        if not error < TOLERANCE:
            raise DcnnError(f"the exported {name} is {error:.2g} (relative) off the network's; nothing was written")
