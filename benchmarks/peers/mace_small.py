"""A small MACE (32x0e + 32x1o, two layers, correlation 3) with the defaults of mace_run_train and `--ema`.

python benchmarks/peers/mace_small.py $D/rmd17_ethanol_train_01.npz $D/rmd17_ethanol_test_01.npz
"""

from __future__ import annotations

import numpy as np
import torch
from peer import CUTOFF, Batch, Frames, Peer, main, weights_only_off
from torch import Tensor, nn

weights_only_off()

from e3nn import o3  # noqa: E402
from mace import modules  # noqa: E402


def build(frames: Frames) -> Peer:
    elements = sorted(set(frames.z.tolist()))
    block = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
    network = modules.ScaleShiftMACE(
        r_max=CUTOFF,
        num_bessel=8,
        num_polynomial_cutoff=5,
        max_ell=3,
        interaction_cls=block,
        interaction_cls_first=block,
        num_interactions=2,
        num_elements=len(elements),
        hidden_irreps=o3.Irreps("32x0e + 32x1o"),
        MLP_irreps=o3.Irreps("16x0e"),
        atomic_energies=np.zeros(len(elements)),  # the mean is removed from the labels
        avg_num_neighbors=frames.mean_neighbours,
        atomic_numbers=elements,
        correlation=3,
        gate=nn.functional.silu,
        radial_MLP=[64, 64, 64],
        atomic_inter_scale=frames.force_rms,
        atomic_inter_shift=0.0,
    )
    attributes = torch.zeros(max(elements) + 1, len(elements))  # one-hot rows of atomic numbers
    attributes[elements] = torch.eye(len(elements))

    def predict(network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        found = network(
            {
                "positions": batch.positions.clone(),
                "node_attrs": attributes[batch.z],
                "edge_index": batch.edges,
                "shifts": torch.zeros(batch.edges.shape[1], 3),
                "unit_shifts": torch.zeros(batch.edges.shape[1], 3),
                "cell": torch.zeros(3 * len(batch.energy), 3),
                "batch": batch.frame,
                "ptr": torch.arange(len(batch.energy) + 1) * batch.atoms_a_frame,
            },
            training=network.training,
        )
        return found["energy"], found["forces"]

    return Peer(
        "MACE, 32x0e + 32x1o",
        network,
        predict,
        loss,
        torch.optim.Adam(network.parameters(), lr=1e-2, weight_decay=5e-7, amsgrad=True),
        batch_size=10,
        ema=0.99,
        plateau={"factor": 0.8, "patience": 50},
        clip=10.0,
    )


def loss(energy: Tensor, forces: Tensor, batch: Batch) -> Tensor:
    """WeightedEnergyForcesLoss: energies per atom, forces a hundred times."""
    energy_error = (energy - batch.energy) / batch.atoms_a_frame
    return energy_error.square().mean() + 100 * (forces - batch.forces).square().mean()


if __name__ == "__main__":
    main(build, unit=1.0)
