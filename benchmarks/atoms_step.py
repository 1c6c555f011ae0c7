"""Milliseconds per training step (energies, forces, gradient of a loss on both), ours against others.

    python benchmarks/atoms_step.py [--molecules 5 10] [--repeats 40] [--json]

Peers: `plain`, the same network and weights written down as published, on directed edges, with gaussians, filters
and Linear(cat[x_i, x_j, e_ij]) evaluated for both directions and torch's own activations; and PyTorch Geometric's
SchNet of the same size on the same edges. Structures are displaced ethanol molecules; one thread; the two sides take
turns and the medians are compared. `plain` is checked to give the same forces first.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dcnn import testing
from dcnn.atoms import AtomsBatch, batch, build, energy_and_forces
from dcnn.atoms.atoms_batch import sum_by
from dcnn.atoms.models import weights_of

Weights = dict[str, Tensor]


def ethanol(molecules: int) -> AtomsBatch:
    """Displaced ethanol molecules, float32."""
    frames = [testing.molecules(seed=seed) for seed in range(molecules)]
    first = frames[0].system == 0
    positions = torch.cat([frame.positions[first] for frame in frames]).float()
    system = torch.arange(molecules).repeat_interleave(int(first.sum()))
    return batch(z=frames[0].z[first].repeat(molecules), positions=positions, system=system)


def edges(batch: AtomsBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Centre, neighbour, vector and length of every directed edge."""
    i, j = batch.edge_center, batch.edge_neighbour
    vectors = batch.positions[j] - batch.positions[i]
    return i, j, vectors, vectors.norm(dim=-1)


def smear(x: Tensor, centers: Tensor) -> Tensor:
    """Gaussians as usually written."""
    return torch.exp(-0.5 / (centers[1] - centers[0]) ** 2 * (x - centers) ** 2)


def plain_schnet(w: Weights, network: nn.Module, batch: AtomsBatch) -> Tensor:
    """SchNet on directed edges."""
    i, j, _, r = edges(batch)
    g = smear(r.unsqueeze(-1), w["distance_expansion.offset"])
    envelope = 0.5 * (torch.cos(r * math.pi / network.cutoff) + 1).unsqueeze(-1)

    def sigma(x: Tensor) -> Tensor:
        return F.softplus(x) - math.log(2)

    x = w["embedding.weight"][batch.z]
    for b in range(len(network.blocks)):
        n = f"interactions.{b}"
        hidden = sigma(F.linear(g, w[f"{n}.mlp.0.weight"], w[f"{n}.mlp.0.bias"]))
        filters = F.linear(hidden, w[f"{n}.mlp.2.weight"], w[f"{n}.mlp.2.bias"]) * envelope
        received = sum_by(i, F.linear(x, w[f"{n}.conv.lin1.weight"])[j] * filters, len(x))
        y = sigma(F.linear(received, w[f"{n}.conv.lin2.weight"], w[f"{n}.conv.lin2.bias"]))
        x = x + F.linear(y, w[f"{n}.lin.weight"], w[f"{n}.lin.bias"])
    x = F.linear(sigma(F.linear(x, w["lin1.weight"], w["lin1.bias"])), w["lin2.weight"], w["lin2.bias"])
    return sum_by(batch.system, x.squeeze(-1), batch.n_systems)


