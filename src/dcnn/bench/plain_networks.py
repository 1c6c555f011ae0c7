"""The five networks of the paper as their published code computes them: what ours is checked and timed against.

Every directed edge has a row of its own (basis, filters, Linear(cat[x_i, x_j, e_ij])), angles are lists of triplets,
sums are `index_add`, activations are torch's. Lists of edges and triplets are made once a batch, which flatters these
networks: the published code makes them anew at every step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dcnn.atoms import AtomsBatch, energy_and_forces
from dcnn.atoms.atoms_batch import Edges, sum_by
from dcnn.atoms.models import PAPER, weights_of
from dcnn.atoms.models.weights.mapping import count
from dcnn.errors import DcnnError, InputError

Weights = Mapping[str, Tensor]
SAME = 1e-5  # of the largest energy and force: how far two networks of one formula may be apart, in float64


class Lists:
    """Directed edges within the cutoff, centre ← neighbour, and what is listed about them."""

    def __init__(self, batch: AtomsBatch, cutoff: float) -> None:
        near = (batch.pair_vectors().detach().norm(dim=1) < cutoff).nonzero().squeeze(1)
        self.kept = torch.cat([near, near + batch.pair_i.shape[0]])  # of the edges of the batch
        self.center, self.neighbour = batch.edge_center[self.kept], batch.edge_neighbour[self.kept]
        self.back = torch.arange(len(self.kept)).roll(len(near))  # the same pair from the other side
        self.n_atoms = len(batch.z)

    def _into(self, atom: Tensor) -> tuple[Tensor, Tensor]:
        """Every edge e with every edge into atom[e]."""
        order, into = torch.argsort(self.center, stable=True), torch.bincount(self.center, minlength=self.n_atoms)
        number = into[atom]
        edge = torch.arange(len(atom)).repeat_interleave(number)
        within = torch.arange(len(edge)) - (number.cumsum(0) - number)[edge]
        return edge, order[(into.cumsum(0) - into)[atom[edge]] + within]

    @cached_property
    def in_line(self) -> tuple[Tensor, Tensor]:
        """Edges j→i with the edges k→j, but for k = i."""
        ji, kj = self._into(self.neighbour)
        other = kj != self.back[ji]
        return ji[other], kj[other]

    @cached_property
    def beside(self) -> tuple[Tensor, Tensor]:
        """For every edge c→a the other edges b→a, (E, K), and which of these places are filled."""
        ca, ba = self._into(self.center)
        ca, ba = ca[ca != ba], ba[ca != ba]
        number = torch.bincount(ca, minlength=len(self.kept))
        place = torch.arange(len(ca)) - (number.cumsum(0) - number)[ca]
        table = torch.zeros(len(self.kept), int(number.max()), dtype=torch.long)
        table[ca, place] = ba
        return table, torch.arange(table.shape[1]) < number.unsqueeze(1)


class Geometry:
    """Lists of a batch with vectors from centre to neighbour, their lengths, and the cosine envelope of the cutoff."""

    def __init__(self, batch: AtomsBatch, lists: Lists, cutoff: float) -> None:
        self.batch, self.lists = batch, lists
        self.i, self.j = lists.center, lists.neighbour
        self.vectors = batch.edge_vectors()[lists.kept]
        self.r = self.vectors.norm(dim=-1)
        self.unit = self.vectors / self.r.unsqueeze(-1)
        self.x = (self.r / cutoff).unsqueeze(-1)
        self.envelope = 0.5 * (torch.cos(math.pi * self.x) + 1)

    def to_atoms(self, values: Tensor) -> Tensor:
        return sum_by(self.i, values, len(self.batch.z))

    def to_systems(self, values: Tensor) -> Tensor:
        return sum_by(self.batch.system, values, self.batch.n_systems)


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def smear(x: Tensor, centers: Tensor) -> Tensor:
    """Gaussians as usually written."""
    return torch.exp(-0.5 / (centers[1] - centers[0]) ** 2 * (x - centers) ** 2)


def zonal(cosine: Tensor, number: int) -> Tensor:
    """√((2l+1)/4π)·P_l(cos α) for l < number, by the usual recurrence, along a new last dimension."""
    legendre = [torch.ones_like(cosine), cosine]
    for n in range(1, number - 1):
        legendre.append(((2 * n + 1) * cosine * legendre[n] - n * legendre[n - 1]) / (n + 1))
    return torch.stack([math.sqrt((2 * n + 1) / (4 * math.pi)) * p for n, p in enumerate(legendre[:number])], -1)


def spherical_bessel(order: int, x: Tensor) -> Tensor:
    """j_l(x) by the usual recurrence."""
    below, here = torch.cos(x) / x, torch.sin(x) / x
    for n in range(order):
        below, here = here, (2 * n + 1) / x * here - below
    return here


def schnet(w: Weights, network: Any, at: Geometry) -> Tensor:
    def sigma(x: Tensor) -> Tensor:
        return F.softplus(x) - math.log(2)

    g = smear(at.r.unsqueeze(-1), w["distance_expansion.offset"])
    x = w["embedding.weight"][at.batch.z]
    for b in range(count(w, "interactions.{}.lin.weight")):
        name = f"interactions.{b}"
        filters = linear(w, f"{name}.mlp.2", sigma(linear(w, f"{name}.mlp.0", g))) * at.envelope
        received = at.to_atoms(linear(w, f"{name}.conv.lin1", x)[at.j] * filters)
        x = x + linear(w, f"{name}.lin", sigma(linear(w, f"{name}.conv.lin2", received)))
    return at.to_systems(linear(w, "lin2", sigma(linear(w, "lin1", x))).squeeze(-1))


def cgcnn(w: Weights, network: Any, at: Geometry) -> Tensor:
    """Smooth at the cutoff; the mean or the sum over atoms, as the network has it."""
    g = smear(at.r.unsqueeze(-1), w["distance_expansion.offset"])
    x = linear(w, "embedding_fc", w["khot_embedding"][at.batch.z - 1])
    for b in range(count(w, "convs.{}.lin1.weight")):
        gate, core = linear(w, f"convs.{b}.lin1", torch.cat([x[at.i], x[at.j], g], dim=1)).chunk(2, dim=1)
        x = F.softplus(x + at.to_atoms(torch.sigmoid(gate) * F.softplus(core) * at.envelope))
    mean = network.readout == "mean"
    if mean:
        x = at.to_systems(x) / at.to_systems(torch.ones_like(x[:, :1]))
    x = F.softplus(linear(w, "conv_to_fc.0", x))
    for layer in range(sum(name.startswith("fcs.") for name in w) // 2):
        x = F.softplus(linear(w, f"fcs.{2 * layer}", x))
    x = linear(w, "fc_out", x).squeeze(-1)
    return x if mean else at.to_systems(x)


def forcenet(w: Weights, network: Any, at: Geometry) -> Tensor:
    """Smooth at the cutoff, without normalization."""
    repeats, z = network.edge_basis.gaussians, at.batch.z
    near, own = w["atom_radii"][z[at.j]], w["atom_radii"][z[at.i]]
    shifted = torch.stack([at.r, at.r - near, at.r - own, at.r - near - own], dim=1) / network.cutoff
    raw, width = torch.cat([0.5 * (at.unit + 1), shifted], dim=1), -0.5 * (repeats - 1) ** 2
    g = torch.exp(width * (raw.repeat(1, repeats) - w["basis_fun.smearing.offset"]) ** 2)
    elements = w["atom_map"][z].repeat(1, repeats) - w["embedding.0.smearing.offset"]
    x = linear(w, "embedding.1", torch.exp(width * elements**2))
    for b in range(count(w, "interactions.{}.lin.weight")):
        name = f"interactions.{b}"
        e = torch.cat([linear(w, f"{name}.lin_basis", g), x[at.j], x[at.i]], dim=1)
        e = F.silu(linear(w, f"{name}.mlp_edge.2", F.silu(linear(w, f"{name}.mlp_edge.0", e))))
        e = linear(w, f"{name}.mlp_edge.4", e) * at.envelope
        value = linear(w, f"{name}.lin", x)
        y = at.to_atoms(value[at.j] * e) + w[f"{name}.center_W"] * value
        x = x + linear(w, f"{name}.mlp_trans.2", F.silu(linear(w, f"{name}.mlp_trans.0", y)))
    return linear(w, "energy_mlp", at.to_systems(F.silu(linear(w, "lin", x)))).squeeze(-1)


def dimenet_plus_plus(w: Weights, network: Any, at: Geometry) -> Tensor:
    zeros, p = w["bessel_zeros_f32"], network.bessel.exponent + 1  # (L, R)
    polynomial = at.x ** (p - 1) * (p * (p + 2) * at.x - 0.5 * p * (p + 1) * at.x**2 - 0.5 * (p + 1) * (p + 2))
    envelope = 1 / at.x + polynomial
    rbf = envelope * torch.sin(w["rbf.freq"] * at.x)
    radial = torch.stack(
        [
            math.sqrt(2) / spherical_bessel(n + 1, row).abs() * spherical_bessel(n, row * at.x)
            for n, row in enumerate(zeros)
        ],
        dim=1,
    )  # (E, L, R)
    ji, kj = at.lists.in_line
    angles = zonal((at.unit[ji] * at.unit[kj]).sum(-1), len(zeros))
    sbf = ((envelope.unsqueeze(-1) * radial)[kj] * angles.unsqueeze(-1)).flatten(1)  # (T, L·R)

    def residuals(name: str, x: Tensor) -> Tensor:
        for i in range(count(w, f"{name}.{{}}.lin1.weight")):
            x = x + F.silu(linear(w, f"{name}.{i}.lin2", F.silu(linear(w, f"{name}.{i}.lin1", x))))
        return x

    def output(b: int, m: Tensor) -> Tensor:
        name = f"output_blocks.{b}"
        x = linear(w, f"{name}.lin_up", at.to_atoms(linear(w, f"{name}.lin_rbf", rbf) * m))
        for i in range(count(w, f"{name}.lins.{{}}.weight")):
            x = F.silu(linear(w, f"{name}.lins.{i}", x))
        return linear(w, f"{name}.lin", x)

    h = w["emb.emb.weight"][at.batch.z]
    m = F.silu(linear(w, "emb.lin", torch.cat([h[at.i], h[at.j], F.silu(linear(w, "emb.lin_rbf", rbf))], dim=1)))
    energy = output(0, m)
    for b in range(count(w, "interaction_blocks.{}.lin.weight")):
        name = f"interaction_blocks.{b}"
        x = F.silu(linear(w, f"{name}.lin_kj", m)) * linear(w, f"{name}.lin_rbf2", linear(w, f"{name}.lin_rbf1", rbf))
        x = F.silu(linear(w, f"{name}.lin_down", x))
        x = x[kj] * linear(w, f"{name}.lin_sbf2", linear(w, f"{name}.lin_sbf1", sbf))
        x = F.silu(linear(w, f"{name}.lin_up", sum_by(ji, x, len(m))))
        x = residuals(f"{name}.layers_before_skip", F.silu(linear(w, f"{name}.lin_ji", m)) + x)
        m = residuals(f"{name}.layers_after_skip", m + F.silu(linear(w, f"{name}.lin", x)))
        energy = energy + output(b + 1, m)
    return at.to_systems(energy.squeeze(-1))


def gemnet(w: Weights, network: Any, at: Geometry) -> Tensor:
    """With the sums over triplets as products of padded matrices, as published; the radial basis is the network's."""
    half = 1 / math.sqrt(2)

    def sigma(x: Tensor) -> Tensor:
        return F.silu(x) / 0.6

    def residuals(name: str, x: Tensor, first: int = 0) -> Tensor:
        i = first
        while f"{name}.{i}.dense_mlp.0.linear.weight" in w:
            inner = sigma(linear(w, f"{name}.{i}.dense_mlp.0.linear", x))
            x, i = (x + sigma(linear(w, f"{name}.{i}.dense_mlp.1.linear", inner))) * half, i + 1
        return x

    def of_atoms(name: str, m: Tensor, basis: Tensor) -> Tensor:
        x = at.to_atoms(linear(w, f"{name}.dense_rbf.linear", basis) * m) * w[f"{name}.scale_sum.scale_factor"]
        return residuals(f"{name}.layers", sigma(linear(w, f"{name}.layers.0.linear", x)), first=1)

    rbf, (others, filled) = network.radial(at.r), at.lists.beside  # (E, R), (E, K)
    cosine = (at.unit.unsqueeze(1) * at.unit[others]).sum(-1)
    angles = zonal(cosine, w["mlp_cbf3.weight"].shape[0]) * filled.unsqueeze(-1)  # (E, K, L)
    of_edges = (rbf @ w["mlp_cbf3.weight"]).permute(1, 2, 0)  # (E, c, L)
    to_triplets, to_atoms, to_output = (linear(w, f"mlp_rbf{kind}.linear", rbf) for kind in ("3", "_h", "_out"))

    h = w["atom_emb.embeddings.weight"][at.batch.z - 1]
    m = sigma(linear(w, "edge_emb.dense.linear", torch.cat([h[at.j], h[at.i], rbf], dim=1)))
    energy = linear(w, "out_blocks.0.out_energy.linear", of_atoms("out_blocks.0", m, to_output))
    for b in range(count(w, "int_blocks.{}.dense_ca.linear.weight")):
        name = f"int_blocks.{b}"
        trip = f"{name}.trip_interaction"
        x = sigma(linear(w, f"{trip}.dense_ba.linear", m)) * linear(w, f"{trip}.mlp_rbf.linear", to_triplets)
        x = sigma(linear(w, f"{trip}.down_projection.linear", x * w[f"{trip}.scale_rbf.scale_factor"]))
        x = of_edges @ (angles.transpose(1, 2) @ x[others])  # (E, c, T)
        x = torch.einsum("ect,tcb->eb", x, w[f"{trip}.mlp_cbf.weight"]) * w[f"{trip}.scale_cbf_sum.scale_factor"]
        there = sigma(linear(w, f"{trip}.up_projection_ca.linear", x))
        x = (there + sigma(linear(w, f"{trip}.up_projection_ac.linear", x))[at.lists.back]) * half
        x = (sigma(linear(w, f"{name}.dense_ca.linear", m)) + x) * half
        m = residuals(f"{name}.layers_after_skip", (m + residuals(f"{name}.layers_before_skip", x)) * half)
        h = (h + of_atoms(f"{name}.atom_update", m, to_atoms)) * half
        x = sigma(linear(w, f"{name}.concat_layer.dense.linear", torch.cat([h[at.j], h[at.i], m], dim=1)))
        m = (m + residuals(f"{name}.residual_m", x)) * half
        out = f"out_blocks.{b + 1}"
        energy = energy + linear(w, f"{out}.out_energy.linear", of_atoms(out, m, to_output))
    return at.to_systems(energy.squeeze(-1))


