"""How a run trains: stages of optimisers within one budget.

Plain dataclasses, so that training on tensors needs torch and numpy only; pydantic validates them inside the larger
configurations of the domains.
"""

from __future__ import annotations

import dataclasses
import operator
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from dcnn.errors import InputError, unknown

_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "gt": ("greater than", operator.gt),
    "ge": ("at least", operator.ge),
    "lt": ("less than", operator.lt),
    "le": ("at most", operator.le),
}

BUDGET = ("epochs", "steps", "minutes")  # one of these says how long a run is


def setting(default: Any, description: str = "", **bounds: float) -> Any:
    """A field of a :class:`Checked` dataclass with what it means and the bounds of its value (gt, ge, lt, le)."""
    return field(default=default, metadata={"description": description, **bounds})


class Checked:
    """A frozen dataclass whose values are one of their choices and within their bounds."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for entry in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, entry.name)
            if typing.get_origin(hints[entry.name]) is Literal and value not in typing.get_args(hints[entry.name]):
                choices = " or ".join(map(repr, typing.get_args(hints[entry.name])))
                raise ValueError(f"{entry.name}: must be {choices} (found {value!r})")
            for bound, (words, holds) in _BOUNDS.items():
                limit = entry.metadata.get(bound)
                if value is None or limit is None:
                    continue
                if not isinstance(value, int | float) or not holds(value, limit):
                    raise ValueError(f"{entry.name}: must be {words} {limit} (found {value!r})")


@dataclass(frozen=True)
class Stage(Checked):
    """One optimiser over a share of the budget; several stages run one after the other."""

    optimizer: Literal["adam", "adamw", "soap", "lbfgs", "broyden", "gauss_newton"] = "adam"
    learning_rate: float = setting(1e-3, gt=0)
    schedule: Literal["constant", "cosine", "plateau"] = "cosine"
    warmup: float = setting(0.0, "share of the stage with a rising learning rate", ge=0, lt=1)
    final: float = setting(0.01, "learning rate at the end, as a share of the peak", ge=0, le=1)
    patience: int = setting(10, "plateau: validations without progress before the rate falls", ge=1)
    factor: float = setting(0.5, "plateau: what the rate is multiplied by", gt=0, lt=1)
    weight_decay: float = setting(0.0, ge=0)
    clip_norm: float | None = setting(None, gt=0)
    share: float = setting(1.0, "share of the whole budget", gt=0, le=1)
    dtype: Literal["float32", "float64"] = "float32"
    history: int = setting(50, "L-BFGS: remembered steps", ge=1)
    inner_iterations: int = setting(20, "L-BFGS: iterations on one set of points", ge=1)


@dataclass(frozen=True)
class Training(Checked):
    """How long, with what, and what is kept. Exactly one of epochs, steps and minutes is the budget."""

    epochs: int | None = setting(None, ge=1)
    steps: int | None = setting(None, ge=1)
    minutes: float | None = setting(None, gt=0)
    clock: Literal["wall", "cpu"] = setting("wall", "what minutes are: cpu stays fair on a busy machine")
    batch_size: int | Literal["auto"] = setting(
        20, "frames or points a step; auto: as few frames as have 90 atoms, or 10 where frames differ in size"
    )
    batch_atoms: int | None = setting(None, "potentials: most atoms of a batch, in the place of batch_size", ge=1)
    batch_edges: int | None = setting(None, "potentials: most pairs of a batch, in the place of batch_size", ge=1)
    stages: tuple[Stage, ...] = (Stage(),)
    ema: float | None = setting(None, "decay of the averaged weights that are kept", gt=0, lt=1)
    evaluate_every: int = setting(1, "epochs between validations", ge=1)
    early_stop: int | None = setting(None, "validations without progress before stopping", ge=1)
    select: Literal["best", "last"] = "best"
    step: Literal["eager", "traced", "compiled", "auto"] = setting(
        "eager", "loss and gradients as one graph; auto: compiled where the minutes left pay for it, or traced"
    )
    devices: int = setting(1, ge=1)
    strategy: Literal["auto", "ddp"] = "auto"
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    threads: int | None = setting(None, ge=1)
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in BUDGET if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of epochs, steps, minutes as the budget; found {given or 'none'}")
        if self.batch_size != "auto" and not (isinstance(self.batch_size, int) and self.batch_size >= 1):
            raise ValueError(f"batch_size: must be auto or at least 1 (found {self.batch_size!r})")
        if self.batch_atoms is not None and self.batch_edges is not None:
            raise ValueError("give batch_atoms or batch_edges, not both")
        if abs(sum(stage.share for stage in self.stages) - 1) > 1e-6:
            raise ValueError("the shares of the stages must add up to 1")


class RunConfig(Protocol):
    """What the engine asks of a configuration; each domain has its own."""

    @property
    def kind(self) -> str: ...
    @property
    def recipe(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def training(self) -> Training: ...
    @property
    def rounds(self) -> int:
        """How often the stages of training are gone through."""
        ...

    @property
    def data_name(self) -> str:
        """What is trained on: a file, a problem."""
        ...

    @property
    def model_name(self) -> str:
        """What is trained: a network, an activation."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """All values, as JSON and YAML hold them."""
        ...


Made = TypeVar("Made")


def from_values(kind: type[Made], values: Mapping[str, Any], where: str = "") -> Made:
    """A :class:`Checked` dataclass from nested values; a key that does not exist is an error.

    >>> from_values(Training, {"epochs": 3, "stages": [{"learning_rate": 0.1}]}).stages[0].learning_rate
    0.1
    """
    hints = typing.get_type_hints(kind)
    names = [entry.name for entry in dataclasses.fields(kind)]  # type: ignore[arg-type]
    given = {}
    for key, value in values.items():
        if key not in names:
            raise unknown(f"key in {where or 'the top level'}", key, names)
        given[key] = _typed(hints[key], value, f"{where}.{key}".lstrip("."))
    try:
        return kind(**given)
    except ValueError as error:
        raise InputError(f"{where}: {error}" if where else str(error)) from None


def _typed(hint: Any, value: Any, where: str) -> Any:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_values(hint, value, where)
    if typing.get_origin(hint) is tuple and isinstance(value, list | tuple):
        inner = typing.get_args(hint)[0]
        return tuple(_typed(inner, entry, f"{where}.{n}") for n, entry in enumerate(value))
    return value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over` on top, section by section; a new budget replaces the old one."""
    merged = dict(base)
    if over.keys() & BUDGET:
        merged = {k: v for k, v in merged.items() if k not in BUDGET}
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[key] = merge(old, value)
        elif isinstance(value, dict) and isinstance(old, (list, tuple)):
            merged[key] = _merge_entries(key, old, value)
        else:
            merged[key] = value
    return merged


def _merge_entries(name: str, old: typing.Sequence[Any], over: dict[str, Any]) -> list[Any]:
    """A list with some of its entries changed: training.stages.0.learning_rate=1e-3."""
    entries = dict(enumerate(old))
    for key, value in over.items():
        if not str(key).isdigit() or int(key) not in entries:
            raise InputError(f"{name}.{key}: {name} has {len(old)} entries, counted from 0")
        entry = entries[int(key)]
        entries[int(key)] = merge(entry, value) if isinstance(entry, dict) and isinstance(value, dict) else value
    return list(entries.values())
