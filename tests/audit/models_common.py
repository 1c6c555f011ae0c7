"""What a row of the table is, and the small networks that many rows share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """`make()` gives (model, sample); `codes` are all that the audit must find."""

    make: Callable[[], tuple[Any, Any]]
    codes: frozenset[str]
    options: dict[str, Any] = field(default_factory=dict)


class Table(dict):
    """name → Case, filled by a decorator or line by line."""

    def row(self, codes: str = "", **options: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
        def register(make: Callable[[], Any]) -> Callable[[], Any]:
            self.add(make.__name__, make, codes, **options)
            return make

        return register

    def add(self, name: str, make: Callable[[], Any], codes: str = "", **options: Any) -> None:
        assert name not in self, name
        self[name] = Case(make, frozenset(codes.split()), options)


class Call(nn.Module):
    """A function of torch as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def mlp(activation: Any, inputs: int = 3, width: int = 16, depth: int = 2, norm: Any = None, outputs: int = 1):
    """Linear, activation, …, Linear; `activation` is a class or a function of a tensor."""
    layers: list[nn.Module] = []
    for i in range(depth):
        layers.append(nn.Linear(inputs if i == 0 else width, width))
        layers += [norm(width)] if norm else []
        layers.append(activation() if isinstance(activation, type) else Call(activation))
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def points(n: int = 32, d: int = 3) -> Tensor:
    return torch.randn(n, d)


def molecule(n: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """(z, positions, edges (2, E)) of two well separated molecules as one graph, and all pairs within each."""
    grid = torch.tensor([[i % 2, i // 2 % 2, i // 4] for i in range(n)]).float() * 1.4
    positions = torch.cat([grid + 0.1 * torch.randn(n, 3), grid + 0.1 * torch.randn(n, 3) + 50.0])
    pairs = [(i + s, j + s) for s in (0, n) for i in range(n) for j in range(n) if i != j]
    return torch.tensor([1, 6, 8, 1, 6, 1] * 2)[: 2 * n], positions, torch.tensor(pairs).T