FORMULAS: dict[str, Callable[[Weights, Any, Geometry], Tensor]] = {
    "schnet": schnet,
    "cgcnn": cgcnn,
    "dimenet_plus_plus": dimenet_plus_plus,
    "forcenet": forcenet,
    "gemnet": gemnet,
}


class Plain(nn.Module):
    """A network of ours evaluated by one of the formulas above, with its own copy of the weights."""

    def __init__(self, name: str, network: nn.Module) -> None:
        super().__init__()
        if name not in FORMULAS:
            raise InputError(f"--against plain: {name} is not among the networks of the paper ({', '.join(PAPER)})")
        self.formula, self.cutoff = FORMULAS[name], float(network.cutoff)  # type: ignore[arg-type]
        self.shape = [network]  # in a list: its parameters are not trained here
        self.made: dict[int, tuple[Edges, Lists]] = {}
        self.names: dict[str, str] = {}
        dtype = next(network.parameters()).dtype
        for item in weights_of(name).published(network):
            key = item.names[0].replace(".", "_")
            trained = any(part.requires_grad for part in item.parts)
            self.register_parameter(key, nn.Parameter(item.value().detach().clone().to(dtype), requires_grad=trained))
            self.names[item.names[0]] = key

    def forward(self, batch: AtomsBatch) -> Tensor:
        edges = batch._edges()
        if id(edges) not in self.made:
            self.made[id(edges)] = edges, Lists(batch, self.cutoff)
        weights = {name: getattr(self, key) for name, key in self.names.items()}
        return self.formula(weights, self.shape[0], Geometry(batch, self.made[id(edges)][1], self.cutoff))


