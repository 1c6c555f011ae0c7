"""Small SVG charts, drawn here and coloured by the page's style sheet (so that they follow light and dark)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike, NDArray

from dcnn.report import raster
from dcnn.report.ticks import ticks
from dcnn.results.metrics import short

WIDTH, HEIGHT = 360, 252
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 26, 40
MANY = 20  # values of an axis beyond which outliers near zero are cut off
COLOURS = 8  # classes c0 … c7 of the style sheet
Array = NDArray[np.floating]
_KEYS = {"dashed": "dashed", "level": "dashed", "dot": "dot", "small": "dot", "few": "dot", "ring": "ring"}


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    text: str
    colour: int
    style: str = "line"  # line, dashed, dot, ring


@dataclass(frozen=True)
class Figure:
    """A finished chart with what is written around it."""

    svg: Markup
    title: str
    note: str = ""
    keys: tuple[Key, ...] = ()


@dataclass
class Chart:
    """Marks on two axes, linear or logarithmic; axis labels carry their unit.

    Values that are not finite, or not positive on a log axis, are left out. `equal` gives both axes the same range.
    """

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    equal: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    rows: Sequence[str] = ()  # names along y instead of numbers; y is then the number of the row, from the top
    _marks: list[tuple[str, Array, Array, int, str]] = field(default_factory=list)
    _keys: dict[Key, None] = field(default_factory=dict)

    # ---- marks ----------------------------------------------------------------------------------------------------

    def line(self, x: ArrayLike, y: ArrayLike, colour: int = 0, label: str = "", style: str = "line") -> None:
        """A polyline; `style` is line, dashed or reference."""
        self._add(style, x, y, colour, label)

    def points(self, x: ArrayLike, y: ArrayLike, colour: int = 0, label: str = "", style: str = "dot") -> None:
        """Marks; `style` is dot, small (for thousands), few (for a hundred), ring or tick (a vertical stroke)."""
        self._add(style, x, y, colour, label)

    def steps(self, edges: ArrayLike, counts: ArrayLike, colour: int = 0, label: str = "") -> None:
        """The outline of a histogram with `edges` (n + 1,) and `counts` (n,)."""
        self._add("steps", np.repeat(edges, 2)[1:-1], np.repeat(counts, 2), colour, label)

    def spread(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: int = 0) -> None:
        """Vertical error bars."""
        for at, a, b in zip(*(np.atleast_1d(np.asarray(v, float)) for v in (x, low, high)), strict=True):
            self._add("bar", [at, at], [a, b], colour, "")

    def diagonal(self) -> None:
        """y = x, where a perfect prediction lies."""
        self._marks.append(("diagonal", np.empty(0), np.empty(0), 0, ""))

    def level(self, y: float, colour: int, label: str) -> None:
        """A dashed horizontal line over the whole chart."""
        self._add("level", [y, y], [y, y], colour, label)

    def _add(self, style: str, x: ArrayLike, y: ArrayLike, colour: int, label: str) -> None:
        xs, ys = np.asarray(x, float), np.asarray(y, float)
        good = np.isfinite(ys) & (ys > 0 if self.log_y else True)
        if style != "level":
            good &= np.isfinite(xs) & (xs > 0 if self.log_x else True)
        if not good.any():
            return
        self._marks.append((style, xs[good], ys[good], colour % COLOURS, label))
        if label:
            self._keys[Key(label, colour % COLOURS, _KEYS.get(style, "line"))] = None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(len(x) for _, x, *_ in self._marks)

    # ---- drawing --------------------------------------------------------------------------------------------------

    def figure(self, title: str, note: str = "") -> Figure:
        """The chart as SVG; a legend is made of the labels that were given."""
        x_range, y_range = self._ranges()
        across = _Scale(*x_range, self.log_x, self.left, WIDTH - self.right)
        up = _Scale(*y_range, self.log_y, self.height - BOTTOM, self.top)
        parts = [*self._axes(across, up), *(_mark(mark, across, up) for mark in self._marks)]
        described = escape(f"{title}: {self.y} against {self.x}")
        opening = f'<svg class="chart" viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{described}">'
        return Figure(Markup(opening + "".join(parts) + "</svg>"), title, note, tuple(self._keys))

    def _ranges(self) -> tuple[tuple[float, float], tuple[float, float]]:
        x = [a for style, a, *_ in self._marks if style != "level"]
        y = [b for _, _, b, *_ in self._marks]
        if self.equal:
            x = y = [*x, *y]
        steps = any(style == "steps" for style, *_ in self._marks)
        x_range = self.x_range or _range(x, self.log_x, padding=0.0 if steps else 0.03)
        y_range = self.y_range or _range([*y, np.zeros(1)] if steps else y, self.log_y)
        if self.rows:
            y_range = (len(self.rows) - 0.5, -0.5)
        elif steps and not self.log_y:
            y_range = (0.0, y_range[1])
        return x_range, y_range

    def _axes(self, across: _Scale, up: _Scale) -> Iterable[str]:
        left, right, bottom = self.left, WIDTH - self.right, self.height - BOTTOM
        for value, text in ticks(across.low, across.high, self.log_x):
            at = across(value)
            yield f'<path class="grid" d="M{at:.1f} {self.top}V{bottom}"/>'
            yield f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>'
        named = [(float(n), name) for n, name in enumerate(self.rows)] or ticks(up.low, up.high, self.log_y)
        for value, text in named:
            at = up(value)
            yield f'<path class="grid" d="M{left} {at:.1f}H{right}"/>'
            yield f'<text x="{left - 6}" y="{at + 3.5:.1f}" text-anchor="end">{escape(text)}</text>'
        yield f'<path class="axis" d="M{left} {bottom}H{right}"/>'
        yield f'<text class="name" x="{right}" y="{self.height - 7}" text-anchor="end">{escape(self.x)}</text>'
        yield f'<text class="name" x="2" y="13">{escape(self.y)}</text>'


def heat_map(
    title: str,
    values: Array,
    x: tuple[str, Array],
    y: tuple[str, Array],
    low: float,
    high: float,
    colours: str = raster.SEQUENTIAL,
    note: str = "",
) -> Figure:
    """`values` (len(x), len(y)) as colours between low and high, with a colour bar."""
    right = 66
    chart = Chart(x[0], y[0], right=right, x_range=_ends(x[1]), y_range=_ends(y[1]))
    left, bottom = chart.left, chart.height - BOTTOM
    width, height, bar = WIDTH - right - left, bottom - TOP, WIDTH - right + 10
    rising = np.linspace(high, low, 64)[:, None]
    parts = [
        _image(raster.picture(values.T[::-1], low, high, colours), left, TOP, width, height),
        _image(raster.picture(rising, low, high, colours), bar, TOP, 9, height),
    ]
    for share, value in ((0.0, low), (0.5, (low + high) / 2), (1.0, high)):
        at = bottom - share * height
        parts.append(f'<text x="{bar + 13}" y="{at + (4 if share == 0.5 else 1 if share == 0 else 7):.0f}">')
        parts.append(f"{short(value, 2)}</text>")
    framed = chart.figure(title, note)
    before, after = str(framed.svg).split(">", 1)  # pictures lie under the axes
    return Figure(Markup(before + ">" + "".join(parts) + after), title, note)


def _image(source: str, x: float, y: float, width: float, height: float) -> str:
    size = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<image {size} preserveAspectRatio="none" href="{source}"/>'


@dataclass(frozen=True)
class _Scale:
    """From values to places in the drawing."""

    low: float
    high: float
    log: bool
    begin: float
    end: float

    def __call__(self, value: ArrayLike) -> Array:
        v, low, high = (np.log10(a) if self.log else np.asarray(a, float) for a in (value, self.low, self.high))
        return self.begin + (v - low) / (high - low) * (self.end - self.begin)


def _ends(values: Array) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _range(arrays: Sequence[Array], log: bool, padding: float = 0.05) -> tuple[float, float]:
    joined = np.concatenate(arrays) if arrays else np.array([1.0])
    low, high = float(joined.min()), float(joined.max())
    if log:
        if len(joined) > MANY:  # a few values near zero must not flatten all the others
            low = max(low, float(np.quantile(joined, 0.05)) / 100)
        low, high = math.log10(low), math.log10(high)
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-12):
        wide = 0.3 if log else max(abs(low), 1.0) * 0.1
        low, high = low - wide, high + wide
    extra = padding * (high - low)
    low, high = low - extra, high + extra
    return (10.0**low, 10.0**high) if log else (low, high)


def _mark(mark: tuple[str, Array, Array, int, str], across: _Scale, up: _Scale) -> str:
    style, x, y, colour, label = mark
    title = f"<title>{escape(label)}</title>" if label else ""
    if style == "diagonal":
        low, high = max(across.low, up.low), min(across.high, up.high)
        ends = [(float(across(v)), float(up(v))) for v in (low, high)]
        return f'<path class="diagonal" d="{_path(ends)}"/>'
    if style == "level":
        across_all = f"M{across.begin:.0f} {up(y[0]):.1f}H{across.end:.0f}"
        return f'<path class="line dashed c{colour}" d="{across_all}">{title}</path>'
    inside = np.clip(y, min(up.low, up.high), max(up.low, up.high))
    places = list(zip(across(x).tolist(), up(inside).tolist(), strict=True))
    if style in ("dot", "ring"):
        return "".join(
            f'<circle class="{style} c{colour}" cx="{a:.1f}" cy="{b:.1f}" r="3.2">{title}</circle>' for a, b in places
        )
    if style == "tick":
        return "".join(f'<path class="line c{colour}" d="M{a:.1f} {b - 6:.1f}v12">{title}</path>' for a, b in places)
    if style in (
        "small",
        "few",
    ):  # one path of zero-length strokes with round ends: the cheapest way to draw thousands of dots
        dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in places)
        return f'<path class="small {style} c{colour}" d="{dots}">{title}</path>'
    kind = {"line": "line", "steps": "line", "bar": "line thin"}.get(style, f"line {style}")
    return f'<path class="{kind} c{colour}" d="{_path(places)}">{title}</path>'


def _path(places: Sequence[tuple[float, float]]) -> str:
    """A path without points that lie on the spot of the one before."""
    (a, b), *_ = places
    text = [f"M{a:.1f} {b:.1f}"]
    text += [f"L{q[0]:.1f} {q[1]:.1f}" for p, q in pairwise(places) if abs(p[0] - q[0]) + abs(p[1] - q[1]) > 0.05]
    return "".join(text)
