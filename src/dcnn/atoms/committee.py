"""Several potentials that were trained alike: their mean, and how far they disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.potential import Potential, Prediction
from dcnn.derivatives import gradient
from dcnn.errors import InputError
from dcnn.torch_internals import recorded
from dcnn.train.flatten import flattened, parts_made, rebuilt

MEMBER = "member-{}"
GRAPHS, AGAIN = 4, 3  # graphs that are made, each when batches of its sizes have come so often
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}  # relative, graph against usual


def member_folders(folder: str | Path) -> list[Path]:
    """The runs of a folder that ``dcnn train --committee`` made, in order; none for any other folder."""
    found = Path(folder).glob(f"{MEMBER.format('[0-9]*')}/checkpoints/best.ckpt")
    return sorted((file.parents[1] for file in found), key=lambda path: int(path.name.rpartition("-")[2]))


class Committee(Potential):
    """The mean of M potentials, with their standard deviations σ = √(Σ_m |x_m − x̄|² / (M − 1)).

    σ of the energy of a system in eV, of the force on an atom in eV/Å (√ of the sum over x, y, z).
    Members of one architecture are evaluated in one pass, their weights stacked (M, …); others, and networks that
    ``torch.vmap`` cannot take, one after the other.
    """

    def __init__(self, members: Sequence[Potential]) -> None:
        if len(members) < 2:
            raise InputError(f"a committee has two members or more, not {len(members)}")
        first = members[0]
        self.members = list(members)
        self.device, self.dtype, self.network = first.device, first.dtype, first.network
        self.scale, self.energy_unit_eV = first.scale, first.energy_unit_eV
        self.cutoff = max(member.cutoff for member in members)
        known = [member.elements for member in members if member.elements is not None]
        self.elements = frozenset.intersection(*known) if known else None
        self.range, self.repeated = first.range, None
        self._references = torch.stack([member.reference_energies() for member in members]).to(self.device)  # (M, 119)
        units = [member.scale.constant * member.energy_unit_eV for member in members]
        self._units = torch.tensor(units, dtype=torch.float64, device=self.device).unsqueeze(1)  # (M, 1)
        self._stacked = _stacked([member.network for member in members])
        self._graphs: dict[Any, Any] = {}
        self._seen: Counter[Any] = Counter()
        self._parts: tuple[str, ...] = ()  # what the network asks for of the lazy parts of a batch

    @classmethod
    def load(cls, path: Any, *more: Any, **options: Any) -> Committee:
        """The members of a folder of ``dcnn train --committee``, or of a list of run folders and checkpoints."""
        paths = member_folders(path) if isinstance(path, (str, Path)) else list(path)
        if not paths:
            raise InputError(f"{path}: holds no runs of a committee ({MEMBER.format('N')})")
        return cls([Potential.load(each, *more, **options) for each in paths])

    def __call__(self, batch: AtomsBatch, stress: bool = False) -> Prediction:
        batch = batch.to(self.device, self.dtype)
        energy, forces, *by_strain = self._traced(batch, stress)
        unit = self._units  # (M, 1)
        references = self._references.index_select(1, batch.z)  # (M, N)
        total = (energy.double() * unit).index_add(1, batch.system, references)  # (M, B)
        forces = forces.double() * unit.unsqueeze(2)  # (M, N, 3)
        mean_stress = (by_strain[0].double() * unit.view(-1, 1, 1, 1)).mean(0) if by_strain else None
        return Prediction(total.mean(0), forces.mean(0), mean_stress, total.std(0), forces.var(0).sum(1).sqrt())

    def compile_if_repeated(self) -> None:
        """Graphs are made in any case; they are not compiled."""

    def reference_energies(self) -> Tensor:
        return self._references.mean(0).cpu()

    def _traced(self, batch: AtomsBatch, stress: bool) -> tuple[Tensor, ...]:
        """What :meth:`_evaluated` gives; batches whose sizes come back are evaluated by a graph without autograd."""
        batch._edges()
        tensors, kind = flattened(batch, self._parts)
        key = (kind, tuple(tensor.shape for tensor in tensors), stress)
        if key in self._graphs:
            return cast(tuple[Tensor, ...], self._graphs[key](tensors))
        found = self._evaluated_members(batch, stress)
        self._parts = tuple(dict.fromkeys([*self._parts, *parts_made(batch)]))
        self._seen[key] += 1
        if self._seen[key] == AGAIN and len(self._graphs) < GRAPHS:
            graph = recorded(lambda given: self._evaluated_members(rebuilt(batch, self._parts, given), stress), tensors)
            scale = max(float(part.abs().max()) for part in found) + 1e-30
            gaps = [float((a - b).abs().max()) for a, b in zip(graph(tensors), found, strict=True)]
            if max(gaps) < TOLERANCE[self.dtype] * scale:
                self._graphs[key] = torch.no_grad()(graph)
        return found

    def _evaluated_members(self, batch: AtomsBatch, stress: bool) -> tuple[Tensor, ...]:
        """Energies (M, B), forces (M, N, 3) and, if asked for, stress (M, B, 3, 3), in the unit of each member."""
        return self._together(batch, stress) or self._in_turn(batch, stress)

    def _together(self, batch: AtomsBatch, stress: bool) -> tuple[Tensor, ...] | None:
        """All members in one pass, if their networks can be stacked."""
        if self._stacked is None:
            return None
        weights, shared = self._stacked
        edges, count = batch._edges(), len(self.members)

        def energies(own: dict[str, Tensor], positions: Tensor, strain: Tensor) -> Tensor:
            symmetric = 0.5 * (strain + strain.mT)
            cell = batch.cell
            if stress and cell is not None:
                positions = positions + torch.einsum("na,nab->nb", positions, symmetric.index_select(0, batch.system))
                cell = cell + cell @ symmetric
            moved = replace(batch, positions=positions, cell=cell, edges=edges)
            return cast(Tensor, functional_call(self.network, {**shared, **own}, (moved,)))

        positions = batch.positions.detach().expand(count, -1, -1).clone().requires_grad_()
        strain = positions.new_zeros(count, batch.n_systems, 3, 3).requires_grad_()
        try:
            with torch.enable_grad():
                energy = vmap(energies)(weights, positions, strain)  # (M, B)
        except (RuntimeError, NotImplementedError):  # an operation that has no rule for vmap
            self._stacked = None
            return None
        wanted = (positions, strain) if stress else (positions,)
        slopes = gradient(energy, wanted, create_graph=False)
        found = energy.detach(), -slopes[0].detach()
        if not stress or batch.cell is None:
            return found
        return *found, slopes[1].detach() / torch.linalg.det(batch.cell).abs().view(-1, 1, 1)

    def _in_turn(self, batch: AtomsBatch, stress: bool) -> tuple[Tensor, ...]:
        found = zip(*(member.raw(batch, stress) for member in self.members), strict=True)
        return tuple(torch.stack(part) for part in found if part[0] is not None)


def _stacked(networks: Sequence[nn.Module]) -> tuple[dict[str, Tensor], dict[str, Tensor]] | None:
    """Weights stacked (M, …) and those that all share; None if the networks are not of one kind."""
    kinds = {tuple((name, value.shape, value.dtype) for name, value in n.state_dict().items()) for n in networks}
    if len(kinds) > 1 or len({str(network) for network in networks}) > 1:
        return None
    parameters, buffers = stack_module_state(list(networks))
    every = {**parameters, **buffers}
    shared = {name for name in buffers if bool((every[name] == every[name][:1]).all())}
    own = {name: value.detach() for name, value in every.items() if name not in shared}
    return own, {name: every[name][0] for name in shared}
