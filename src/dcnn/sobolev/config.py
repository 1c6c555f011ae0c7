"""What a run on values and derivatives is; plain dataclasses, so that it needs torch and numpy only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from dcnn.losses.terms import Norm
from dcnn.train.config import Checked, Training, setting

RECIPE: dict[str, Any] = {
    "training": {
        "minutes": 1.0,
        "batch_size": 64,
        "stages": [{"optimizer": "soap", "learning_rate": 3e-3, "warmup": 0.02, "clip_norm": 10.0}],
        "ema": 0.999,
    }
}


@dataclass(frozen=True)
class SobolevConfig(Checked):
    """A network of the user's own on labelled points."""

    training: Training
    kind: Literal["sobolev"] = "sobolev"
    recipe: str = "best"
    seed: int = 0
    data: str = setting("", "npz file with x and label_*; a run keeps its own")
    network: str = setting("", "class of the network, for whoever opens the run")
    coordinates: tuple[str, ...] | None = setting(None, "letters of the columns of x; default x, y, z and t last")
    scale: bool = setting(True, "train in units in which labels and inputs are of order one")
    weights: dict[str, float] = field(default_factory=dict, metadata={"description": "of a label's term; 1 otherwise"})
    norm: Norm = field(default="l2", metadata={"description": "of every term"})
    validation: float = setting(0.1, "share of the points that is validated on", gt=0, lt=1)
    test: float = setting(0.1, "share of the points that is tested on", gt=0, lt=1)

    @property
    def rounds(self) -> int:
        return 1

    @property
    def data_name(self) -> str:
        return "tensors"

    @property
    def model_name(self) -> str:
        return self.network.removeprefix("object:") or "network"

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
