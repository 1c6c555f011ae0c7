"""PaiNN of schnetpack by its configuration `experiment=rmd17 model/representation=painn`.

python benchmarks/peers/schnetpack_painn.py $D/rmd17_ethanol_train_01.npz $D/rmd17_ethanol_test_01.npz
"""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.utils.data.dataloader as loader
from peer import CUTOFF, KCAL_MOL, Batch, Frames, Peer, main
from torch import Tensor, nn

loader.T_co = TypeVar("T_co", covariant=True)  # schnetpack 2.1 imports it from there, where newer torch has it no more

import schnetpack as spk  # noqa: E402


def build(frames: Frames) -> Peer:
    basis, cutoff = spk.nn.GaussianRBF(20, CUTOFF), spk.nn.CosineCutoff(CUTOFF)
    network = spk.model.NeuralNetworkPotential(
        representation=spk.representation.PaiNN(128, 3, basis, cutoff),
        input_modules=[spk.atomistic.PairwiseDistances()],
        output_modules=[spk.atomistic.Atomwise(128, output_key="energy"), spk.atomistic.Forces()],
    )
    return Peer(
        "schnetpack PaiNN",
        network,
        predict,
        loss,
        torch.optim.Adam(network.parameters(), lr=1e-3),
        batch_size=10,
        ema=0.995,
        plateau={"factor": 0.5, "patience": 75, "threshold": 0.0, "cooldown": 10},
    )


def predict(network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    i, j = batch.edges
    found = network(
        {
            spk.properties.Z: batch.z,
            spk.properties.R: batch.positions,
            spk.properties.idx_m: batch.frame,
            spk.properties.idx_i: i,
            spk.properties.idx_j: j,
            spk.properties.offsets: torch.zeros(len(i), 3),
            spk.properties.n_atoms: torch.full((len(batch.energy),), batch.atoms_a_frame),
        }
    )
    return found["energy"], found["forces"]


def loss(energy: Tensor, forces: Tensor, batch: Batch) -> Tensor:
    return 0.01 * (energy - batch.energy).square().mean() + 0.99 * (forces - batch.forces).square().mean()


if __name__ == "__main__":
    main(build, unit=KCAL_MOL)
