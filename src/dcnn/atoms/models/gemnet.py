"""GemNet-T (Gasteiger et al. 2021): messages on directed edges and embeddings of atoms, through triplets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch, Neighbourhoods
from dcnn.atoms.bases import require_cutoff, rows_of
from dcnn.atoms.models.gemnet_layers import (
    HALF,
    Bases,
    EdgeEmbedding,
    Outputs,
    ScaledSiLU,
    dense,
    he_orthogonal_,
    residuals,
)
from dcnn.atoms.spherical import BesselBasis, GaussianBasis, ZonalHarmonics, on_edges, reversed_edges
from dcnn.errors import unknown

#: Published scale factors, fitted for GemNet-dT on OC20; blocks beyond those listed take the last one.
SCALES: dict[str, tuple[float, ...]] = {
    "triplet_product": (18.873615, 16.108175),
    "triplet_sum": (7.9968505, 7.614634),
    "atom_sum": (1.2204638, 0.96909946),
    "output_sum": (1.6437849, 1.1077653, 0.94779277),
}


class Interaction(nn.Module):
    """One round: triplets change the messages, messages the atoms, atoms the messages.

    1. x_ba = σ(W_down(σ(W_ba m_ba) ⊙ R e(d_ba))), y_ca = c Σ_{b,i} B_i x_ba·C_i(d_ca, α_cab)
       m_ca ← after((m_ca + before((σ(W_ca m_ca) + (σ(U y_ca) + σ(V y_ac))/√2)/√2))/√2)
    2. h_a ← (h_a + MLP(Σ_c m_ca ⊙ A e(d_ca)))/√2
    3. m_ca ← (m_ca + last(σ(W [h_c, h_a, m_ca])))/√2
    """

    def __init__(
        self,
        atom: int,
        edge: int,
        triplet: int,
        bilinear: int,
        cbf: int,
        before_skip: int,
        after_skip: int,
        concat: int,
        atom_layers: int,
        triplet_sum: float,
    ) -> None:
        super().__init__()
        self.ca_ba = dense(edge, edge, copies=2)
        self.down = dense(edge, triplet)
        self.bilinear = nn.Parameter(torch.empty(cbf, triplet, bilinear))
        he_orthogonal_(self.bilinear.transpose(0, 1))
        self.triplet_sum = nn.Parameter(torch.tensor(triplet_sum), requires_grad=False)
        self.up = dense(bilinear, edge, copies=2)
        self.before, self.after = residuals(edge, before_skip), residuals(edge, after_skip)
        self.atom = nn.Sequential(dense(edge, atom), ScaledSiLU(), *residuals(atom, atom_layers))
        self.own = nn.Linear(edge, edge, bias=False)
        self.embed = EdgeEmbedding(atom, edge, self.own.weight)
        self.last = residuals(edge, concat)
        self.act_in, self.act_down, self.act_up = ScaledSiLU(), ScaledSiLU(), ScaledSiLU()

    def triplets(self, x: Tensor, angular: Tensor, at: Neighbourhoods) -> Tensor:
        """Σ_b over the edges b into the same atom, of what they send: (2P, T) → (2P, bilinear)."""
        n_atoms, n = at.edge.shape
        cbf, triplet, _ = self.bilinear.shape
        x = x.index_select(0, at.edge.view(-1)).view(n_atoms, n, triplet)
        x = torch.bmm(angular, x).view(n_atoms * n, cbf * triplet)  # Σ_b C[o, c; b] x_b
        x = x @ (self.bilinear * self.triplet_sum).flatten(0, 1)  # (N·n, bilinear)
        return x.index_select(0, at.slot)

    def forward(
        self, h: Tensor, m: Tensor, to_triplets: Tensor, to_atoms: Tensor, angular: Tensor, batch: AtomsBatch
    ) -> tuple[Tensor, Tensor]:
        skip, x = self.act_in(self.ca_ba(m)).chunk(2, dim=1)  # 1. (2P, F) each
        x = self.act_down(self.down(on_edges(x, torch.mul, to_triplets)))  # (2P, T)
        x = self.act_up(self.up(self.triplets(x, angular, batch.neighbourhoods)))  # (2P, 2F)
        there, back = x.chunk(2, dim=1)
        x = (there + reversed_edges(back, to_triplets.shape[0])) * HALF
        m = self.after((m + self.before((skip + x) * HALF)) * HALF)  # (2P, F)

        x = batch.sum_edges(on_edges(m, torch.mul, to_atoms))  # 2. (N, F)
        h = (h + self.atom(x)) * HALF  # (N, A)

        return h, (m + self.last(self.embed(h, self.own(m), batch))) * HALF  # 3.


class GemNetT(nn.Module):
    """GemNet-T, a sum of atomic energies read off the messages m_st on directed edges s→t.

    1. e(d): gaussians or Bessel functions times an envelope; C(d_ca, α_cab) = Σ_l (W_l e(d_ca)) Y_l(α_cab)
    2. h_t = embedding(Z_t), m⁽⁰⁾_st = σ(W [h_s, h_t, e(d_st)])
    3. (h, m)⁽ᵇ⁺¹⁾ = Interaction_b(h⁽ᵇ⁾, m⁽ᵇ⁾), for every block b
    4. E = Σ_t Σ_b w_b·MLP_b(Σ_s m⁽ᵇ⁾_st ⊙ O_b e(d_st))

    Published: gaussians and a He-orthogonal output layer; ``radial_basis="bessel"`` and ``zero_output`` learn faster.
    ``activation`` replaces the scaled SiLU of the output blocks, as the paper does. ``scales`` are the constants that
    keep variances: those published, unless others are given for the kinds of ``SCALES``, as many as there are blocks
    or fewer. Both fidelities are the same network; the published scales were fitted for another variant of GemNet.
    """

    def __init__(
        self,
        atom: int = 512,
        edge: int = 512,
        triplet: int = 64,
        bilinear: int = 64,
        rbf: int = 16,
        cbf: int = 16,
        n_spherical: int = 7,
        n_radial: int = 128,
        blocks: int = 3,
        before_skip: int = 1,
        after_skip: int = 2,
        concat: int = 1,
        atom_layers: int = 3,
        elements: int = 83,
        cutoff: float = 6.0,
        envelope_exponent: int = 5,
        radial_basis: str = "gaussian",
        zero_output: bool = False,
        activation: str | nn.Module | None = None,
        scales: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        super().__init__()
        self.cutoff = float(cutoff)
        radial_bases = {
            "gaussian": lambda: GaussianBasis(n_radial, self.cutoff, envelope_exponent),
            "bessel": lambda: BesselBasis(n_radial, self.cutoff, envelope_exponent - 1),  # its u(x)/x has one more
        }
        if radial_basis not in radial_bases:
            raise unknown("radial basis", radial_basis, radial_bases)
        constants = SCALES | {kind: tuple(values) for kind, values in (scales or {}).items()}
        if len(constants) > len(SCALES):
            raise unknown("kind of scale factor", next(iter(set(constants) - set(SCALES))), SCALES)

        def scale(kind: str, number: int = blocks) -> list[float]:
            values = constants[kind]
            return [values[min(b, len(values) - 1)] for b in range(number)]

        self.radial = radial_bases[radial_basis]()
        self.angles = ZonalHarmonics(n_spherical)
        by_block = scale("triplet_product"), scale("atom_sum"), scale("output_sum", blocks + 1)
        self.bases = Bases(n_spherical, n_radial, rbf, cbf, edge, by_block)
        self.elements = nn.Embedding(elements, atom)
        nn.init.uniform_(self.elements.weight, -math.sqrt(3), math.sqrt(3))
        self.embed = EdgeEmbedding(atom, edge, self.bases.shared.weight[-edge:])
        sizes = (atom, edge, triplet, bilinear, cbf, before_skip, after_skip, concat, atom_layers)
        self.interactions = nn.ModuleList(Interaction(*sizes, triplet_sum) for triplet_sum in scale("triplet_sum"))
        self.outputs = Outputs(edge, atom, atom_layers, blocks + 1, activation)
        if zero_output:
            nn.init.zeros_(self.outputs.energy)

    def forward(self, batch: AtomsBatch) -> Tensor:
        """Energies (B,) of the systems in the batch."""
        require_cutoff(batch, self.cutoff)
        vectors = batch.pair_vectors()  # 1. (P, 3)
        distance = vectors.square().sum(1).sqrt()  # (P,)
        angles = self.angles(vectors / distance.unsqueeze(1), batch.neighbourhoods)  # (N·n, n, L)
        basis = self.bases(self.radial(distance), angles, batch.neighbourhoods)

        h = rows_of(self.elements.weight, batch, first=1)  # 2. (N, A)
        messages = [self.embed(h, basis.embedding, batch)]  # (2P, F)
        for b, interaction in enumerate(self.interactions):  # 3.
            h, m = interaction(h, messages[-1], basis.triplet[b], basis.atom[b], basis.angular, batch)
            messages.append(m)
        energies = self.outputs(messages, basis.output, batch)  # 4. (N,)
        return batch.sum_atoms(energies)
