"""TensorNet (Simeon & De Fabritiis 2023): 3×3 tensors of atoms, mixed by matrix products."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from dcnn.activations import get
from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.bases import cosine_cutoff, gaussian, require_cutoff, rows_of
from dcnn.atoms.cartesian import SIZES, Table, anticommutator, by_part, messages, of_directions, part_sums, square
from dcnn.atoms.models.schnet import glorot_


class ExponentialBasis(nn.Module):
    """φ_k(r) = c(r)·exp(−β (e^{−αr} − μ_k)²), α = 5/r_c, μ_k evenly over [e^{−r_c}, 1], β = (½K/(1 − e^{−r_c}))²."""

    centers: Tensor

    def __init__(self, count: int, cutoff: float) -> None:
        super().__init__()
        lowest = math.exp(-cutoff)
        self.cutoff, self.width = cutoff, math.sqrt(2.0) * 0.5 * count / (1.0 - lowest)  # gaussian is exp(−x²/2)
        self.register_buffer("centers", torch.linspace(lowest, 1.0, count, dtype=torch.float64), persistent=False)

    def forward(self, distance: Tensor) -> Tensor:
        """(P,) → (P, count)."""
        falling = (distance * (-5.0 / self.cutoff)).exp().unsqueeze(-1)
        return gaussian((falling - self.centers.to(distance)) * self.width) * cosine_cutoff(
            distance, self.cutoff
        ).unsqueeze(-1)


class Filters(nn.Module):
    """σ(A₃ σ(A₂ σ(A₁ φ(r) + a₁) + a₂) + a₃)·c(r) of every layer at once, the last with a row per part of a tensor."""

    def __init__(self, radial: int, features: int, layers: int, activation: str | nn.Module) -> None:
        super().__init__()
        self.layers = layers
        widths = (radial, features, 2 * features, 3 * features)
        shapes = list(pairwise(widths))
        self.weights = nn.ParameterList(torch.empty(layers, n_in, n_out) for n_in, n_out in shapes)
        self.biases = nn.ParameterList(torch.empty(layers, 1, n_out) for _, n_out in shapes)
        self.acts = nn.ModuleList(get(activation) for _ in shapes)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = 1 / math.sqrt(weight.shape[1])
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)

    def forward(self, basis: Tensor, envelope: Tensor) -> Tensor:
        """(P, K) and (P,) → (layers, 3, P, F)."""
        x = basis.expand(self.layers, *basis.shape)
        for weight, bias, act in zip(self.weights, self.biases, self.acts, strict=True):
            x = act(torch.baddbmm(bias, x, weight))  # (layers, P, width)
        return (x * envelope.unsqueeze(-1)).unflatten(2, (3, -1)).transpose(1, 2)


class Mix(nn.Module):
    """W_I I + W_A A + W_S S: one linear map of the features for each part, all as one batched product."""

    def __init__(self, features: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(features)
        self.weight = nn.Parameter(torch.empty(3, features, features).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """(9, N, F) → (9, N, F)."""
        return torch.bmm(x, by_part(self.weight))


class Embedding(nn.Module):
    """X_i = Σ_p s_p(‖X̃_i‖²) ∘ W_p X̃_i^p, X̃_i = Σ_j Z_ij ∘ (f_I(r) 1 + f_A(r) [r̂]× + f_S(r) (r̂r̂ᵀ − 1/3)), j = i too.

    Z_ij = B [h_i, h_j] + b of the elements, f = (D φ(r) + d)·c(r), s = σ(E₂ σ(E₁ LN(·))).
    """

    def __init__(self, elements: int, radial: int, features: int, normalization: bool, sigma: str | nn.Module) -> None:
        super().__init__()
        self.features = features
        self.elements = nn.Embedding(elements, features)
        self.ends = nn.Linear(2 * features, features)
        self.radial = nn.Linear(radial, 3 * features)
        self.mix = Mix(features)
        self.norm = nn.LayerNorm(features) if normalization else nn.Identity()
        self.scales = nn.Sequential(
            nn.Linear(features, 2 * features), get(sigma), nn.Linear(2 * features, 3 * features), get(sigma)
        )

    def forward(
        self, batch: AtomsBatch, basis: Tensor, envelope: Tensor, own_basis: Tensor, unit: Tensor, table: Table
    ) -> Tensor:
        """φ(r) (P, K), c(r) (P,), φ(0) (1, K) and r̂ (P, 3) → (9, N, F)."""
        at, (n_atoms, n) = batch.neighbourhoods, table.pair.shape
        h = rows_of(self.elements.weight, batch, first=0)  # (N, F)
        of_center, of_neighbour = self.ends.weight.chunk(2, dim=1)
        own, other = nn.functional.linear(h, of_center, self.ends.bias), h @ of_neighbour.T
        filters = self.radial(basis) * envelope.unsqueeze(-1)  # (P, 3F)

        # 1. sums over neighbours as products of small matrices: components (9, n) times filtered features (n, 3F)
        directions = torch.cat([unit, -unit]).index_select(0, at.edge.flatten())  # (N·n, 3)
        components = of_directions(directions).view(n_atoms, n, 9) * table.filled
        elements = own.unsqueeze(1) + other.index_select(0, table.neighbour.flatten()).unflatten(0, (n_atoms, n))
        sent = filters.index_select(0, table.pair.flatten()).view(n_atoms, n, 3, self.features) * elements.unsqueeze(2)
        trace, *others = (
            torch.bmm(part.transpose(1, 2), filtered).transpose(0, 1)
            for part, filtered in zip(components.split(SIZES, dim=-1), sent.unbind(2), strict=True)
        )
        alone = math.sqrt(3.0) * self.radial(own_basis).chunk(3, dim=1)[0] * (own + other)  # j = i: no direction
        x = torch.cat([trace + alone, *others])  # (9, N, F)

        # 2. parts are mixed and scaled by a network of the norm
        scales = self.scales(self.norm(x.square().sum(0))).unflatten(1, (3, -1)).transpose(0, 1)  # (3, N, F)
        return self.mix(x) * by_part(scales)


class Interaction(nn.Module):
    """X ← X̂ + ΔX + ΔX², ΔX = W′(Z/(‖Z‖² + 1)), Z = YM + MY, Y = W X̂, M_i = Σ_j f(r_ij) ∘ Y_j, X̂ = X/(‖X‖² + 1)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.before, self.after = Mix(features), Mix(features)

    def forward(self, x: Tensor, of_pairs: Tensor, of_itself: Tensor, table: Table) -> Tensor:
        """(9, N, F), with filters of pairs (3, P, F) and of an atom itself (3, 1, F)."""
        x = x / (x.square().sum(0) + 1.0)
        y = self.before(x)
        m = messages(of_pairs, y, table) + by_part(of_itself) * y
        z = anticommutator(y, m)
        change = self.after(z / (z.square().sum(0) + 1.0))
        return x + change + square(change)


