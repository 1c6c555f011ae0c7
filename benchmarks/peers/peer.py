"""Training of another library's potential on rMD17 for some CPU minutes: the part that is the same for all of them.

A peer is a network with the loss, optimiser and batch size that its authors recommend; frames, clock and errors are
those of `dcnn train`. Batches are made of cached lists of edges, which is faster than the loaders of the libraries.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

CUTOFF = 5.0  # Å, of all three
KCAL_MOL = 0.0433641153087705  # eV


@dataclass
class Batch:
    z: Tensor  # (atoms,)
    positions: Tensor  # (atoms, 3), Å
    frame: Tensor  # (atoms,)
    edges: Tensor  # (2, edges), both directions
    energy: Tensor  # (frames,)
    forces: Tensor  # (atoms, 3)

    @property
    def atoms_a_frame(self) -> int:
        return len(self.z) // len(self.energy)


class Frames:
    """Frames of one molecule; energies without their mean, in `unit` (eV of one of them)."""

    def __init__(self, path: str, unit: float, mean: float | None = None) -> None:
        with np.load(path) as file:
            self.z = torch.tensor(file["nuclear_charges"].astype(np.int64))
            self.positions = torch.tensor(file["coords"], dtype=torch.float32)
            energies, forces = file["energies"] * KCAL_MOL / unit, file["forces"] * KCAL_MOL / unit
        self.mean = float(energies.mean()) if mean is None else mean
        self.energies = torch.tensor(energies - self.mean, dtype=torch.float32)
        self.forces = torch.tensor(forces, dtype=torch.float32)
        near = torch.cdist(self.positions, self.positions) < CUTOFF
        near &= ~torch.eye(len(self.z), dtype=torch.bool)
        self.edges = [matrix.nonzero().T for matrix in near]

    def __len__(self) -> int:
        return len(self.energies)

    def batch(self, indices: list[int]) -> Batch:
        atoms = len(self.z)
        return Batch(
            z=self.z.repeat(len(indices)),
            positions=self.positions[indices].reshape(-1, 3),
            frame=torch.arange(len(indices)).repeat_interleave(atoms),
            edges=torch.cat([self.edges[i] + n * atoms for n, i in enumerate(indices)], dim=1),
            energy=self.energies[indices],
            forces=self.forces[indices].reshape(-1, 3),
        )

    def batches(self, indices: list[int], size: int) -> Iterator[Batch]:
        for first in range(0, len(indices), size):
            yield self.batch(indices[first : first + size])

    @property
    def mean_neighbours(self) -> float:
        return sum(e.shape[1] for e in self.edges) / (len(self) * len(self.z))

    @property
    def force_rms(self) -> float:
        return float(self.forces.square().mean().sqrt())


@dataclass
class Peer:
    """What its authors recommend."""

    name: str
    network: nn.Module
    predict: Callable[[nn.Module, Batch], tuple[Tensor, Tensor]]  # energies and forces; called in training mode, too
    loss: Callable[[Tensor, Tensor, Batch], Tensor]  # of energies and forces
    optimizer: torch.optim.Optimizer
    batch_size: int
    ema: float
    plateau: dict[str, Any] = field(default_factory=dict)
    clip: float | None = None


def main(build: Callable[[Frames], Peer], unit: float) -> None:
    """Command line of a peer; `build` is given its training frames in its own unit of energy (eV of one)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", help="rmd17_MOLECULE_train_01.npz")
    parser.add_argument("test", help="rmd17_MOLECULE_test_01.npz")
    parser.add_argument("--minutes", type=float, default=10.0, help="CPU minutes of this process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--schedule",
        choices=["own", "cosine"],
        default="own",
        help="the peer's rate, lowered when validation stands still, or a cosine over the minutes, as `best` has it",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    frames = Frames(options.train, unit)
    order = torch.randperm(len(frames)).tolist()
    train, validation = order[:-50], order[-50:]
    peer = build(frames)
    began = time.process_time()
    steps = _train(peer, frames, train, validation, options, began)
    found = _errors(peer, peer.network, Frames(options.test, unit, frames.mean), None)
    factor = unit / KCAL_MOL
    result = {
        "peer": peer.name,
        "schedule": options.schedule,
        "seed": options.seed,
        "parameters": sum(p.numel() for p in peer.network.parameters() if p.requires_grad),
        "steps": steps,
        "cpu_minutes": round((time.process_time() - began) / 60, 2),
        "force_mae_kcal_mol_A": round(found[1] * factor, 4),
        "energy_mae_kcal_mol": round(found[0] * factor, 4),
    }
    print(json.dumps(result))


def _train(
    peer: Peer, frames: Frames, train: list[int], validation: list[int], options: argparse.Namespace, began: float
) -> int:
    """Leaves the averaged weights with the lowest validation loss in the network; returns the number of steps."""
    averaged = copy.deepcopy(peer.network)
    best, best_state = math.inf, copy.deepcopy(averaged.state_dict())
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(peer.optimizer, **peer.plateau)
    rates = [group["lr"] for group in peer.optimizer.param_groups]
    steps, budget = 0, 60 * options.minutes

    def spent() -> float:
        return min(1.0, (time.process_time() - began) / budget)

    while spent() < 1:
        peer.network.train()
        shuffled = [train[i] for i in torch.randperm(len(train)).tolist()]
        for batch in frames.batches(shuffled, peer.batch_size):
            if options.schedule == "cosine":
                for group, rate in zip(peer.optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * spent()))
            peer.optimizer.zero_grad(set_to_none=True)
            peer.loss(*peer.predict(peer.network, batch), batch).backward()
            if peer.clip is not None:
                nn.utils.clip_grad_norm_(peer.network.parameters(), peer.clip)
            peer.optimizer.step()
            steps += 1
            with torch.no_grad():
                decay = min(peer.ema, (1 + steps) / (10 + steps))
                for mean, weight in zip(averaged.parameters(), peer.network.parameters(), strict=True):
                    mean.lerp_(weight, 1 - decay)
            if spent() >= 1:
                break
        energy, force, loss = _errors(peer, averaged, frames, validation)
        if options.schedule == "own":
            plateau.step(loss)
        if loss < best:
            best, best_state = loss, copy.deepcopy(averaged.state_dict())
        print(
            f"{60 * options.minutes * spent():.0f} s, step {steps}, validation {force:.4f} / {energy:.4f}", flush=True
        )
    peer.network.load_state_dict(best_state)
    return steps


def _errors(peer: Peer, network: nn.Module, frames: Frames, indices: list[int] | None) -> tuple[float, float, float]:
    """Mean absolute errors of energies and forces, and the loss, over frames."""
    network.eval()
    sums, count = torch.zeros(3), 0
    for batch in frames.batches(list(range(len(frames))) if indices is None else indices, 10):
        energy, forces = (t.detach() for t in peer.predict(network, batch))
        found = (
            (energy - batch.energy).abs().mean(),
            (forces - batch.forces).abs().mean(),
            peer.loss(energy, forces, batch),
        )
        sums, count = sums + len(batch.energy) * torch.stack(found), count + len(batch.energy)
    energy_error, force_error, loss = (sums / count).tolist()
    return energy_error, force_error, loss


def weights_only_off() -> None:
    """e3nn before 0.5 reads a file of its own that torch's safe loading refuses; to be called before it is imported."""
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"
