"""Element features: CGCNN's 92 k-hot columns, ForceNet's nine continuous ones and its atomic radii.

They come from ``element_table.json``, which ``tools/make_element_tables.py`` writes from the ``mendeleev`` package
(the atomic volumes of the eleven gases from the published ForceNet table). The published tables agree with ours up to
values that have been revised since; networks take the published ones when :func:`dcnn.atoms.from_reference` is given
them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

MAX_Z = 100
BLOCKS = "spdf"


@cache
def properties() -> dict[str, list[Any]]:
    """Columns of the table, each a list over Z = 1 … 100 with None where no value is known."""
    table = json.loads(files("dcnn.atoms").joinpath("element_table.json").read_text())
    return dict(zip(table["columns"], (list(column) for column in zip(*table["rows"], strict=True)), strict=True))


def _bins(low: float, high: float, scale: Callable[[float], float] = float) -> Callable[[float], int]:
    """Which of ten equal bins over (low, high] a value falls into; values outside go to the first or last."""
    return lambda value: min(max(math.ceil(10 * (scale(value) - low) / (high - low) - 1e-9) - 1, 0), 9)


def khot_table() -> Tensor:
    """CGCNN's element features, (100, 92) of zeros and ones, row Z − 1.

    Columns: group 0–18 (0: none), period 1–7, Pauling electronegativity 0.5–4, covalent radius 25–250 pm,
    valence electrons 1–12, log ionization energy 1.3–3.3, electron affinity −3–3.7 eV, block s p d f, log
    atomic volume
    1.5–4.3 (bins of ten where a range is given). An unknown value leaves its columns zero.
    """
    table = properties()
    groups: list[tuple[str, int, Callable[[Any], int]]] = [
        ("group", 19, int),
        ("period", 7, lambda value: value - 1),
        ("electronegativity_pauling", 10, _bins(0.5, 4.0)),
        ("covalent_radius_pyykko_pm", 10, _bins(25.0, 250.0)),
        ("valence_electrons", 12, lambda value: min(value, 12) - 1),
        ("ionization_energy_eV", 10, _bins(1.3, 3.3, math.log)),
        ("electron_affinity_eV", 10, _bins(-3.0, 3.7)),
        ("block", 4, BLOCKS.index),
        ("atomic_volume_cm3_mol", 10, _bins(1.5, 4.3, math.log)),
    ]
    khot = torch.zeros(MAX_Z, sum(width for _, width, _ in groups), dtype=torch.float64)
    start = 0
    for name, width, position in groups:
        for row, value in enumerate(table[name]):
            if value is not None or name == "group":
                khot[row, start + position(value or 0)] = 1.0
        start += width
    return khot


def continuous_table() -> Tensor:
    """ForceNet's element features, (101, 9) squashed to [0, 1], row Z; row 0 is empty.

    Columns: group, period, Sanderson electronegativity, covalent radius, valence electrons, ionization
    energy, electron affinity (−3 eV where unknown), block, atomic volume. Other unknown values take the
    column's mean.
    """
    table = properties()
    columns = (
        table["group"],
        table["period"],
        table["electronegativity_sanderson"],
        table["covalent_radius_cordero_pm"],
        table["valence_electrons"],
        table["ionization_energy_eV"],
        [-3.0 if value is None else value for value in table["electron_affinity_eV"]],
        [BLOCKS.index(value) for value in table["block"]],
        table["atomic_volume_cm3_mol"],
    )
    features = torch.stack([_filled(column) for column in columns], dim=1)  # (100, 9)
    low, high = features.amin(0), features.amax(0)
    return torch.cat([torch.zeros(1, 9, dtype=torch.float64), (features - low) / (high - low)])


def radii_table() -> Tensor:
    """Atomic radii in Å, (101,), index Z; unknown ones take the mean, index 0 is empty."""
    return torch.cat([torch.zeros(1, dtype=torch.float64), _filled(properties()["atomic_radius_pm"]) / 100])


def _filled(column: list[Any]) -> Tensor:
    """The column as float64 with unknown values replaced by its mean."""
    values = torch.tensor([math.nan if value is None else float(value) for value in column], dtype=torch.float64)
    return torch.where(values.isnan(), values.nanmean(), values)
