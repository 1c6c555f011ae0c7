"""Checks that any interatomic potential should pass, for your own tests: `check_potential(network)` runs them all.

A potential is an ``nn.Module`` with a ``cutoff`` that takes an :class:`~dcnn.atoms.AtomsBatch` and returns
energies (B,). Every check works on a float64 copy in evaluation mode, raises ``AssertionError`` with the measured
error if it is too large, and returns it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.batching import batch as make_batch
from dcnn.atoms.forces import energy_and_forces, energy_forces_stress
from dcnn.errors import InputError

__all__ = [
    "check_batch",
    "check_coincident_atoms",
    "check_cutoff",
    "check_forces",
    "check_isolated_atom",
    "check_periodic_images",
    "check_permutation",
    "check_potential",
    "check_precision",
    "check_rotation",
    "check_state_dict",
    "check_stress",
    "check_translation",
    "crystal",
    "molecules",
    "rotation_error",
]


def molecules(cutoff: float = 6.0, seed: int = 0) -> AtomsBatch:
    """Ethanol, water and methane with displaced atoms, in float64."""
    shapes = {
        "ethanol": (
            [6, 6, 8, 1, 1, 1, 1, 1, 1],
            [
                [0.01, -0.57, 0.0], [-1.29, 0.25, 0.0], [1.13, 0.31, 0.0], [0.04, -1.22, 0.89], [0.04, -1.22, -0.89],
                [-2.15, -0.42, 0.0], [-1.35, 0.89, -0.89], [-1.35, 0.89, 0.89], [1.98, -0.14, 0.0],
            ],
        ),
        "water": ([8, 1, 1], [[0.0, 0.0, 0.12], [0.0, 0.76, -0.48], [0.0, -0.76, -0.48]]),
        "methane": (
            [6, 1, 1, 1, 1],
            [[0.0, 0.0, 0.0], [0.63, 0.63, 0.63], [-0.63, -0.63, 0.63], [-0.63, 0.63, -0.63], [0.63, -0.63, -0.63]],
        ),
    }  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    z = torch.tensor([number for numbers, _ in shapes.values() for number in numbers])
    positions = torch.tensor([row for _, rows in shapes.values() for row in rows], dtype=torch.float64)
    positions = positions + 0.05 * torch.randn(positions.shape, dtype=torch.float64, generator=generator)
    system = torch.repeat_interleave(torch.arange(3), torch.tensor([len(numbers) for numbers, _ in shapes.values()]))
    return make_batch(z=z, positions=positions, system=system, cutoff=cutoff)


def crystal(cutoff: float = 6.0, seed: int = 0) -> AtomsBatch:
    """A displaced, slightly sheared MgO cell of 4 atoms, periodic, smaller than the cutoff; float64."""
    generator = torch.Generator().manual_seed(seed)
    cell = torch.tensor([[4.21, 0.1, 0.0], [0.0, 4.21, 0.2], [0.3, 0.0, 3.1]], dtype=torch.float64)
    fractional = torch.tensor([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]], dtype=torch.float64)
    positions = fractional @ cell + 0.05 * torch.randn(4, 3, dtype=torch.float64, generator=generator)
    return make_batch(z=[12, 12, 8, 8], positions=positions, cell=cell, cutoff=cutoff)


def check_potential(network: nn.Module, rotation: bool = True, extensive: bool = True) -> dict[str, float]:
    """Run every check on built-in structures and return the measured errors by name.

    Leave out ``rotation`` for networks that see the lab frame, ``extensive`` for those whose energy is not a sum.
    """
    cutoff = float(network.cutoff)  # type: ignore[arg-type]
    free, periodic = molecules(cutoff), crystal(cutoff)
    check_coincident_atoms(network)
    found = {
        "forces": check_forces(network, free),
        "forces_periodic": check_forces(network, periodic),
        "stress": check_stress(network, periodic),
        "permutation": check_permutation(network, free),
        "translation": check_translation(network, free),
        "batch": check_batch(network, free),
        "periodic_images": check_periodic_images(network, periodic, extensive=extensive),
        "cutoff": check_cutoff(network),
        "isolated_atom": check_isolated_atom(network),
        "state_dict": check_state_dict(network, free),
        "precision": check_precision(network, free),
    }
    if rotation:
        found["rotation"] = check_rotation(network, free)
    return found


def check_forces(network: nn.Module, batch: AtomsBatch, directions: int = 8, tolerance: float = 1e-6) -> float:
    """−F·v = dE/dv for random displacements v of all atoms, by five-point finite differences."""
    network = _prepared(network)
    _, forces = _evaluate(network, batch)
    assert forces.abs().max() > 0, "the forces are all zero, so nothing can be checked; give the network other weights"
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for _ in range(directions):
        v = torch.randn(batch.positions.shape, dtype=torch.float64, generator=generator)
        v = v / v.norm()

        def energy(step: float, v: Tensor = v) -> Tensor:
            return _energy(network, _moved(batch, batch.positions + step * v))

        worst = max(worst, abs(float(_slope(energy) + (forces * v).sum())))
    return _verdict("forces against finite differences", worst, tolerance * _scale(forces))


def check_stress(network: nn.Module, batch: AtomsBatch, tolerance: float = 1e-6) -> float:
    """Stress = ∂E/∂ε / V for each of the six strains ε of a periodic structure, by finite differences; and symmetry."""
    network = _prepared(network)
    assert batch.cell is not None, "stress needs a periodic structure"
    with torch.no_grad():
        _, _, stress = energy_forces_stress(network, batch)
    cell = batch.cell
    volume = torch.linalg.det(cell).abs()
    worst = float((stress - stress.mT).abs().max())
    for a in range(3):
        for b in range(a, 3):
            strain = torch.zeros(3, 3, dtype=torch.float64)
            strain[a, b] = strain[b, a] = 0.5 if a != b else 1.0

            def energy(step: float, strain: Tensor = strain) -> Tensor:
                deformation = torch.eye(3, dtype=torch.float64) + step * strain
                return _energy(network, _moved(batch, batch.positions @ deformation, cell @ deformation))

            expected = _slope(energy) / volume.sum()
            worst = max(worst, abs(float((stress * strain).sum() - expected)))
    return _verdict("stress against strain finite differences", worst, tolerance * _scale(stress))


def check_permutation(network: nn.Module, batch: AtomsBatch, tolerance: float = 1e-10) -> float:
    """Atoms in another order: same energies, forces in that order."""
    order = torch.randperm(len(batch.z), generator=torch.Generator().manual_seed(0))
    other = make_batch(
        z=batch.z[order],
        positions=batch.positions[order],
        system=batch.system[order],
        cell=batch.cell,
        pbc=batch.pbc,
        cutoff=batch.cutoff,
    )
    return _same(network, batch, other, lambda forces: forces[order], "permutation", tolerance)


def check_translation(network: nn.Module, batch: AtomsBatch, tolerance: float = 1e-10) -> float:
    """Every system moved as a whole: same energies and forces."""
    shift = torch.randn(batch.n_systems, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    other = _moved(batch, batch.positions + shift[batch.system])
    return _same(network, batch, other, lambda forces: forces, "translation", tolerance)


def check_rotation(network: nn.Module, batch: AtomsBatch, tolerance: float = 1e-10) -> float:
    """Everything rotated and mirrored: same energies, rotated forces."""
    rotation = _rotation()
    cell = None if batch.cell is None else batch.cell @ rotation
    other = _moved(batch, batch.positions @ rotation, cell)
    return _same(network, batch, other, lambda forces: forces @ rotation, "rotation", tolerance)


def rotation_error(network: nn.Module, batch: AtomsBatch, rotations: int = 16) -> float:
    """Standard deviation of the energies over random rotations, over that of the energies of the systems themselves.

    0 for an invariant network. Give the batch frames of one molecule: the value says how an arbitrary orientation
    compares with the differences the network is to learn.
    """
    network = _prepared(network)
    energies = [_evaluate(network, _moved(batch, batch.positions @ _rotation(s)))[0] for s in range(rotations)]
    own, _ = _evaluate(network, batch)
    return float(torch.stack(energies).std(0).mean() / own.std())


def check_batch(network: nn.Module, batch: AtomsBatch, tolerance: float = 1e-10) -> float:
    """Energies and forces of a batch are those of its systems one by one."""
    network = _prepared(network)
    energy, forces = _evaluate(network, batch)
    worst = 0.0
    for number in range(batch.n_systems):
        atoms = batch.system == number
        cell = None if batch.cell is None else batch.cell[number]
        pbc = None if batch.pbc is None else batch.pbc[number]
        single = make_batch(z=batch.z[atoms], positions=batch.positions[atoms], cell=cell, pbc=pbc, cutoff=batch.cutoff)
        alone, pushed = _evaluate(network, single)
        worst = max(worst, _distance((energy[number : number + 1], forces[atoms]), (alone, pushed)))
    return _verdict("batch against single systems", worst, tolerance * _scale(energy, forces))


def check_periodic_images(
    network: nn.Module, batch: AtomsBatch, extensive: bool = True, tolerance: float = 1e-10
) -> float:
    """Atoms replaced by periodic images: nothing changes. Two cells side by side: twice the energy, if extensive."""
    assert batch.cell is not None, "periodic images need a periodic structure"
    images = torch.randint(-2, 3, (len(batch.z), 3), generator=torch.Generator().manual_seed(0)).double()
    cell = batch.cell[batch.system]
    other = _moved(batch, batch.positions + torch.einsum("na,nab->nb", images, cell))
    worst = _same(network, batch, other, lambda forces: forces, "periodic images", tolerance)
    if extensive:
        double = make_batch(
            z=batch.z.repeat(2),
            positions=torch.cat([batch.positions, batch.positions + cell[:, 0]]),
            system=batch.system.repeat(2),
            cell=batch.cell * torch.tensor([2.0, 1.0, 1.0], dtype=torch.float64).view(3, 1),
            pbc=batch.pbc,
            cutoff=batch.cutoff,
        )
        network = _prepared(network)
        once, twice = _evaluate(network, batch)[0], _evaluate(network, double)[0]
        worst = max(worst, _verdict("two cells", _distance((2 * once,), (twice,)), tolerance * _scale(twice)))
    return worst


def check_cutoff(network: nn.Module, tolerance: float = 1e-4) -> float:
    """Energy and forces do not jump when an atom crosses the cutoff (measured over 2e-6 Å)."""
    network = _prepared(network)
    cutoff = float(network.cutoff)  # type: ignore[arg-type]

    def at(distance: float) -> tuple[Tensor, Tensor]:
        positions = torch.tensor([[0.0, 0.0, 0.0], [1.1, 0.1, 0.0], [0.0, 0.0, distance]], dtype=torch.float64)
        return _evaluate(network, make_batch(z=[6, 1, 8], positions=positions, cutoff=cutoff))

    near = at(cutoff - 1e-6)
    return _verdict("jump at the cutoff", _distance(near, at(cutoff + 1e-6)), tolerance * _scale(*near))


def check_isolated_atom(network: nn.Module) -> float:
    """A lone atom has a finite energy and no force."""
    network = _prepared(network)
    cutoff = float(network.cutoff)  # type: ignore[arg-type]
    lone = make_batch(z=[6], positions=torch.zeros(1, 3, dtype=torch.float64), cutoff=cutoff)
    energy, forces = _evaluate(network, lone)
    assert energy.isfinite().all(), f"the energy of an isolated atom is {energy.item()}"
    return _verdict("force on an isolated atom", float(forces.abs().max()), 0.0)


def check_coincident_atoms(network: nn.Module) -> None:
    """Two atoms in the same place are refused with a message, not answered with NaN."""
    positions = torch.zeros(2, 3, dtype=torch.float64)
    try:
        network = _prepared(network)
        energy, forces = _evaluate(network, make_batch(z=[6, 1], positions=positions, cutoff=float(network.cutoff)))  # type: ignore[arg-type]
    except InputError:
        return
    raise AssertionError(f"two atoms in one place gave energy {energy.tolist()} and forces {forces.tolist()}")


def check_state_dict(network: nn.Module, batch: AtomsBatch) -> float:
    """A copy with other weights that loads the state dict computes exactly the same."""
    network = _prepared(network)
    other = copy.deepcopy(network)
    with torch.no_grad():
        for tensor in (*other.parameters(), *other.buffers()):
            if tensor.is_floating_point() and any(
                tensor is saved for saved in other.state_dict(keep_vars=True).values()
            ):
                tensor.fill_(0.1)
    other.load_state_dict(network.state_dict())
    worst = _distance(_evaluate(network, batch), _evaluate(other, batch))
    return _verdict("state dict round trip", worst, 0.0)


def check_precision(network: nn.Module, batch: AtomsBatch, tolerance: float = 1e-3) -> float:
    """float32 gives float32, and the float64 result within ``tolerance`` of its scale."""
    double = _prepared(network)
    single = copy.deepcopy(double).float()
    precise, rough = _evaluate(double, batch), _evaluate(single, batch.to(dtype=torch.float32))
    assert {t.dtype for t in rough} == {torch.float32}, f"float32 in, {[t.dtype for t in rough]} out"
    return _verdict("float32 against float64", _distance(precise, rough), tolerance * _scale(*precise))


def _prepared(network: nn.Module) -> nn.Module:
    return copy.deepcopy(network).double().eval()


def _moved(batch: AtomsBatch, positions: Tensor, cell: Tensor | None = None) -> AtomsBatch:
    """The batch with other positions and, if given, another cell; its pair list made anew."""
    return make_batch(
        z=batch.z,
        positions=positions,
        system=batch.system,
        cell=batch.cell if cell is None else cell,
        pbc=batch.pbc,
        cutoff=batch.cutoff,
    )


def _evaluate(network: nn.Module, batch: AtomsBatch) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return energy_and_forces(network, batch)


def _energy(network: nn.Module, batch: AtomsBatch) -> Tensor:
    with torch.no_grad():
        return network(batch).sum()


def _slope(energy: Callable[[float], Tensor], step: float = 1e-4) -> Tensor:
    """dE/ds at 0 by the five-point rule, exact up to step⁴."""
    near, far = energy(step) - energy(-step), energy(2 * step) - energy(-2 * step)
    return (8 * near - far) / (12 * step)


def _rotation(seed: int = 0) -> Tensor:
    """A random orthogonal matrix (of determinant ±1), float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))[0]


def _same(
    network: nn.Module,
    batch: AtomsBatch,
    other: AtomsBatch,
    expected: Callable[[Tensor], Tensor],
    what: str,
    tolerance: float,
) -> float:
    network = _prepared(network)
    energy, forces = _evaluate(network, batch)
    worst = _distance((energy, expected(forces)), _evaluate(network, other))
    return _verdict(what, worst, tolerance * _scale(energy, forces))


def _distance(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> float:
    pairs = zip(ours, theirs, strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())


def _scale(*tensors: Tensor) -> float:
    """Largest magnitude, at least 0.01, so that a network near zero is not measured against rounding."""
    return max(0.01, *(float(t.abs().max()) for t in tensors if t.numel()))


def _verdict(what: str, error: float, allowed: float) -> float:
    assert error <= allowed, f"{what}: off by {error:.3g}, allowed {allowed:.3g}"
    return error
