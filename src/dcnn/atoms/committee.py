"""Several potentials that were trained alike: their mean, and how far they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.forces import energy_and_forces, energy_forces_stress
from dcnn.atoms.potential import Potential, Prediction
from dcnn.atoms.repeated import Repeated
from dcnn.derivatives import gradient
from dcnn.errors import InputError

MEMBER = "member-{}"


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
        networks = [member.network for member in members]
        self._side_by_side: nn.Module = _Stacked(networks) if _alike(networks) else _InTurn(networks)

    @classmethod
    def load(cls, path: Any, *more: Any, **options: Any) -> Committee:
        """The members of a folder of ``dcnn train --committee``, or of a list of run folders and checkpoints."""
        paths = member_folders(path) if isinstance(path, (str, Path)) else list(path)
        if not paths:
            raise InputError(f"{path}: holds no runs of a committee ({MEMBER.format('N')})")
        return cls([Potential.load(each, *more, **options) for each in paths])

    def __call__(self, batch: AtomsBatch, stress: bool = False) -> Prediction:
        batch = batch.to(self.device, self.dtype)
        energy, forces, *by_strain = self._raw(batch, stress)
        unit = self._units  # (M, 1)
        references = self._references.index_select(1, batch.z)  # (M, N)
        total = (energy.double() * unit).index_add(1, batch.system, references)  # (M, B)
        forces = forces.double() * unit.unsqueeze(2)  # (M, N, 3)
        mean_stress = (by_strain[0].double() * unit.view(-1, 1, 1, 1)).mean(0) if by_strain else None
        return Prediction(total.mean(0), forces.mean(0), mean_stress, total.std(0), forces.var(0).sum(1).sqrt())

    def compile_if_repeated(self) -> None:
        if self.repeated is None and self.device.type == "cpu":
            self.repeated = Repeated(self._side_by_side)

    def reference_energies(self) -> Tensor:
        return self._references.mean(0).cpu()

    def _raw(self, batch: AtomsBatch, stress: bool) -> tuple[Tensor, ...]:
        """Energies (M, B), forces (M, N, 3) and, if asked for, stress (M, B, 3, 3), in the unit of each member."""
        function = _energies_forces_stress if stress else _energies_and_forces
        try:
            return self.repeated(function, batch) if self.repeated is not None else function(self._side_by_side, batch)
        except (RuntimeError, NotImplementedError):  # an operation that has no rule for vmap
            if isinstance(self._side_by_side, _InTurn):
                raise
            self._side_by_side = _InTurn([member.network for member in self.members])
            if self.repeated is not None:
                self.repeated = Repeated(self._side_by_side, self.repeated.scale)
            return self._raw(batch, stress)


class _Stacked(nn.Module):
    """Networks of one kind as one: weights are stacked (M, …), and what all share is held once."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.count, self._network = len(networks), (networks[0],)  # in a tuple: its weights are not ours
        parameters, buffers = stack_module_state(list(networks))
        shared = {name for name, value in buffers.items() if bool((value == value[:1]).all())}
        self._own, self._shared = [*(parameters | buffers).keys() - shared], [*shared]
        for name, value in (parameters | buffers).items():
            self.register_buffer(_key(name), value[0] if name in shared else value.detach())

    def forward(self, batch: AtomsBatch, stress: bool) -> tuple[Tensor, ...]:
        edges, shared = batch._edges(), {name: self.get_buffer(_key(name)) for name in self._shared}

        def energies(own: dict[str, Tensor], positions: Tensor, strain: Tensor) -> Tensor:
            symmetric = 0.5 * (strain + strain.mT)
            cell = batch.cell
            if stress and cell is not None:
                positions = positions + torch.einsum("na,nab->nb", positions, symmetric.index_select(0, batch.system))
                cell = cell + cell @ symmetric
            moved = replace(batch, positions=positions, cell=cell, edges=edges)
            return cast(Tensor, functional_call(self._network[0], {**shared, **own}, (moved,)))

        positions = batch.positions.detach().expand(self.count, -1, -1).clone().requires_grad_()
        strain = positions.new_zeros(self.count, batch.n_systems, 3, 3).requires_grad_()
        with torch.enable_grad():
            energy = vmap(energies)({n: self.get_buffer(_key(n)) for n in self._own}, positions, strain)  # (M, B)
        wanted = (positions, strain) if stress else (positions,)
        slopes = gradient(energy, wanted, create_graph=False)
        found = energy.detach(), -slopes[0].detach()
        if not stress or batch.cell is None:
            return found
        return *found, slopes[1].detach() / torch.linalg.det(batch.cell).abs().view(-1, 1, 1)


class _InTurn(nn.Module):
    """Networks one after the other."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, batch: AtomsBatch, stress: bool) -> tuple[Tensor, ...]:
        function = energy_forces_stress if stress else energy_and_forces
        return tuple(map(torch.stack, zip(*(function(network, batch) for network in self.networks), strict=True)))


def _energies_and_forces(members: nn.Module, batch: AtomsBatch) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return cast(tuple[Tensor, ...], members(batch, False))


def _energies_forces_stress(members: nn.Module, batch: AtomsBatch) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return cast(tuple[Tensor, ...], members(batch, True))


def _key(name: str) -> str:
    return name.replace(".", "/")  # a buffer's name has no dot


def _alike(networks: Sequence[nn.Module]) -> bool:
    kinds = {tuple((name, value.shape, value.dtype) for name, value in n.state_dict().items()) for n in networks}
    return len(kinds) == 1 and len({str(network) for network in networks}) == 1
