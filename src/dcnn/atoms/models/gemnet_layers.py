"""What GemNet-T is made of: scaled activations, He-orthogonal maps, residual layers, bases and outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dcnn.activations import SiLU, get
from dcnn.atoms.atoms_batch import AtomsBatch, Neighbourhoods
from dcnn.atoms.spherical import on_edges

HALF = 1 / math.sqrt(2)  # every sum of two terms is divided by √2, so that its variance stays


class ScaledSiLU(SiLU):
    """σ(x) = silu(x)/0.6, which keeps the variance of a standard normal input near one."""

    name = "scaled_silu"

    def _evaluate(self, x: Tensor, orders: Sequence[int]) -> list[Tensor]:
        return [value.mul_(1 / 0.6) for value in super()._evaluate(x, orders)]

    def _scaled(self, factor: Tensor, x: Tensor, n: int) -> Tensor:
        scaled = super()._scaled(factor, x, n)
        return scaled.mul_(1 / 0.6) if n == 1 else scaled  # the others come from _evaluate


def he_orthogonal_(*weights: Tensor) -> None:
    """Random (semi-)orthogonal matrices, each output with mean 0 and variance 1/fan_in over its inputs.

    A matrix has its outputs first; a tensor of three dimensions has them last.
    """
    with torch.no_grad():
        for weight in weights:
            inputs = (0, 1) if weight.dim() == 3 else (1,)
            fan_in = math.prod(weight.shape[axis] for axis in inputs)
            drawn = nn.init.orthogonal_(weight.new_empty(weight.shape))
            variance, mean = torch.var_mean(drawn, dim=inputs, keepdim=True)
            weight.copy_((drawn - mean) / (fan_in * (variance + 1e-6)).sqrt())


def dense(n_in: int, n_out: int, copies: int = 1) -> nn.Linear:
    """``copies`` He-orthogonal maps with a common input and without bias, their outputs side by side."""
    layer = nn.Linear(n_in, n_out * copies, bias=False)
    he_orthogonal_(*layer.weight.chunk(copies))
    return layer


class Residual(nn.Module):
    """(x + σ(W₂ σ(W₁ x)))/√2."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(dense(width, width), ScaledSiLU(), dense(width, width), ScaledSiLU())

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.layers(x)) * HALF


def residuals(width: int, number: int) -> nn.Sequential:
    """``number`` residual layers in a row."""
    return nn.Sequential(*(Residual(width) for _ in range(number)))


class EdgeEmbedding(nn.Module):
    """σ(W [h_s, h_t, own_st]) for edges s→t, with W applied part by part.

    ``own`` is the part of W that acts on what edges or pairs bring along; its products are handed to ``forward``.
    """

    def __init__(self, atom: int, edge: int, own: Tensor) -> None:
        super().__init__()
        self.atoms = nn.Linear(atom, 2 * edge, bias=False)
        self.act = ScaledSiLU()
        whole = own.new_empty(edge, 2 * atom + own.shape[1])
        he_orthogonal_(whole)
        with torch.no_grad():
            self.atoms.weight.copy_(torch.cat(whole[:, : 2 * atom].chunk(2, dim=1)))
            own.copy_(whole[:, 2 * atom :])

    def forward(self, h: Tensor, own: Tensor, batch: AtomsBatch) -> Tensor:
        source, target = self.atoms(h).chunk(2, dim=1)
        x = source.index_select(0, batch.edge_neighbour) + target.index_select(0, batch.edge_center)  # (2P, F)
        return self.act(x + own if own.shape[0] == x.shape[0] else on_edges(x, torch.add, own))