class Geometric(nn.Module):
    """PyTorch Geometric's SchNet with our weights, on edges that are given to it."""

    def __init__(self, name: str, network: nn.Module) -> None:
        super().__init__()
        if name != "schnet":
            raise InputError(f"--against pyg: PyTorch Geometric's SchNet is measured here, not {name}")
        from torch_geometric.nn import SchNet

        weights = weights_of(name)
        arrays = {key: item.value().detach() for item in weights.published(network) for key in item.names}
        sizes, self.cutoff = weights.sizes(arrays), float(network.cutoff)  # type: ignore[arg-type]
        width, filters, blocks, gaussians = (sizes[key] for key in ("features", "filters", "blocks", "gaussians"))
        self.network = SchNet(width, filters, blocks, gaussians, self.cutoff, interaction_graph=self.graph)
        self.network.load_state_dict(arrays)
        self.to(arrays["lin1.weight"].dtype)
        self.edges: Tensor

    def graph(self, positions: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        return self.edges, (positions[self.edges[0]] - positions[self.edges[1]]).norm(dim=-1)

    def forward(self, batch: AtomsBatch) -> Tensor:
        near = batch.within(self.cutoff)
        self.edges = torch.stack([near.edge_neighbour, near.edge_center])
        return self.network(batch.z, batch.positions, batch.system).squeeze(-1)


PEERS: dict[str, type[Plain] | type[Geometric]] = {"plain": Plain, "pyg": Geometric}


def check_same(peer: str, name: str, network: nn.Module, batch: AtomsBatch) -> float:
    """How far energies and forces of a peer are from ours, of the largest, in float64; an error beyond 1e-5."""
    ours = copy.deepcopy(network).double()
    for parameter in ours.parameters():
        if not parameter.any():  # an output that begins at zero would compare nothing
            nn.init.normal_(parameter)
    batch = batch.to(dtype=torch.float64)
    pairs = zip(energy_and_forces(ours, batch), energy_and_forces(PEERS[peer](name, ours), batch), strict=True)
    apart = max(float((mine - other).detach().abs().max() / mine.detach().abs().max()) for mine, other in pairs)
    if not apart < SAME:
        raise DcnnError(
            f"{name}: {peer} is not the same network: energies or forces differ by {apart:.2g} of the largest"
        )
    return apart
