"""DimeNet++ (Gasteiger et al. 2020): messages along directed edges, with the angles between them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dcnn.activations import get
from dcnn.atoms.atoms_batch import AtomsBatch, Neighbourhoods
from dcnn.atoms.bases import require_cutoff, rows_of
from dcnn.atoms.spherical import BesselBasis, SphericalBesselBasis, ZonalHarmonics, on_edges, reversed_edges


def glorot_orthogonal_(*weights: Tensor) -> None:
    """Random (semi-)orthogonal matrices with the variance of Glorot's rule, 2/(fan_in + fan_out)."""
    with torch.no_grad():
        for weight in weights:
            drawn = nn.init.orthogonal_(torch.empty_like(weight))
            weight.copy_(drawn * (2.0 / (sum(weight.shape) * drawn.var())).sqrt())


def dense(n_in: int, n_out: int, bias: bool = True, copies: int = 1) -> nn.Linear:
    """A linear layer of ``copies`` Glorot-orthogonal maps with a common input, their outputs side by side."""
    layer = nn.Linear(n_in, n_out * copies, bias=bias)
    glorot_orthogonal_(*layer.weight.chunk(copies))
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class Radial(nn.Module):
    """All linear maps of the radial basis in the network as one product: U_b D_b e(d) of the interactions, O_b e(d)."""

    def __init__(self, n_radial: int, basis: int, hidden: int, blocks: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(blocks, basis, n_radial))
        self.up = nn.Parameter(torch.empty(blocks, hidden, basis))
        self.output = nn.Parameter(torch.empty(blocks + 1, hidden, n_radial))
        glorot_orthogonal_(*self.down, *self.up, *self.output)

    def forward(self, rbf: Tensor) -> tuple[Tensor, ...]:
        """(P, R) → (P, F) of every interaction, then of every output."""
        maps = torch.cat([torch.bmm(self.up, self.down), self.output])  # (2B + 1, F, R)
        return (rbf @ maps.flatten(0, 1).T).view(rbf.shape[0], *maps.shape[:2]).unbind(1)


class Angular(nn.Module):
    """C_b[k, c; i] = Σ_l Y_l(α_kji)·(S_bl a_l(d_kj))_c for edges k→j and j→i that meet in j, of all blocks b."""

    def __init__(self, n_spherical: int, n_radial: int, basis: int, blocks: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(blocks, basis, n_spherical * n_radial))
        glorot_orthogonal_(*self.weight)

    def forward(self, sbf: Tensor, angles: Tensor, at: Neighbourhoods) -> tuple[Tensor, ...]:
        """(P, L, R) and (N·n, n, L) → (N, n·C, n) of every block."""
        n_pairs, n_spherical, n_radial = sbf.shape
        (blocks, basis, _), (n_atoms, n) = self.weight.shape, at.edge.shape
        by_degree = self.weight.view(blocks * basis, n_spherical, n_radial).permute(1, 2, 0)  # (L, R, B·C)
        radial = torch.bmm(sbf.transpose(0, 1), by_degree).permute(1, 2, 0)  # (P, B·C, L)
        radial = radial.index_select(0, at.edge.view(-1) % max(n_pairs, 1))  # (N·n, B·C, L)
        joined = torch.bmm(radial, angles.transpose(1, 2))  # (N·n, B·C, n)
        return joined.view(n_atoms, n, blocks, basis, n).permute(2, 0, 1, 3, 4).flatten(2, 3).unbind(0)


class Embedding(nn.Module):
    """m_ji = σ(W [h_i, h_j, σ(W_r e(d_ji))]), with W applied part by part: to atoms, and to pairs."""

    def __init__(self, elements: int, n_radial: int, hidden: int) -> None:
        super().__init__()
        self.elements = nn.Embedding(elements, hidden)
        nn.init.uniform_(self.elements.weight, -math.sqrt(3), math.sqrt(3))
        self.radial = nn.Linear(n_radial, hidden)
        self.mix = nn.Linear(3 * hidden, hidden)
        self.act_radial, self.act = get("silu"), get("silu")

    def forward(self, batch: AtomsBatch, rbf: Tensor) -> Tensor:
        center, neighbour, radial = self.mix.weight.chunk(3, dim=1)
        h = rows_of(self.elements.weight, batch, first=0)  # (N, F)
        pair = nn.functional.linear(self.act_radial(self.radial(rbf)), radial, self.mix.bias)  # (P, F)
        atoms = (h @ center.T).index_select(0, batch.edge_center)
        atoms = atoms + (h @ neighbour.T).index_select(0, batch.edge_neighbour)  # (2P, F)
        return self.act(on_edges(atoms, torch.add, pair))


