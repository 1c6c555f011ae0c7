"""Many copies of one molecule moved at once: what a single molecule wastes is shared by all of them."""

# ruff: noqa: N815  units are written as they are: K, eV, meV
from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from ase import units

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.batching import collate
from dcnn.atoms.dynamics import draw_velocities
from dcnn.atoms.neighbours import half_pairs
from dcnn.atoms.potential import Potential, Prediction
from dcnn.atoms.skin import all_pairs_radius
from dcnn.atoms.structures import Structure
from dcnn.atoms.trained_range import OutsideRangeError
from dcnn.errors import InputError, unknown

ENSEMBLES = ("nve", "nvt")


@dataclass(frozen=True)
class ReplicaRun:
    """R replicas after a run. ``frames`` are where they ended, with energy, forces and momenta (``info``)."""

    frames: list[Structure]
    steps: int
    temperature_K: float
    drift_meV_atom_ps: float | None  # root mean square over the replicas
    replica_steps_per_second: float


def simulate_replicas(
    potential: Potential,
    atoms: Any,
    replicas: int,
    steps: int,
    *,
    ensemble: str = "nve",
    temperature: float = 300.0,
    timestep: float = 0.5,
    friction: float = 0.01,
    seed: int = 0,
    check_every: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> ReplicaRun:
    """Moves ``replicas`` copies of ``atoms`` by ``steps`` of ``timestep`` fs, each with velocities of its own.

    ensemble: "nve" (velocity Verlet) or "nvt" (Langevin in the BAOAB splitting, ``friction`` in 1/fs). Every
    ``check_every`` steps all replicas are compared with the range trained on; one that has left it ends the run with an
    :class:`OutsideRangeError` (0: they are not).
    """
    if ensemble not in ENSEMBLES:
        raise unknown("ensemble of replicas", ensemble, ENSEMBLES)
    if replicas < 1 or steps < 1 or timestep <= 0 or temperature <= 0:
        raise InputError("replicas, steps, timestep and temperature must be positive")
    if atoms.constraints:
        raise InputError("replicas move freely: remove the constraints, or use simulate")
    potential.require_elements(atoms.numbers)
    random, batches = np.random.default_rng(seed), _Batches(potential, atoms, replicas)
    masses = torch.from_numpy(np.tile(atoms.get_masses(), replicas)).unsqueeze(1)  # (R·N, 1)
    velocities = []
    for _ in range(replicas):
        own = atoms.copy()
        draw_velocities(own, temperature, random)
        velocities.append(own.get_velocities())
    x, v = batches.positions.clone(), torch.from_numpy(np.concatenate(velocities))
    step, keep = timestep * units.fs, np.exp(-friction * timestep) if ensemble == "nvt" else 1.0
    kick = torch.sqrt((1 - keep**2) * units.kB * temperature / masses)
    totals, temperatures = [], []
    found = batches(x)
    began = time.perf_counter()
    for number in range(1, steps + 1):
        v = v + 0.5 * step * found.forces / masses
        x = x + 0.5 * step * v
        if ensemble == "nvt":
            v = keep * v + kick * torch.from_numpy(random.standard_normal(v.shape))
        x = x + 0.5 * step * v
        found = batches(x)
        v = v + 0.5 * step * found.forces / masses
        kinetic = 0.5 * (masses * v.square()).view(replicas, -1).sum(1)  # (R,)
        totals.append(found.energy + kinetic)
        temperatures.append(float(kinetic.mean()) * 2 / (3 * len(atoms) * units.kB))
        if check_every and number % check_every == 0:
            batches.check(x, found, number)
        if progress is not None:
            progress(number, steps)
    seconds = time.perf_counter() - began
    drift = None
    if ensemble == "nve" and steps > 1:
        slopes = np.polyfit(np.arange(steps) * timestep * 1e-3, torch.stack(totals).numpy(), 1)[0]  # (R,) eV/ps
        drift = 1e3 / len(atoms) * float(np.sqrt(np.mean(slopes**2)))
    frames = batches.frames(x, found, (masses * v).view(replicas, -1, 3).numpy())
    return ReplicaRun(frames, steps, float(np.mean(temperatures)), drift, replicas * steps / seconds)


class _Batches:
    """The replicas as one batch; of a small molecule the pairs are listed once, otherwise at every step."""

    def __init__(self, potential: Potential, atoms: Any, replicas: int) -> None:
        cell = atoms.cell.array.copy() if atoms.pbc.any() else None
        self.potential, self.count = potential, replicas
        self.structure = Structure(atoms.numbers, atoms.positions.copy(), cell, atoms.pbc)
        self.radius = potential.cutoff if cell is not None else all_pairs_radius(potential.network, self.structure)
        self.listed_once = self.radius > potential.cutoff
        self.stress = bool(np.all(atoms.pbc))
        self.positions = torch.from_numpy(np.tile(atoms.positions, (replicas, 1)))  # (R·N, 3)
        self.batch = self._collated(self.positions)

    def _collated(self, x: torch.Tensor) -> AtomsBatch:
        structures = self._structures(x)
        one = self.structure
        pairs = (
            [half_pairs(one.positions, self.radius)] * self.count
            if self.listed_once
            else [half_pairs(s.positions, self.radius, s.cell, s.pbc) for s in structures]
        )
        return collate(structures, pairs, self.potential.dtype)

    def _structures(self, x: torch.Tensor) -> list[Structure]:
        parts = x.view(self.count, -1, 3).numpy()
        return [replace(self.structure, positions=part) for part in parts]

    def __call__(self, x: torch.Tensor) -> Prediction:
        if self.listed_once:
            return self.potential(replace(self.batch, positions=x.to(self.potential.dtype)))
        return self.potential(self._collated(x))

    def frames(self, x: torch.Tensor, found: Prediction, momenta: np.ndarray | None = None) -> list[Structure]:
        forces = found.forces.view(self.count, -1, 3).numpy()
        return [
            replace(s, energy=e, forces=f, info={} if momenta is None else {"momenta": momenta[n]})
            for n, (s, e, f) in enumerate(zip(self._structures(x), found.energy.tolist(), forces, strict=True))
        ]

    def check(self, x: torch.Tensor, found: Prediction, step: int) -> None:
        for number, frame in enumerate(self.frames(x, found)):
            if words := self.potential.outside(frame, frame.energy, frame.forces):
                error = OutsideRangeError(
                    f"step {step}, replica {number}: outside of what the potential was trained on: {'; '.join(words)}"
                )
                error.atoms = frame.to_ase()
                raise error