def plain_cgcnn(w: Weights, network: nn.Module, batch: AtomsBatch) -> Tensor:
    """CGCNN on directed edges, smooth at the cutoff, summed over atoms."""
    i, j, _, r = edges(batch)
    g = smear(r.unsqueeze(-1), w["distance_expansion.offset"])
    envelope = 0.5 * (torch.cos(r * math.pi / network.cutoff) + 1).unsqueeze(-1)
    x = F.linear(w["khot_embedding"][batch.z - 1], w["embedding_fc.weight"], w["embedding_fc.bias"])
    for b in range(len(network.convolutions)):
        z = F.linear(torch.cat([x[i], x[j], g], dim=1), w[f"convs.{b}.lin1.weight"], w[f"convs.{b}.lin1.bias"])
        gate, core = z.chunk(2, dim=1)
        x = F.softplus(x + sum_by(i, torch.sigmoid(gate) * F.softplus(core) * envelope, len(x)))
    x = F.softplus(F.linear(x, w["conv_to_fc.0.weight"], w["conv_to_fc.0.bias"]))
    for layer in range(sum(name.startswith("fcs.") for name in w) // 2):
        x = F.softplus(F.linear(x, w[f"fcs.{2 * layer}.weight"], w[f"fcs.{2 * layer}.bias"]))
    x = F.linear(x, w["fc_out.weight"], w["fc_out.bias"])
    return sum_by(batch.system, x.squeeze(-1), batch.n_systems)


def plain_forcenet(w: Weights, network: nn.Module, batch: AtomsBatch) -> Tensor:
    """ForceNet on directed edges, smooth at the cutoff, without normalization."""
    i, j, vectors, r = edges(batch)
    centers, repeats = w["basis_fun.smearing.offset"], network.edge_basis.gaussians
    near, own = w["atom_radii"][batch.z[j]], w["atom_radii"][batch.z[i]]
    shifted = torch.stack([r, r - near, r - own, r - near - own], dim=1) / network.cutoff
    raw = torch.cat([0.5 * (vectors / r.unsqueeze(-1) + 1), shifted], dim=1)
    width = -0.5 * (repeats - 1) ** 2
    g = torch.exp(width * (raw.repeat(1, repeats) - centers) ** 2)
    elements = w["atom_map"][batch.z].repeat(1, repeats) - w["embedding.0.smearing.offset"]
    x = F.linear(torch.exp(width * elements**2), w["embedding.1.weight"], w["embedding.1.bias"])
    envelope = 0.5 * (torch.cos(r * math.pi / network.cutoff) + 1).unsqueeze(-1)
    for b in range(len(network.blocks)):
        n = f"interactions.{b}"
        e = torch.cat([F.linear(g, w[f"{n}.lin_basis.weight"], w[f"{n}.lin_basis.bias"]), x[j], x[i]], dim=1)
        e = F.silu(F.linear(e, w[f"{n}.mlp_edge.0.weight"], w[f"{n}.mlp_edge.0.bias"]))
        e = F.silu(F.linear(e, w[f"{n}.mlp_edge.2.weight"], w[f"{n}.mlp_edge.2.bias"]))
        e = F.linear(e, w[f"{n}.mlp_edge.4.weight"], w[f"{n}.mlp_edge.4.bias"]) * envelope
        value = F.linear(x, w[f"{n}.lin.weight"], w[f"{n}.lin.bias"])
        y = sum_by(i, value[j] * e, len(x)) + w[f"{n}.center_W"] * value
        y = F.silu(F.linear(y, w[f"{n}.mlp_trans.0.weight"], w[f"{n}.mlp_trans.0.bias"]))
        x = x + F.linear(y, w[f"{n}.mlp_trans.2.weight"], w[f"{n}.mlp_trans.2.bias"])
    x = sum_by(batch.system, F.silu(F.linear(x, w["lin.weight"], w["lin.bias"])), batch.n_systems)
    return F.linear(x, w["energy_mlp.weight"], w["energy_mlp.bias"]).squeeze(-1)


class Plain(nn.Module):
    """A network of ours evaluated by one of the functions above, with its own copy of the weights."""

    def __init__(self, name: str, network: nn.Module, formula: Callable[..., Tensor]) -> None:
        super().__init__()
        self.formula = formula
        self.shape = [network]  # in a list: its parameters are not trained here
        self.names: dict[str, str] = {}
        for item in weights_of(name).published(network):
            key = item.names[0].replace(".", "_")
            trained = any(part.requires_grad for part in item.parts)
            self.register_parameter(key, nn.Parameter(item.value().detach().clone(), requires_grad=trained))
            self.names[item.names[0]] = key

    def forward(self, batch: AtomsBatch) -> Tensor:
        return self.formula({name: getattr(self, key) for name, key in self.names.items()}, self.shape[0], batch)


class Geometric(nn.Module):
    """PyTorch Geometric's SchNet of our small size, on edges that are given to it."""

    def __init__(self) -> None:
        super().__init__()
        from torch_geometric.nn import SchNet

        self.edges: Tensor
        self.network = SchNet(128, 128, 3, 50, cutoff=6.0, interaction_graph=self.graph)

    def graph(self, positions: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        return self.edges, (positions[self.edges[0]] - positions[self.edges[1]]).norm(dim=-1)

    def forward(self, batch: AtomsBatch) -> Tensor:
        self.edges = torch.stack([batch.edge_neighbour, batch.edge_center])
        return self.network(batch.z, batch.positions, batch.system).squeeze(-1)


def step(network: nn.Module, batch: AtomsBatch) -> None:
    """Energies, forces and the gradient of a squared loss on both."""
    energy, forces = energy_and_forces(network, batch)
    loss = energy.square().mean() + forces.square().mean()
    torch.autograd.grad(loss, [p for p in network.parameters() if p.requires_grad], allow_unused=True)


def milliseconds(networks: list[nn.Module], batch: AtomsBatch, repeats: int) -> list[float]:
    """Median time of a step of each network; they take turns, so that a busy machine hits all alike."""
    times: list[list[float]] = [[] for _ in networks]
    for round_ in range(repeats + 3):
        for network, found in zip(networks, times, strict=True):
            start = time.perf_counter()
            step(network, batch)
            if round_ >= 3:
                found.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(found) for found in times]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    formulas = {"schnet": plain_schnet, "cgcnn": plain_cgcnn, "forcenet": plain_forcenet}
    results = []
    for molecules in options.molecules:
        structures = ethanol(molecules)
        for name, formula in formulas.items():
            network = build(name)
            peers: dict[str, nn.Module] = {"plain": Plain(name, network, formula)}
            ours, theirs = (energy_and_forces(n, structures)[1] for n in (network, peers["plain"]))
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * float(ours.detach().abs().max()))
            if name == "schnet":
                peers["PyTorch Geometric"] = Geometric()
            mine, *others = milliseconds([network, *peers.values()], structures, options.repeats)
            for peer, value in zip(peers, others, strict=True):
                results.append(
                    {
                        "name": f"{name}, {molecules} ethanol",
                        "ours_ms": round(mine, 2),
                        "peer_ms": round(value, 2),
                        "peer": peer,
                        "ratio": round(value / mine, 2),
                    }
                )
    if options.json:
        print(json.dumps({"results": results}))
        return
    print(f"{'network':24}{'ours ms':>9}{'peer ms':>9}{'ratio':>7}  peer")
    for row in results:
        print(f"{row['name']:24}{row['ours_ms']:9.2f}{row['peer_ms']:9.2f}{row['ratio']:7.2f}  {row['peer']}")


if __name__ == "__main__":
    main()