class Residual(nn.Module):
    """x + σ(W₂ σ(W₁ x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(dense(width, width), get("silu"), dense(width, width), get("silu"))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Interaction(nn.Module):
    """x_kj = σ(W_down(σ(W_kj m_kj) ⊙ U D e(d_kj))), x_ji = σ(W_ji m_ji) + σ(W_up Σ_k x_kj ⊙ V S a(d_kj, α_kji)).

    m_ji ← after(m_ji + σ(W before(x_ji))), with residual layers before and after. For atom j the sum over k is the
    matrix product Σ_{k,c} C[k, c; i]·(V_c ⊙ x_kj), with C of :class:`Angular`.
    """

    def __init__(self, hidden: int, triplet: int, basis: int, before_skip: int, after_skip: int) -> None:
        super().__init__()
        self.ji_kj = dense(hidden, hidden, copies=2)
        self.down = dense(hidden, triplet, bias=False)
        self.spread = nn.Parameter(torch.empty(basis, triplet))
        glorot_orthogonal_(self.spread)
        self.up = dense(triplet, hidden, bias=False)
        self.before = nn.Sequential(*(Residual(hidden) for _ in range(before_skip)))
        self.skip = dense(hidden, hidden)
        self.after = nn.Sequential(*(Residual(hidden) for _ in range(after_skip)))
        self.act_in, self.act_down, self.act_up, self.act_skip = (get("silu") for _ in range(4))

    def forward(self, m: Tensor, radial: Tensor, angular: Tensor, at: Neighbourhoods) -> Tensor:
        n_atoms, n = at.edge.shape
        # 1. what an edge sends to its triplets, narrowed to T channels
        own, x = self.act_in(self.ji_kj(m)).chunk(2, dim=1)  # (2P, F) each
        x = self.act_down(self.down(on_edges(x, torch.mul, radial)))  # (2P, T)

        # 2. sum over k in the neighbourhood of j, for the edges j→i that leave it: the reverses of those that enter
        x = x.index_select(0, at.edge.view(-1)).unsqueeze(1) * self.spread  # (N·n, C, T)
        x = x.view(n_atoms, n * self.spread.shape[0], self.spread.shape[1])
        x = torch.bmm(angular.transpose(1, 2), x).flatten(0, 1)  # (N·n, T)
        x = x.index_select(0, reversed_edges(at.slot, radial.shape[0]))  # (2P, T)

        # 3. update of the message
        x = self.before(own + self.act_up(self.up(x)))  # (2P, F)
        return self.after(m + self.act_skip(self.skip(x)))


class Outputs(nn.Module):
    """ε_i = Σ_b w_b·σ(W_b3 σ(W_b2 σ(W_b1 W_b0 Σ_j m⁽ᵇ⁾_ji ⊙ O_b e(d_ji)))), all b at once; w = 0 at first."""

    def __init__(self, hidden: int, output: int, layers: int, blocks: int, activation: str | nn.Module) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(blocks, hidden, output))
        bound = 1 / math.sqrt(hidden)
        self.up_bias = nn.Parameter(torch.empty(blocks, 1, output).uniform_(-bound, bound))
        self.weights = nn.Parameter(torch.empty(layers, blocks, output, output))
        self.biases = nn.Parameter(torch.zeros(layers, blocks, 1, output))
        self.acts = nn.ModuleList(get(activation) for _ in range(layers))
        self.energy = nn.Parameter(torch.zeros(blocks, output, 1))
        glorot_orthogonal_(*self.up, *self.weights.flatten(0, 1))

    def forward(self, messages: list[Tensor], radial: tuple[Tensor, ...], batch: AtomsBatch) -> Tensor:
        sent = [on_edges(m, torch.mul, r) for m, r in zip(messages, radial, strict=True)]
        x = batch.sum_edges(torch.cat(sent, 1))  # (N, B·F)
        x = x.view(batch.z.shape[0], len(sent), -1).transpose(0, 1)  # (B, N, F)
        x = torch.baddbmm(self.up_bias, x, self.up)
        for weight, bias, act in zip(self.weights, self.biases, self.acts, strict=True):
            x = act(torch.baddbmm(bias, x, weight))
        return torch.bmm(x, self.energy).sum((0, 2))  # (N,)


class DimeNetPlusPlus(nn.Module):
    """DimeNet++, a sum of atomic energies read off the messages m_ji on directed edges j→i.

    1. e(d_ji): Bessel functions; a_ln(d_kj)·Y_l(α_kji): spherical ones times Legendre polynomials of cos α
    2. m⁽⁰⁾_ji = σ(W [h_i, h_j, σ(W_r e(d_ji))])
    3. m⁽ᵇ⁺¹⁾_ji = Interaction_b(m⁽ᵇ⁾_ji, Σ_k m⁽ᵇ⁾_kj ⊙ a(d_kj, α_kji)), for every block b
    4. E = Σ_i Σ_b Output_b(Σ_j m⁽ᵇ⁾_ji ⊙ O_b e(d_ji))

    ``activation`` replaces the SiLU of the output blocks, as the paper does. ``fidelity="scripts"`` detaches the angles
    and rounds the zeros of the Bessel functions to float32; its forces are then not the gradient of the energy.
    """

    def __init__(
        self,
        hidden: int = 192,
        blocks: int = 3,
        triplet: int = 64,
        basis: int = 8,
        output: int = 192,
        n_spherical: int = 7,
        n_radial: int = 6,
        cutoff: float = 6.0,
        envelope_exponent: int = 5,
        before_skip: int = 1,
        after_skip: int = 2,
        output_layers: int = 3,
        elements: int = 95,
        activation: str | nn.Module | None = None,
        fidelity: str = "text",
    ) -> None:
        super().__init__()
        self.cutoff, self.detached = float(cutoff), fidelity == "scripts"
        self.bessel = BesselBasis(n_radial, self.cutoff, envelope_exponent)
        self.spherical = SphericalBesselBasis(n_spherical, n_radial, self.cutoff, envelope_exponent, self.detached)
        self.angles = ZonalHarmonics(n_spherical, sign=-1)  # the published angle is that of r_j − r_i and r_k − r_j
        self.radial = Radial(n_radial, basis, hidden, blocks)
        self.angular = Angular(n_spherical, n_radial, basis, blocks)
        self.embedding = Embedding(elements, n_radial, hidden)
        self.interactions = nn.ModuleList(
            Interaction(hidden, triplet, basis, before_skip, after_skip) for _ in range(blocks)
        )
        self.outputs = Outputs(hidden, output, output_layers, blocks + 1, activation or "silu")

    def forward(self, batch: AtomsBatch) -> Tensor:
        """Energies (B,) of the systems in the batch."""
        require_cutoff(batch, self.cutoff)
        at, blocks = batch.neighbourhoods, len(self.interactions)
        vectors = batch.pair_vectors()  # 1. (P, 3)
        distance = vectors.square().sum(1).sqrt()  # (P,)
        directions = vectors / distance.unsqueeze(1)
        angles = self.angles(directions.detach() if self.detached else directions, at)  # (N·n, n, L)
        rbf = self.bessel(distance)  # (P, R)
        radial = self.radial(rbf)  # (P, F) each
        angular = self.angular(self.spherical(distance), angles, at)  # (N, n·C, n) each

        messages = [self.embedding(batch, rbf)]  # 2. (2P, F)
        for b, interaction in enumerate(self.interactions):  # 3.
            messages.append(interaction(messages[-1], radial[b], angular[b], at))
        energies = self.outputs(messages, radial[blocks:], batch)  # 4. (N,)
        return batch.sum_atoms(energies)
