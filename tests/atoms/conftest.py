"""A network with a closed form: Lennard-Jones with ASE's smooth cutoff, so that ASE itself is the reference."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ase.build import bulk
from ase.calculators.lj import LennardJones
from torch import nn

from dcnn.atoms import Potential
from dcnn.atoms.atoms_batch import sum_by

SIGMA, EPSILON, R_C, R_O = 3.4, 0.0104, 8.0, 6.0  # Å, eV, Å, Å


class Argon(nn.Module):
    """Σ_pairs 4ε((σ/r)¹² − (σ/r)⁶)·f(r), f falling smoothly from 1 at r_o to 0 at r_c."""

    cutoff = R_C

    def forward(self, batch):
        r2 = batch.pair_vectors().square().sum(1)
        c6 = (SIGMA**2 / r2) ** 3
        smooth = (R_C**2 - r2) ** 2 * (R_C**2 + 2 * r2 - 3 * R_O**2) / (R_C**2 - R_O**2) ** 3
        smooth = smooth.where(r2 > R_O**2, 1.0).where(r2 < R_C**2, 0.0)
        pairs = 4 * EPSILON * (c6 * c6 - c6) * smooth
        return sum_by(batch.system.index_select(0, batch.pair_i), pairs, batch.n_systems)


def crystal(seed=0, amplitude=0.15):
    """Eight displaced argon atoms in a sheared periodic box that is smaller than the cutoff."""
    atoms = bulk("Ar", "fcc", a=5.3, cubic=True) * (2, 1, 1)
    shear = np.array([[1.0, 0.05, 0.0], [0.0, 1.0, -0.03], [0.02, 0.0, 1.0]])
    atoms.set_cell(0.98 * atoms.cell.array @ shear, scale_atoms=True)
    atoms.positions += amplitude * np.random.default_rng(seed).standard_normal(atoms.positions.shape)
    return atoms


@pytest.fixture
def argon():
    """`potential()`, ASE's `reference()` calculator of the same function, a displaced `crystal(seed)`, `sigma`."""

    def reference():
        return LennardJones(sigma=SIGMA, epsilon=EPSILON, rc=R_C, ro=R_O, smooth=True)

    def potential(**options):
        return Potential(Argon(), elements=[18], **options)

    return SimpleNamespace(potential=potential, reference=reference, crystal=crystal, sigma=SIGMA)


@pytest.fixture
def traced_only(monkeypatch):
    """Compiling takes a while: what is traced stands for it."""
    made = []

    def stand_in(graph, inputs, constants, any_size, is_right):
        made.append(graph)
        ready = torch.no_grad()(graph)
        assert is_right(ready)
        return ready

    monkeypatch.setattr("dcnn.atoms.repeated.compiled", stand_in)
    return made