class Scaled(nn.Module):
    """c_b·W_b x for every block b, with constants c_b fitted once so that what follows keeps its variance."""

    def __init__(self, n_in: int, n_out: int, scales: Sequence[float]) -> None:
        super().__init__()
        self.maps = dense(n_in, n_out, copies=len(scales))
        self.scales = nn.Parameter(torch.tensor(scales), requires_grad=False)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(P, n_in) → (P, n_out) of every block."""
        weight = self.maps.weight.view(len(self.scales), -1, x.shape[1]) * self.scales.view(-1, 1, 1)
        return (x @ weight.flatten(0, 1).T).view(x.shape[0], *weight.shape[:2]).unbind(1)


class Basis(NamedTuple):
    """What depends on the geometry alone: of each block (P, F) for triplets, atoms, outputs; C (N, n·c, n); (P, F)."""

    triplet: tuple[Tensor, ...]
    atom: tuple[Tensor, ...]
    output: tuple[Tensor, ...]
    angular: Tensor
    embedding: Tensor


class Bases(nn.Module):
    """Every linear map of the radial basis e(d), those of a common input as one product, and the angular basis

    C[o, c; b] = Σ_l (W_l e(d_o))_c·Y_l(α_ob) for two edges o and b into one atom, shared by all blocks.
    """

    def __init__(
        self, n_spherical: int, n_radial: int, rbf: int, cbf: int, edge: int, scales: Sequence[Sequence[float]]
    ) -> None:
        super().__init__()
        self.cbf, self.sizes = cbf, (rbf, rbf, rbf, cbf * n_spherical, edge)
        self.shared = nn.Linear(n_radial, sum(self.sizes), bias=False)
        triplet, atom, output, angular, embedding = self.shared.weight.split(self.sizes)
        he_orthogonal_(triplet, atom, output, angular.view(cbf, n_spherical, n_radial).permute(1, 2, 0), embedding)
        self.triplet, self.atom, self.output = (Scaled(rbf, edge, values) for values in scales)

    def forward(self, rbf: Tensor, angles: Tensor, at: Neighbourhoods) -> Basis:
        """(P, R) and (N·n, n, L) → :class:`Basis`."""
        triplet, atom, output, angular, embedding = self.shared(rbf).split(self.sizes, dim=1)
        n_atoms, n = at.edge.shape
        angular = angular.index_select(0, at.edge.view(-1) % max(rbf.shape[0], 1))  # (N·n, c·L)
        angular = torch.bmm(angular.unflatten(1, (self.cbf, -1)), angles.transpose(1, 2))  # (N·n, c, n)
        angular = angular.view(n_atoms, n * self.cbf, n)
        return Basis(self.triplet(triplet), self.atom(atom), self.output(output), angular, embedding)


class Outputs(nn.Module):
    """ε_t = Σ_b w_b·MLP_b(Σ_s m⁽ᵇ⁾_st ⊙ O_b e(d_st)), all blocks b at once as batched products."""

    def __init__(self, edge: int, atom: int, layers: int, blocks: int, activation: str | nn.Module | None) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.empty(blocks, edge, atom))
        self.hidden = nn.Parameter(torch.empty(2 * layers, blocks, atom, atom))
        self.energy = nn.Parameter(torch.empty(blocks, atom, 1))
        he_orthogonal_(*self.first.mT, *self.hidden.flatten(0, 1).mT, *self.energy.mT)
        acts = (ScaledSiLU() if activation is None else get(activation) for _ in range(2 * layers + 1))
        self.acts = nn.ModuleList(acts)

    def forward(self, messages: Sequence[Tensor], radial: Sequence[Tensor], batch: AtomsBatch) -> Tensor:
        sent = [on_edges(m, torch.mul, r) for m, r in zip(messages, radial, strict=True)]
        x = batch.sum_edges(torch.cat(sent, 1))  # (N, B·F)
        x = x.view(batch.z.shape[0], len(sent), -1).transpose(0, 1)  # (B, N, F)
        x = self.acts[0](torch.bmm(x, self.first))  # (B, N, A)
        for i in range(0, len(self.hidden), 2):
            y = self.acts[i + 1](torch.bmm(x, self.hidden[i]))
            x = (x + self.acts[i + 2](torch.bmm(y, self.hidden[i + 1]))) * HALF
        return torch.bmm(x, self.energy).sum((0, 2))  # (N,)
