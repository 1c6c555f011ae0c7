"""Domains that are no box: solids, and what union, difference and intersection make of them.

A shape knows its signed distance (negative inside), and maps samples of the unit cube onto its surface. Of a composed
shape the surfaces of all solids are sampled alike, and what lies within another part is left out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from dcnn.errors import InputError, unknown

Surface = tuple[Tensor, Tensor]  # points (N, axes), and the number (N,) of the piece of the surface each is on


class Shape(ABC):
    """A region of space. `a | b` joins, `a & b` cuts, `a - b` takes away."""

    area: float  # of the surfaces of all solids (length in the plane, number of ends on a line)
    names: list[str]  # of the pieces of the surface, "ball" or "box.x-"

    @abstractmethod
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest corner (axes,) of a box around the shape."""

    @abstractmethod
    def distance(self, points: Tensor) -> Tensor:
        """Signed distance (N,), negative inside; of a composed shape no more than that, and exact near its surface."""

    @abstractmethod
    def surface(self, unit: Tensor) -> Surface:
        """Samples (N, axes) of the unit cube on the surface, evenly; what is not on it is left out."""

    @abstractmethod
    def normals(self, points: Tensor) -> Tensor:
        """Outward unit normals (N, axes) of the nearest piece of the surface."""

    def on(self, names: Sequence[str], unit: Tensor) -> Tensor:
        """Samples on the pieces of these names (all if there are none): a solid ("ball"), a face ("x-"), "box.x-"."""
        points, piece = self.surface(unit)
        if not names:
            return points
        labels = [{n, *n.split("."), n.split(".")[-1].rstrip("+-")} for n in self.names]  # box.x-, box, x-, x
        valid = sorted(set().union(*labels))
        for name in names:
            if name not in valid:
                raise unknown("part of the boundary", name, valid)
        chosen = [i for i, known in enumerate(labels) if known & {*names}]
        return points[torch.isin(piece, torch.tensor(chosen, device=piece.device))]

    def __or__(self, other: Shape) -> Shape:
        return Composed(self, other, "|")

    def __and__(self, other: Shape) -> Shape:
        return Composed(self, other, "&")

    def __sub__(self, other: Shape) -> Shape:
        return Composed(self, other, "-")


class Composed(Shape):
    """Two shapes joined (|), cut (&) or taken away (-): a minimum or a maximum of signed distances."""

    def __init__(self, first: Shape, second: Shape, how: str) -> None:
        axes = len(first.bounds()[0]), len(second.bounds()[0])
        if axes[0] != axes[1]:
            raise InputError(f"a shape of {axes[0]} dimensions cannot be combined with one of {axes[1]}")
        self.first, self.second, self.how = first, second, how
        self.turned = -1.0 if how == "-" else 1.0  # a & (not b)
        self.outside = 1.0 if how == "|" else -1.0  # where a point of one surface stays, seen from the other shape
        self.area, self.names = first.area + second.area, first.names + second.names

    def bounds(self) -> tuple[Tensor, Tensor]:
        (low, high), (other_low, other_high) = self.first.bounds(), self.second.bounds()
        if self.how == "-":
            return low, high
        lower, higher = (torch.minimum, torch.maximum) if self.how == "|" else (torch.maximum, torch.minimum)
        return lower(low, other_low), higher(high, other_high)

    def distance(self, points: Tensor) -> Tensor:
        first, second = self.first.distance(points), self.turned * self.second.distance(points)
        return torch.minimum(first, second) if self.how == "|" else torch.maximum(first, second)

    def surface(self, unit: Tensor) -> Surface:
        share = torch.tensor([self.first.area, self.second.area]) / self.area
        which, along = _pick(unit[:, 0], share)
        rest = torch.cat([along[:, None], unit[:, 1:]], 1)
        (one, piece), (two, other) = self.first.surface(rest[which == 0]), self.second.surface(rest[which == 1])
        away, apart = self.outside * self.turned * self.second.distance(one), self.outside * self.first.distance(two)
        rounding = 32 * torch.finfo(unit.dtype).eps * float((self.bounds()[1] - self.bounds()[0]).max())
        # Where both surfaces are one, it stays if both are on the same side of it, and counts once.
        same = (self.first.normals(one) * self.turned * self.second.normals(one)).sum(1) > 0.5
        first, second = (away > rounding) | ((away.abs() <= rounding) & same), apart > rounding
        return torch.cat([one[first], two[second]]), torch.cat([piece[first], other[second] + len(self.first.names)])

    def normals(self, points: Tensor) -> Tensor:
        near = self.first.distance(points).abs() <= self.second.distance(points).abs()
        return torch.where(near[:, None], self.first.normals(points), self.turned * self.second.normals(points))


