"""NequIP's preset S with the loss, rate and averaging of its tutorial.

python benchmarks/peers/nequip_small.py $D/rmd17_ethanol_train_01.npz $D/rmd17_ethanol_test_01.npz
"""

from __future__ import annotations

import torch
from nequip.model import PresetNequIPGNNModel
from nequip.utils.global_state import set_global_state
from peer import CUTOFF, Batch, Frames, Peer, main
from torch import Tensor, nn

SYMBOLS = {1: "H", 6: "C", 7: "N", 8: "O"}


def build(frames: Frames) -> Peer:
    elements = sorted(set(frames.z.tolist()))
    set_global_state()
    network = PresetNequIPGNNModel(
        preset="S",
        seed=torch.initial_seed() % 2**31,
        model_dtype="float32",
        type_names=[SYMBOLS[z] for z in elements],
        r_max=CUTOFF,
        avg_num_neighbors=frames.mean_neighbours,
        per_type_energy_shifts=0.0,  # the mean is removed from the labels
        per_type_energy_scales=frames.force_rms,
    )
    types = torch.full((max(elements) + 1,), -1)
    types[elements] = torch.arange(len(elements))

    def predict(network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        found = network(
            {
                "pos": batch.positions.clone(),
                "atom_types": types[batch.z],
                "edge_index": batch.edges,
                "batch": batch.frame,
                "num_atoms": torch.full((len(batch.energy),), batch.atoms_a_frame),
            }
        )
        return found["total_energy"].squeeze(-1), found["forces"]

    return Peer(
        "NequIP, preset S",
        network,
        predict,
        loss,
        torch.optim.Adam(network.parameters(), lr=1e-2),
        batch_size=5,
        ema=0.999,
        plateau={"factor": 0.6, "patience": 5, "threshold": 0.2, "min_lr": 1e-6},
    )


def loss(energy: Tensor, forces: Tensor, batch: Batch) -> Tensor:
    """EnergyForceLoss: energies per atom and forces, both with weight one."""
    energy_error = (energy - batch.energy) / batch.atoms_a_frame
    return energy_error.square().mean() + (forces - batch.forces).square().mean()


if __name__ == "__main__":
    main(build, unit=1.0)
