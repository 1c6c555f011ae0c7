"""ForceNet (Hu et al. 2021): messages from directions in the lab frame, here of an energy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from dcnn.activations import get
from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.bases import cosine_cutoff, gaussian, quarter_cosine_cutoff, require_cutoff, rows_of
from dcnn.atoms.elements import continuous_table, radii_table
from dcnn.atoms.models.schnet import glorot_

PLACES = 7  # numbers that describe an edge: three components of the direction, four distances
REVERSED = [0, 1, 2, 3, 5, 4, 6]  # where they stand for the reversed edge, whose directions change sign as well


class Smearing(nn.Module):
    """(x_1 … x_n) → exp(−(x_f − μ_k)² / 2Δ²): K centres μ_k = kΔ over [0, 1]; columns ordered (k, f).

    The numbers k are a fixed parameter: as published, they count in the number of parameters.
    """

    def __init__(self, places: int, gaussians: int) -> None:
        super().__init__()
        self.gaussians = gaussians
        numbers = torch.arange(gaussians, dtype=torch.get_default_dtype()).repeat_interleave(places)
        self.numbers = nn.Parameter(numbers.unsqueeze(0), requires_grad=False)  # (1, K·n)

    @property
    def centers(self) -> Tensor:
        """The centres μ_k in the order of the columns, (1, K·n)."""
        return self.numbers / (self.gaussians - 1)

    def forward(self, x: Tensor) -> Tensor:
        """(…, n) → (…, K·n)."""
        return gaussian((x * (self.gaussians - 1)).repeat(1, self.gaussians) - self.numbers)


class Block(nn.Module):
    """x_i + D₂ σ(BN(D₁ (s ∘ y_i + Σ_j y_j ∘ W_ij c_ij))), W_ij = A₃ σ(A₂ σ(p_ij + A_s x_j + A_t x_i)), y = Bx.

    The published first layer of W is A₁ [L b_ij, x_j, x_i], with a linear map L of the basis b_ij of the
    edge. Written apart, A_s and A_t act on atoms before they are gathered, and p_ij = A_p (L b_ij + l) +
    a is one product with the matrix A_p L (:meth:`pair_map`).
    """

    def __init__(
        self, features: int, basis: int, normalization: bool, activation: str | nn.Module, keep_output: bool
    ) -> None:
        super().__init__()
        self.basis = nn.Linear(basis, features)  # L
        self.pair = nn.Linear(features, features)  # A_p
        self.ends = nn.Linear(features, 2 * features, bias=False)  # A_s and A_t on top of each other
        self.edge = nn.Sequential(
            get(activation), nn.Linear(features, features), get(activation), nn.Linear(features, features)
        )
        self.value = nn.Linear(features, features)  # B
        self.self_weight = nn.Parameter(torch.empty(1, features))  # s
        layers: list[nn.Module] = [nn.Linear(features, features)]
        layers += [nn.BatchNorm1d(features)] if normalization else []
        if keep_output:
            layers += [get(activation), nn.Linear(features, features)]
        else:  # what the scripts' replacement by index leaves once BatchNorm is gone
            layers += [get("silu"), get(activation)]
        self.atom = nn.Sequential(*layers)
        for layer in (self.basis, self.edge[1], self.edge[3], self.value, *self.atom):
            if isinstance(layer, nn.Linear):
                glorot_(layer)
        nn.init.xavier_uniform_(self.self_weight)
        bound = (6.0 / (4 * features)) ** 0.5  # Glorot of the undivided A₁
        nn.init.uniform_(self.pair.weight, -bound, bound)
        nn.init.uniform_(self.ends.weight, -bound, bound)
        nn.init.zeros_(self.pair.bias)

    def pair_map(self, reverse: Tensor) -> tuple[Tensor, Tensor]:
        """Matrix (2F, 7K) and bias (2F,) from a pair's basis to p of its edge and of the reversed edge."""
        matrix = self.pair.weight @ self.basis.weight  # (F, 7K)
        bias = self.pair.bias + self.pair.weight @ self.basis.bias  # (F,)
        return torch.cat([matrix, matrix.index_select(1, reverse)]), bias.repeat(2)

    def forward(self, x: Tensor, p: Tensor, envelope: Tensor, batch: AtomsBatch) -> Tensor:
        sent, own = self.ends(x).chunk(2, dim=-1)  # (N, F) each
        hidden = sent.index_select(0, batch.edge_neighbour) + own.index_select(0, batch.edge_center)  # (2P, F)
        both = p.view(-1, 2, x.shape[-1]).transpose(0, 1)  # (2, P, F): the edge and its reverse
        hidden = (hidden.view_as(both) + both).view_as(hidden)
        filters = self.edge(hidden) * envelope  # (2P, F)
        value = self.value(x)  # (N, F)
        received = batch.sum_edges(value.index_select(0, batch.edge_neighbour) * filters)
        return x + self.atom(received + self.self_weight * value)