class Box(Shape):
    """An interval, a rectangle or a cuboid. Its faces are named "x-", "x+", "y-", …"""

    def __init__(self, low: Sequence[float], high: Sequence[float], name: str = "box") -> None:
        self.low, self.high = torch.tensor(low, dtype=torch.float64), torch.tensor(high, dtype=torch.float64)
        if self.low.ndim != 1 or self.low.shape != self.high.shape or not bool((self.low < self.high).all()):
            raise InputError(f"Box: low {list(low)} must be below high {list(high)} on every axis")
        size = self.high - self.low
        self.faces = (size.prod() / size).repeat_interleave(2)  # areas of x-, x+, y-, …
        self.area = float(self.faces.sum())
        self.names = [f"{name}.{axis}{end}" for axis in "xyz"[: len(size)] for end in "-+"]

    def bounds(self) -> tuple[Tensor, Tensor]:
        return self.low, self.high

    def distance(self, points: Tensor) -> Tensor:
        low, high = self.low.to(points), self.high.to(points)
        beyond = (points - (low + high) / 2).abs() - (high - low) / 2  # (N, axes)
        return _norm(beyond.clamp_min(0)) + beyond.amax(1).clamp_max(0)

    def surface(self, unit: Tensor) -> Surface:
        face, _ = _pick(unit[:, 0], self.faces / self.area)
        low, high = self.low.to(unit), self.high.to(unit)
        points = torch.empty_like(unit)
        for i in range(len(self.names)):
            rows, axis, end = face == i, i // 2, i % 2
            points[rows, axis] = (low, high)[end][axis]
            for column, j in enumerate((j for j in range(len(low)) if j != axis), 1):
                points[rows, j] = low[j] + (high - low)[j] * unit[rows, column]
        return points, face

    def normals(self, points: Tensor) -> Tensor:
        away = (points - ((self.low + self.high) / 2).to(points)) / ((self.high - self.low) / 2).to(points)
        beyond = (away.abs() - 1) * ((self.high - self.low) / 2).to(points)
        nearest = torch.nn.functional.one_hot(beyond.argmax(1), beyond.shape[1])
        return nearest * away.sign()


class Ball(Shape):
    """A disc or a ball."""

    def __init__(self, centre: Sequence[float], radius: float, name: str = "ball") -> None:
        self.centre, self.radius, self.names = torch.tensor(centre, dtype=torch.float64), float(radius), [name]
        if self.centre.shape not in ((2,), (3,)) or not self.radius > 0:
            raise InputError(f"Ball: needs a centre of 2 or 3 numbers and a radius > 0, found {centre} and {radius}")
        self.area = 2 * math.pi * self.radius if len(self.centre) == 2 else 4 * math.pi * self.radius**2

    def bounds(self) -> tuple[Tensor, Tensor]:
        return self.centre - self.radius, self.centre + self.radius

    def distance(self, points: Tensor) -> Tensor:
        return _norm(points - self.centre.to(points)) - self.radius

    def surface(self, unit: Tensor) -> Surface:
        angle = 2 * math.pi * unit[:, 0]
        outward = torch.stack([angle.cos(), angle.sin()], 1)
        if len(self.centre) == 3:  # heights of points on a ball are uniform
            height = 2 * unit[:, 1:2] - 1
            outward = torch.cat([outward * (1 - height**2).clamp_min(0).sqrt(), height], 1)
        return self.centre.to(unit) + self.radius * outward, torch.zeros(len(unit), dtype=torch.long)

    def normals(self, points: Tensor) -> Tensor:
        return torch.nn.functional.normalize(points - self.centre.to(points), dim=1)


