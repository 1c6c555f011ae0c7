"""GemNet-T (Gasteiger et al. 2021): messages on directed edges and embeddings of atoms, through triplets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.atoms.bases import require_cutoff, sum_by
from dcnn.atoms.models.gemnet_layers import (
    HALF,
    Bases,
    EdgeEmbedding,
    Outputs,
    Residual,
    ScaledSiLU,
    dense,
    he_orthogonal_,
    residuals,
)
from dcnn.atoms.published import Entry, count, entry, linear
from dcnn.atoms.spherical import BesselBasis, GaussianBasis, ZonalHarmonics, on_edges
from dcnn.atoms.structures import AtomsBatch, Neighbourhoods
from dcnn.errors import unknown

#: Published scale factors, fitted for GemNet-dT on OC20; blocks beyond those listed take the last one.
SCALES: dict[str, tuple[float, ...]] = {
    "triplet_product": (18.873615, 16.108175),
    "triplet_sum": (7.9968505, 7.614634),
    "atom_sum": (1.2204638, 0.96909946),
    "output_sum": (1.6437849, 1.1077653, 0.94779277),
}

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "small": {
        "atom": 64,
        "edge": 64,
        "triplet": 24,
        "bilinear": 24,
        "n_spherical": 5,
        "n_radial": 6,
        "radial_basis": "bessel",
        "blocks": 2,
        "after_skip": 1,
        "atom_layers": 1,
        "elements": 118,
        "zero_output": True,
        "scales": {  # fitted to this preset on ethanol and aspirin
            "triplet_product": (0.5,),
            "triplet_sum": (0.5,),
            "atom_sum": (0.12,),
            "output_sum": (0.13, 0.1),
        },
    },
}

ALIASES = {
    "num_spherical": "n_spherical",
    "spherical": "n_spherical",
    "num_radial": "n_radial",
    "radial": "n_radial",
    "num_blocks": "blocks",
    "emb_size_atom": "atom",
    "emb_size_edge": "edge",
    "emb_size_trip": "triplet",
    "trip": "triplet",
    "emb_size_rbf": "rbf",
    "emb_size_cbf": "cbf",
    "emb_size_bil_trip": "bilinear",
    "bil_trip": "bilinear",
    "num_before_skip": "before_skip",
    "num_after_skip": "after_skip",
    "num_concat": "concat",
    "num_atom": "atom_layers",
    "num_elements": "elements",
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
        x = (there + back.roll(to_triplets.shape[0], 0)) * HALF  # edge e ± P is the reverse of e
        m = self.after((m + self.before((skip + x) * HALF)) * HALF)  # (2P, F)

        x = sum_by(batch.edge_center, on_edges(m, torch.mul, to_atoms), h.shape[0])  # 2. (N, F)
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

        h = self.elements(batch.z - 1)  # 2. (N, A)
        messages = [self.embed(h, basis.embedding, batch)]  # (2P, F)
        for b, interaction in enumerate(self.interactions):  # 3.
            h, m = interaction(h, messages[-1], basis.triplet[b], basis.atom[b], basis.angular, batch)
            messages.append(m)
        energies = self.outputs(messages, basis.output, batch)  # 4. (N,)
        return sum_by(batch.system, energies, batch.n_systems)


def sizes(arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """Constructor arguments that published arrays tell by their shapes."""
    first = "int_blocks.0"
    found = {
        "blocks": count(arrays, "int_blocks.{}.dense_ca.linear.weight"),
        "before_skip": count(arrays, first + ".layers_before_skip.{}.dense_mlp.0.linear.weight"),
        "after_skip": count(arrays, first + ".layers_after_skip.{}.dense_mlp.0.linear.weight"),
        "concat": count(arrays, first + ".residual_m.{}.dense_mlp.0.linear.weight"),
    }
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if "atom_emb.embeddings.weight" in shapes:
        found["elements"], found["atom"] = shapes["atom_emb.embeddings.weight"]
    if "mlp_cbf3.weight" in shapes:
        found["n_spherical"], found["n_radial"], found["cbf"] = shapes["mlp_cbf3.weight"]
    if "mlp_rbf3.linear.weight" in shapes:
        found["rbf"] = shapes["mlp_rbf3.linear.weight"][0]
    if f"{first}.dense_ca.linear.weight" in shapes:
        found["edge"] = shapes[f"{first}.dense_ca.linear.weight"][0]
    if f"{first}.trip_interaction.mlp_cbf.weight" in shapes:
        found["triplet"], _, found["bilinear"] = shapes[f"{first}.trip_interaction.mlp_cbf.weight"]
    layers = {int(name.split(".")[4]) for name in shapes if name.startswith(f"{first}.atom_update.layers.")}
    if layers:
        found["atom_layers"] = max(layers)
    return found


def published(network: GemNetT) -> list[Entry]:
    """Our tensors under their published names (Open Catalyst Project's GemNet-T); tied ones have two."""
    bases, out, blocks = network.bases, network.outputs, len(network.interactions)
    triplet, atom, output, angular, embedding = bases.shared.weight.split(bases.sizes)
    centers = [network.radial.gaussians.centers] if isinstance(network.radial, GaussianBasis) else []
    to_triplets, to_atoms = bases.triplet.maps.weight.chunk(blocks), bases.atom.maps.weight.chunk(blocks)
    to_outputs = bases.output.maps.weight.chunk(blocks + 1)
    entries = [
        *(entry("radial_basis.rbf.offset", each, optional=True) for each in centers),
        *(entry("cbf_basis3.radial_basis.rbf.offset", each, optional=True) for each in centers),
        entry("mlp_rbf3.linear.weight", triplet),
        entry("mlp_rbf_h.linear.weight", atom),
        entry("mlp_rbf_out.linear.weight", output),
        entry("mlp_cbf3.weight", angular.unflatten(0, (bases.cbf, -1)).permute(1, 2, 0)),
        entry("atom_emb.embeddings.weight", network.elements.weight),
        entry("edge_emb.dense.linear.weight", *network.embed.atoms.weight.chunk(2), embedding),
    ]
    for b, block in enumerate(network.interactions):
        assert isinstance(block, Interaction)
        name = f"int_blocks.{b}"
        trip = f"{name}.trip_interaction"
        (ca, ba), (up_ca, up_ac) = block.ca_ba.weight.chunk(2), block.up.weight.chunk(2)
        entries += [
            entry(f"{name}.dense_ca.linear.weight", ca),
            entry(f"{trip}.dense_ba.linear.weight", ba),
            entry(f"{trip}.mlp_rbf.linear.weight", to_triplets[b]),
            entry(f"{trip}.scale_rbf.scale_factor", bases.triplet.scales[b]),
            entry(f"{trip}.mlp_cbf.weight", block.bilinear.transpose(0, 1)),
            entry(f"{trip}.scale_cbf_sum.scale_factor", block.triplet_sum),
            entry(f"{trip}.down_projection.linear.weight", block.down.weight),
            entry(f"{trip}.up_projection_ca.linear.weight", up_ca),
            entry(f"{trip}.up_projection_ac.linear.weight", up_ac),
            entry(f"{name}.atom_update.dense_rbf.linear.weight", to_atoms[b]),
            entry(f"{name}.atom_update.scale_sum.scale_factor", bases.atom.scales[b]),
            *linear(f"{name}.atom_update.layers.0.linear", block.atom[0]),
            entry(f"{name}.concat_layer.dense.linear.weight", *block.embed.atoms.weight.chunk(2), block.own.weight),
        ]
        places = {"layers_before_skip": block.before, "layers_after_skip": block.after, "residual_m": block.last}
        for place, layers in places.items():
            entries += _residuals(f"{name}.{place}", layers)
        entries += _residuals(f"{name}.atom_update.layers", list(block.atom)[1:])
    for b in range(len(out.first)):
        name = f"out_blocks.{b}"
        entries += [
            entry(f"{name}.dense_rbf.linear.weight", to_outputs[b]),
            entry(f"{name}.scale_sum.scale_factor", bases.output.scales[b]),
            entry(_tied(name, "0.linear.weight"), out.first[b].T),
            entry(f"{name}.out_energy.linear.weight", out.energy[b].T),
        ]
        for i, hidden in enumerate(out.hidden):
            entries.append(entry(_tied(name, f"{i // 2 + 1}.dense_mlp.{i % 2}.linear.weight"), hidden[b].T))
    return entries


def _residuals(name: str, layers: Iterable[nn.Module]) -> list[Entry]:
    """The weights of residual layers under their numbers in ``layers``, among which there may be others."""
    found = []
    for i, layer in enumerate(layers):
        if isinstance(layer, Residual):
            found += linear(f"{name}.{i}.dense_mlp.0.linear", layer.layers[0])
            found += linear(f"{name}.{i}.dense_mlp.1.linear", layer.layers[2])
    return found


def _tied(block: str, layer: str) -> tuple[str, str]:
    return f"{block}.layers.{layer}", f"{block}.seq_energy.{layer}"