class TensorNet(nn.Module):
    """TensorNet, a sum of atomic energies of 3×3 tensors X_i for every feature.

    1. φ(r_ij): exponential-normal functions times a cosine cutoff c
    2. X_i = Σ_j Z_ij ∘ (f_I(r) 1 + f_A(r) [r̂]× + f_S(r) (r̂r̂ᵀ − 1/3)), its parts mixed and scaled by a network of ‖X_i‖²
    3. X_i ← X̂_i + ΔX_i + ΔX_i² with ΔX from Y_i M_i + M_i Y_i, M_i = Σ_j f(r_ij) ∘ Y_j, for every layer
    4. E = Σ_i C₃ σ(C₂ σ(C₁ LN[‖I_i‖², ‖A_i‖², ‖S_i‖²]))

    As published, sums over j include i itself, at distance 0. ``activation`` replaces σ = SiLU everywhere;
    ``normalization=False`` removes the two layer normalizations. Both fidelities are the same network.
    """

    def __init__(
        self,
        features: int = 64,
        layers: int = 2,
        radial: int = 32,
        cutoff: float = 5.0,
        elements: int = 100,
        normalization: bool = True,
        activation: str | nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.cutoff, sigma = float(cutoff), activation or "silu"
        self.basis = ExponentialBasis(radial, self.cutoff)
        self.embedding = Embedding(elements, radial, features, normalization, sigma)
        self.filters = Filters(radial, features, layers, sigma)
        self.interactions = nn.ModuleList(Interaction(features) for _ in range(layers))
        self.norm = nn.LayerNorm(3 * features) if normalization else nn.Identity()
        self.head = nn.Sequential(
            nn.Linear(3 * features, features),
            get(sigma),
            nn.Linear(features, features // 2),
            get(sigma),
            nn.Linear(features // 2, 1),
        )
        for layer in (self.head[2], self.head[4]):
            glorot_(layer)

    def forward(self, batch: AtomsBatch) -> Tensor:
        """Energies (B,) of the systems in the batch."""
        require_cutoff(batch, self.cutoff)
        vectors = batch.pair_vectors()  # 1. (P, 3)
        distance = vectors.square().sum(1).sqrt()  # (P,)
        table, own = Table.of(batch), self.basis(distance.new_zeros(1))  # of an atom itself, where c = 1
        basis, envelope = self.basis(distance), cosine_cutoff(distance, self.cutoff)

        x = self.embedding(batch, basis, envelope, own, vectors / distance.unsqueeze(1), table)  # 2. (9, N, F)
        of_pairs, of_itself = self.filters(basis, envelope), self.filters(own, torch.ones_like(own[:, 0]))
        for interaction, *filters in zip(self.interactions, of_pairs, of_itself, strict=True):  # 3.
            x = interaction(x, *filters, table)
        norms = part_sums(x.square()).transpose(0, 1).flatten(1)  # 4. (N, 3F)
        return batch.sum_atoms(self.head(self.norm(norms)).squeeze(-1))