class ForceNet(nn.Module):
    """ForceNet: messages whose filters see the direction of the edge in the lab frame.

    1. x_i = A φ(k(Z_i)): nine continuous features k of the element, smeared by gaussians φ
    2. b_ij = φ(½(1 + n_ij), (r, r − ρ_j, r − ρ_i, r − ρ_i − ρ_j)/r_c): direction n, distance r, radii ρ
    3. x_i ← x_i + D₂ σ(BN(D₁ (s ∘ B x_i + Σ_j B x_j ∘ W(b_ij, x_j, x_i) c(r_ij)))), for every block
    4. E = w·Σ_i σ(C x_i) + w₀

    Not extensive: w₀ is added once per system, whatever its size.

    **Not rotation invariant**: n_ij is taken as it stands in the file. Train it with rotated copies or on
    frames that share an orientation, and do not use it where a molecule turns.

    ``activation`` replaces σ = SiLU everywhere, as the paper does. ``fidelity="scripts"``: c =
    cos(πr/2r_c), whose slope jumps at the cutoff, the distances of step 2 stop at 0.001, and without
    normalization a replaced activation also takes the place of D₂ (Linear → SiLU → activation), unless
    ``keep_output`` says otherwise. Otherwise c is the square of that cosine, distances run through zero,
    and D₂ stays.
    """

    reverse: Tensor

    def __init__(
        self,
        features: int = 96,
        blocks: int = 3,
        gaussians: int = 24,
        head_features: int = 96,
        cutoff: float = 6.0,
        normalization: bool = True,
        activation: str | nn.Module | None = None,
        fidelity: str = "text",
        keep_output: bool | None = None,
    ) -> None:
        super().__init__()
        self.cutoff, self.scripts = float(cutoff), fidelity == "scripts"
        if keep_output is None:
            keep_output = not self.scripts or normalization or activation is None
        dtype, sigma = torch.get_default_dtype(), activation or "silu"
        self.elements = nn.Parameter(continuous_table().to(dtype), requires_grad=False)  # (101, 9), row Z
        self.radii = nn.Parameter(radii_table().to(dtype), requires_grad=False)  # (101,) Å
        self.element_basis = Smearing(self.elements.shape[1], gaussians)
        self.embedding = nn.Linear(self.elements.shape[1] * gaussians, features)
        self.edge_basis = Smearing(PLACES, gaussians)
        self.register_buffer("reverse", reversed_columns(gaussians), persistent=False)
        self.blocks = nn.ModuleList(
            Block(features, PLACES * gaussians, normalization, sigma, keep_output) for _ in range(blocks)
        )
        self.head = nn.Sequential(nn.Linear(features, head_features), get(sigma))
        self.energy = nn.Linear(head_features, 1)

    def forward(self, batch: AtomsBatch) -> Tensor:
        """Energies (B,) of the systems in the batch."""
        require_cutoff(batch, self.cutoff)
        elements = self.element_basis(rows_of(self.elements, batch, first=0))  # (N, 9K)
        x = self.embedding(elements)  # 1. (N, F)
        basis, envelope = self.pairs(batch)  # 2. (P, 7K), (2P, 1)
        matrices, biases = zip(
            *(block.pair_map(self.reverse) for block in cast("Iterable[Block]", self.blocks)), strict=True
        )
        pairs = torch.addmm(torch.cat(biases), basis, torch.cat(matrices).T)  # (P, blocks·2F)
        for block, p in zip(self.blocks, pairs.chunk(len(self.blocks), dim=-1), strict=True):  # 3.
            x = block(x, p.contiguous(), envelope, batch)
        summed = batch.sum_atoms(self.head(x))  # 4. (B, head)
        return self.energy(summed).squeeze(-1)

    def pairs(self, batch: AtomsBatch) -> tuple[Tensor, Tensor]:
        """Basis b_ij (P, 7K) and envelope c (2P, 1), for the first direction of every pair."""
        vectors = batch.pair_vectors()  # (P, 3)
        distance = vectors.square().sum(-1, keepdim=True).sqrt()  # (P, 1)
        radii = self.radii.index_select(0, batch.z)
        neighbour = radii.index_select(0, batch.pair_j).unsqueeze(-1)
        center = radii.index_select(0, batch.pair_i).unsqueeze(-1)
        less = torch.cat([torch.zeros_like(center), neighbour, center, neighbour + center], dim=-1)
        shifted = (distance - less) / self.cutoff  # (P, 4)
        if self.scripts:
            shifted = shifted.clamp(min=1e-3)
        basis = self.edge_basis(torch.cat([0.5 * (vectors / distance + 1.0), shifted], dim=-1))
        envelope = (quarter_cosine_cutoff if self.scripts else cosine_cutoff)(distance, self.cutoff)
        return basis, envelope.repeat(2, 1)


def reversed_columns(gaussians: int) -> Tensor:
    """Column of a pair's basis that holds each column of the reversed edge's basis, (7K,).

    ½(1 − n) mirrors the centres, μ_k → μ_{K−1−k}; the two ends exchange their radii; distances stay.
    """
    columns = torch.arange(gaussians * PLACES).view(gaussians, PLACES)[:, REVERSED]
    columns[:, :3] = columns[:, :3].flip(0)
    return columns.flatten()
