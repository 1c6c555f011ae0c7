"""SchNet (Schütt et al. 2017): continuous-filter convolutions over interatomic distances."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dcnn.activations import get
from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.bases import Gaussians, cosine_cutoff, require_cutoff, rows_of


class Filters(nn.Module):
    """The filter networks of all blocks at once, evaluated once per unordered pair.

    W_b(r) = (A₂ᵇ σ(A₁ᵇ g(r) + a₁ᵇ) + a₂ᵇ) · c(r), with gaussians g and the cosine cutoff c. The first
    layers are one product, the second layers one batched product.
    """

    def __init__(self, gaussians: int, filters: int, blocks: int, cutoff: float, activation: nn.Module) -> None:
        super().__init__()
        self.blocks, self.filters, self.cutoff = blocks, filters, cutoff
        self.basis = Gaussians(0.0, cutoff, gaussians)
        self.weight1 = nn.Parameter(torch.empty(gaussians, blocks * filters))
        self.bias1 = nn.Parameter(torch.zeros(blocks * filters))
        self.activation = activation
        self.weight2 = nn.Parameter(torch.empty(blocks, filters, filters))
        self.bias2 = nn.Parameter(torch.zeros(blocks, 1, filters))
        bound1, bound2 = math.sqrt(6.0 / (gaussians + filters)), math.sqrt(3.0 / filters)
        nn.init.uniform_(self.weight1, -bound1, bound1)  # Glorot, for each block on its own
        nn.init.uniform_(self.weight2, -bound2, bound2)

    def forward(self, distance: Tensor) -> Tensor:
        """(P,) → (blocks, P, filters)."""
        hidden = torch.addmm(self.bias1, self.basis(distance), self.weight1)  # (P, blocks·F)
        hidden = self.activation(hidden).view(-1, self.blocks, self.filters).transpose(0, 1)  # (blocks, P, F)
        filters = torch.baddbmm(self.bias2, hidden, self.weight2)  # (blocks, P, F)
        return filters * cosine_cutoff(distance, self.cutoff).unsqueeze(-1)


class Block(nn.Module):
    """x_i + B₂ σ(B₁ Σ_j (A x_j) ∘ W_ij + b₁) + b₂."""

    def __init__(self, features: int, filters: int, activation: nn.Module) -> None:
        super().__init__()
        self.into_filters = nn.Linear(features, filters, bias=False)
        self.out_of_filters = nn.Linear(filters, features)
        self.activation = activation
        self.output = nn.Linear(features, features)
        for layer in (self.into_filters, self.out_of_filters, self.output):
            glorot_(layer)

    def forward(self, x: Tensor, filters: Tensor, batch: AtomsBatch) -> Tensor:
        received = batch.convolve(self.into_filters(x), filters)  # (N, F)
        return x + self.output(self.activation(self.out_of_filters(received)))


class SchNet(nn.Module):
    """SchNet, a sum of atomic energies that depend on distances alone.

    1. x_i = embedding(Z_i)
    2. W_b(r_ij): filters of all blocks b, once per pair, smooth at the cutoff
    3. x_i ← x_i + B₂ σ(B₁ Σ_j (A x_j) ∘ W_b(r_ij)), for every block
    4. E = Σ_i C₂ σ(C₁ x_i)

    Published: σ = shifted softplus; ``activation`` replaces it everywhere, as the paper does. Both fidelities
    are the same network: nothing in the scripts' SchNet departs from its text.
    """

    def __init__(
        self,
        features: int = 128,
        filters: int = 128,
        blocks: int = 3,
        gaussians: int = 50,
        cutoff: float = 6.0,
        activation: str | nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.cutoff = float(cutoff)

        sigma = activation or "shifted_softplus"
        self.embedding = nn.Embedding(100, features)
        self.filters = Filters(gaussians, filters, blocks, self.cutoff, get(sigma))
        self.blocks = nn.ModuleList(Block(features, filters, get(sigma)) for _ in range(blocks))
        self.head = nn.Sequential(nn.Linear(features, features // 2), get(sigma), nn.Linear(features // 2, 1))
        for layer in (self.head[0], self.head[2]):
            glorot_(layer)

    def forward(self, batch: AtomsBatch) -> Tensor:
        """Energies (B,) of the systems in the batch."""
        require_cutoff(batch, self.cutoff)
        x = rows_of(self.embedding.weight, batch, first=0)  # 1. (N, features)
        filters = self.filters(batch.pair_vectors().square().sum(-1).sqrt())  # 2. (blocks, P, F)
        for block, pair_filters in zip(self.blocks, filters, strict=True):  # 3.
            x = block(x, pair_filters, batch)
        energies = self.head(x).squeeze(-1)  # 4. (N,)
        return batch.sum_atoms(energies)


def glorot_(layer: nn.Module) -> None:
    """Glorot uniform weights and zero bias, as published."""
    assert isinstance(layer, nn.Linear)
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
