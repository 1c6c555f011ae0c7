"""CGCNN (Xie & Grossman 2018): gated convolutions over a crystal graph, as in the Open Catalyst Project."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from dcnn.activations import get
from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.bases import Gaussians, cosine_cutoff, require_cutoff, rows_of, sharp_cutoff
from dcnn.atoms.elements import khot_table
from dcnn.errors import unknown


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
        received = batch.sum_edges(messages)  # (N, F)
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
        self.cutoff, self.readout, self.batch_statistics = float(cutoff), readout, normalization
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
        if self.batch_statistics:  # BatchNorm counts every edge that it is given
            batch = batch.within(self.cutoff)
        x = rows_of(self.embedding(self.elements), batch, first=1)  # 1. (N, F)
        distance = batch.pair_vectors().square().sum(-1).sqrt()  # (P,)
        edges = self.pairs(self.basis(distance)).chunk(len(self.convolutions), dim=-1)  # 2. (P, 2F) each
        envelope = self.envelope(distance, self.cutoff).repeat(2).unsqueeze(-1)  # (2P, 1)
        for convolution, edge in zip(self.convolutions, edges, strict=True):  # 3.
            x = convolution(x, edge, envelope, batch)
        if self.readout == "sum":  # 4.
            return batch.sum_atoms(self.head(x).squeeze(-1))
        count = batch.sum_atoms(torch.ones_like(x[:, :1]))  # (B, 1)
        return self.head(batch.sum_atoms(x) / count).squeeze(-1)