class Polygon(Shape):
    """A polygon in the plane, by its corners in either direction; its edges are named "0", "1", … in their order."""

    def __init__(self, corners: Sequence[Sequence[float]], name: str = "polygon") -> None:
        self.corners = torch.tensor(corners, dtype=torch.float64)
        if self.corners.ndim != 2 or self.corners.shape[1] != 2 or len(self.corners) < 3:
            raise InputError(f"Polygon: needs three or more corners (x, y), found {corners}")
        self.sides = self.corners.roll(-1, 0) - self.corners  # (edges, 2)
        twice = float((self.corners[:, 0] * self.sides[:, 1] - self.corners[:, 1] * self.sides[:, 0]).sum())
        lengths = self.sides.norm(dim=1)
        if twice == 0 or not bool((lengths > 0).all()):
            raise InputError(f"Polygon: corners {corners} enclose no area, or one comes twice")
        outward = torch.stack([self.sides[:, 1], -self.sides[:, 0]], 1) / lengths[:, None]
        self.outward, self.lengths = outward * math.copysign(1, twice), lengths
        self.area, self.names = float(lengths.sum()), [f"{name}.{i}" for i in range(len(corners))]

    def bounds(self) -> tuple[Tensor, Tensor]:
        return self.corners.amin(0), self.corners.amax(0)

    def distance(self, points: Tensor) -> Tensor:
        sides = self.sides.to(points)
        away = points[:, None] - self.corners.to(points)  # (N, edges, 2)
        nearest = self._to_edges(points).amin(1)
        # A ray to the right crosses an odd number of edges from inside.
        above, next_above = away[..., 1] >= 0, away.roll(-1, 1)[..., 1] >= 0
        left = sides[:, 0] * away[..., 1] - sides[:, 1] * away[..., 0] > 0
        crossed = (above & ~next_above & left.logical_not()) | (~above & next_above & left)
        odd = crossed.sum(1) % 2 == 1
        return torch.where(odd, -nearest, nearest)

    def surface(self, unit: Tensor) -> Surface:
        edge, along = _pick(unit[:, 0], self.lengths / self.area)
        return self.corners.to(unit)[edge] + along[:, None] * self.sides.to(unit)[edge], edge

    def _to_edges(self, points: Tensor) -> Tensor:
        """Distance (N, edges) to every edge."""
        sides = self.sides.to(points)
        away = points[:, None] - self.corners.to(points)  # (N, edges, 2)
        share = ((away * sides).sum(2) / sides.square().sum(1)).clamp(0, 1)
        return _norm(away - share[..., None] * sides)

    def normals(self, points: Tensor) -> Tensor:
        return self.outward.to(points)[self._to_edges(points).argmin(1)]


class Extrusion(Shape):
    """A shape in the plane, drawn out along z from `low` to `high`; its ends are named "z-" and "z+"."""

    def __init__(self, base: Shape, low: float, high: float, name: str = "extrusion") -> None:
        corner, other = base.bounds()
        if len(corner) != 2 or not low < high:
            raise InputError(f"Extrusion: needs a shape in the plane and low < high, found {low} and {high}")
        self.base, self.low, self.high = base, float(low), float(high)
        self.cap = float((other - corner).prod())  # of the box around it: what is outside is left out again
        self.area = base.area * (self.high - self.low) + 2 * self.cap
        self.names = [*base.names, f"{name}.z-", f"{name}.z+"]

    def bounds(self) -> tuple[Tensor, Tensor]:
        low, high = self.base.bounds()
        return torch.cat([low, low.new_tensor([self.low])]), torch.cat([high, high.new_tensor([self.high])])

    def distance(self, points: Tensor) -> Tensor:
        flat = self.base.distance(points[:, :2])
        tall = (points[:, 2] - (self.low + self.high) / 2).abs() - (self.high - self.low) / 2
        both = torch.stack([flat, tall], 1)
        return _norm(both.clamp_min(0)) + both.amax(1).clamp_max(0)

    def surface(self, unit: Tensor) -> Surface:
        shares = torch.tensor([self.base.area * (self.high - self.low), self.cap, self.cap]) / self.area
        which, along = _pick(unit[:, 0], shares)
        walls, caps = which == 0, which > 0
        points, piece = self.base.surface(torch.stack([along, unit[:, 2]], 1)[walls])
        height = self.low + (self.high - self.low) * unit[walls, 1:2][: len(points)]
        low, high = (b.to(unit) for b in self.base.bounds())
        flat, end = low + (high - low) * unit[caps, 1:], which[caps]
        ends = torch.cat([flat, torch.where(end == 1, self.low, self.high).to(unit)[:, None]], 1)
        kept = self.base.distance(flat) < 0
        points = torch.cat([torch.cat([points, height], 1), ends[kept]])
        return points, torch.cat([piece, end[kept] + len(self.base.names) - 1])

    def normals(self, points: Tensor) -> Tensor:
        flat, z = self.base.distance(points[:, :2]), points[:, 2:] - (self.low + self.high) / 2
        wall = (flat[:, None]).abs() <= (z.abs() - (self.high - self.low) / 2).abs()
        around = torch.cat([self.base.normals(points[:, :2]), torch.zeros_like(z)], 1)
        return torch.where(wall, around, torch.cat([torch.zeros_like(points[:, :2]), z.sign()], 1))


def _pick(u: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Which share each number of [0, 1) falls in, and where within it, again in [0, 1)."""
    edges = torch.cat([shares.new_zeros(1), shares.cumsum(0)]).to(u)
    which = torch.bucketize(u.contiguous(), edges[1:-1].contiguous(), right=True)
    return which, ((u - edges[which]) / shares.to(u)[which]).clamp(0, 1)


def _norm(vectors: Tensor) -> Tensor:
    """Length along the last axis, with a finite gradient at zero."""
    square = vectors.square().sum(-1)
    zero = square == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, square).sqrt())
