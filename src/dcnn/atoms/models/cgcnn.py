"""CGCNN (Xie & Grossman 2018): gated convolutions over a crystal graph, as in the Open Catalyst Project."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from dcnn.activations import get
from dcnn.atoms.bases import Gaussians, cosine_cutoff, require_cutoff, sharp_cutoff, sum_by
from dcnn.atoms.elements import khot_table
from dcnn.atoms.published import Entry, count, entry, linear
from dcnn.atoms.structures import AtomsBatch
from dcnn.errors import unknown

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "features": 512,
        "convolutions": 3,
        "head_features": 128,
        "head_layers": 3,
        "gaussians": 100,
        "normalization": True,
        "readout": "mean",
    },
    "small": {
        "features": 96,
        "convolutions": 3,
        "head_features": 96,
        "head_layers": 2,
        "gaussians": 50,
        "normalization": False,
        "readout": "sum",
    },
}

ALIASES = {
    "atom_embedding_size": "features",
    "atom_embedding": "features",
    "num_graph_conv_layers": "convolutions",
    "conv_layers": "convolutions",
    "fc_feat_size": "head_features",
    "fc": "head_features",
    "num_fc_layers": "head_layers",
    "fc_layers": "head_layers",
    "num_gaussians": "gaussians",
    "bond_feat_dim": "gaussians",
    "bond_features": "gaussians",
}


class Convolution(nn.Module):
    """softplus(x_i + LN(Σ_j sigmoid(z¹_ij) ∘ softplus(z²_ij) c_ij)), (z¹, z²)_ij = BN(A x_i + B x_j + e_ij).

    A and B act on atoms before they are gathered to edges; e_ij arrives ready, once per pair.
    """

    def __init__(self, features: int, batch_norm: bool, layer_norm: bool) -> None:
        super().__init__()
        self.atoms = nn.Linear(features, 4 * features, bias=False)  # A and B on top of each other
        self.batch_norm = nn.BatchNorm1d(2 * features) if batch_norm else nn.Identity()
        self.gate, self.core = get("sigmoid"), get("softplus")
        self.layer_norm = nn.LayerNorm(features) if layer_norm else nn.Identity()
        self.activation = get("softplus")

    def forward(self, x: Tensor, edge: Tensor, envelope: Tensor, batch: AtomsBatch) -> Tensor:
        own, other = self.atoms(x).chunk(2, dim=-1)  # (N, 2F) each
        z = own.index_select(0, batch.edge_center) + other.index_select(0, batch.edge_neighbour)  # (2P, 2F)
        z = (z.view(2, *edge.shape) + edge).view_as(z)  # both directions of a pair share e_ij
        gate, core = self.batch_norm(z).chunk(2, dim=-1)  # (2P, F) each
        messages = self.gate(gate) * self.core(core) * envelope
        received = sum_by(batch.edge_center, messages, x.shape[0])  # (N, F)
        return self.activation(self.layer_norm(received) + x)


class CGCNN(nn.Module):
    """CGCNN: gated messages of atoms and distances.

    1. x_i = A k(Z_i) + a, with k the 92 k-hot features of the element
    2. e_ij = C g(r_ij) + c: the share of the pair in the messages of every convolution, gaussians g
    3. x_i ← softplus(x_i + LN(Σ_j sigmoid(z¹_ij) ∘ softplus(z²_ij) c(r_ij))), for every convolution, with
       (z¹, z²)_ij = BN(A x_i + B x_j + e_ij)
    4. readout "mean": E = head(mean_i x_i), as published; "sum": E = Σ_i head(x_i), extensive

    ``activation`` replaces the softplus of the head (3 places in the published size), as the paper does;
    the gates stay. ``normalization=False`` removes BN and LN, ``layer_norm=True`` keeps LN, which does not couple
    the systems of a batch. With ``fidelity="scripts"`` only BN is removed, and there is no envelope c(r), so the
    energy jumps at the cutoff.
    """

    elements: Tensor

    def __init__(
        self,
        features: int = 96,
        convolutions: int = 3,
        head_features: int = 96,
        head_layers: int = 2,
        gaussians: int = 50,
        cutoff: float = 6.0,
        readout: str = "mean",
        normalization: bool = True,
        layer_norm: bool | None = None,
        activation: str | nn.Module | None = None,
        fidelity: str = "text",
    ) -> None:
        super().__init__()
        if readout not in ("mean", "sum"):
            raise unknown("readout", readout, ("mean", "sum"))
        self.cutoff, self.readout = float(cutoff), readout
        self.envelope = sharp_cutoff if fidelity == "scripts" else cosine_cutoff
        self.register_buffer("elements", khot_table().to(torch.get_default_dtype()))  # (100, 92)
        self.embedding = nn.Linear(self.elements.shape[1], features)
        self.basis = Gaussians(0.0, self.cutoff, gaussians)
        self.pairs = nn.Linear(gaussians, convolutions * 2 * features)
        if layer_norm is None:
            layer_norm = normalization or fidelity == "scripts"
        self.convolutions = nn.ModuleList(Convolution(features, normalization, layer_norm) for _ in range(convolutions))
        self.head = nn.Sequential()
        for width in (features, *[head_features] * (head_layers - 1)):
            self.head.extend([nn.Linear(width, head_features), get(activation or "softplus")])
        self.head.append(nn.Linear(head_features, 1))
        bound = math.sqrt(6.0 / (4 * features + gaussians))  # Glorot of the undivided [A B C]
        for layer in (self.pairs, *(block.atoms for block in cast("Iterable[Convolution]", self.convolutions))):
            nn.init.uniform_(layer.weight, -bound, bound)
        nn.init.zeros_(self.pairs.bias)

    def forward(self, batch: AtomsBatch) -> Tensor:
        """Energies (B,) of the systems in the batch."""
        require_cutoff(batch, self.cutoff)
        x = self.embedding(self.elements).index_select(0, batch.z - 1)  # 1. (N, F)
        distance = batch.pair_vectors().square().sum(-1).sqrt()  # (P,)
        edges = self.pairs(self.basis(distance)).chunk(len(self.convolutions), dim=-1)  # 2. (P, 2F) each
        envelope = self.envelope(distance, self.cutoff).repeat(2).unsqueeze(-1)  # (2P, 1)
        for convolution, edge in zip(self.convolutions, edges, strict=True):  # 3.
            x = convolution(x, edge, envelope, batch)
        if self.readout == "sum":  # 4.
            return sum_by(batch.system, self.head(x).squeeze(-1), batch.n_systems)
        count = sum_by(batch.system, torch.ones_like(x[:, :1]), batch.n_systems)  # (B, 1)
        return self.head(sum_by(batch.system, x, batch.n_systems) / count).squeeze(-1)


def sizes(arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """Constructor arguments that published arrays tell by their shapes."""
    found: dict[str, Any] = {
        "convolutions": count(arrays, "convs.{}.lin1.weight"),
        "head_layers": 1 + sum(name.startswith("fcs.") and name.endswith(".weight") for name in arrays),
    }
    if "conv_to_fc.0.weight" in arrays:
        found["head_features"], found["features"] = arrays["conv_to_fc.0.weight"].shape
    if found["convolutions"]:
        wide, columns = arrays["convs.0.lin1.weight"].shape
        found["gaussians"] = columns - wide
    if "distance_expansion.offset" in arrays:
        found["cutoff"] = float(arrays["distance_expansion.offset"][-1])
    return found


def published(network: CGCNN) -> list[Entry]:
    """Our tensors under their published names (Open Catalyst Project's CGCNN)."""
    entries = [
        entry(("khot_embedding", "embedding"), network.elements, optional=True),
        entry("distance_expansion.offset", network.basis.centers, optional=True),
        *linear("embedding_fc", network.embedding),
    ]
    shares = zip(
        cast("Iterable[Convolution]", network.convolutions),
        network.pairs.weight.chunk(len(network.convolutions)),
        network.pairs.bias.chunk(len(network.convolutions)),
        strict=True,
    )
    for b, (block, weight, bias) in enumerate(shares):
        entries += [
            entry(f"convs.{b}.lin1.weight", *block.atoms.weight.chunk(2), weight),
            entry(f"convs.{b}.lin1.bias", bias),
            *linear(f"convs.{b}.bn1", block.batch_norm),
            *linear(f"convs.{b}.ln1", block.layer_norm),
        ]
    first, *rest, last = (layer for layer in network.head if isinstance(layer, nn.Linear))
    entries += linear("conv_to_fc.0", first)
    for number, layer in enumerate(rest):
        entries += linear(f"fcs.{2 * number}", layer)
    return [*entries, *linear("fc_out", last)]
