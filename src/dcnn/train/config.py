"""What a run is: one typed, complete, re-runnable configuration for potentials and for PDE networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from dcnn.errors import InputError, unknown

Norm = Literal["l1", "l2", "huber"]
WeightingName = Literal["fixed", "softadapt", "relobralo", "gradnorm", "uncertainty", "ntk", "config"]


class Section(BaseModel):
    """A part of the configuration; a key that does not exist is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Stage(Section):
    """One optimiser over a share of the budget; several stages run one after the other."""

    optimizer: Literal["adam", "adamw", "soap", "lbfgs"] = "adam"
    learning_rate: float = Field(1e-3, gt=0)
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup: float = Field(0.0, ge=0, lt=1, description="share of the stage with a rising learning rate")
    final: float = Field(0.01, ge=0, le=1, description="learning rate at the end, as a share of the peak")
    weight_decay: float = Field(0.0, ge=0)
    clip_norm: float | None = Field(None, gt=0)
    share: float = Field(1.0, gt=0, le=1, description="share of the whole budget")
    dtype: Literal["float32", "float64"] = "float32"
    history: int = Field(50, ge=1, description="L-BFGS: remembered steps")
    inner_iterations: int = Field(20, ge=1, description="L-BFGS: iterations on one set of points")


class Training(Section):
    """How long, with what, and what is kept. Exactly one of epochs, steps and minutes is the budget."""

    epochs: int | None = Field(None, ge=1)
    steps: int | None = Field(None, ge=1)
    minutes: float | None = Field(None, gt=0)
    clock: Literal["wall", "cpu"] = Field("wall", description="what minutes are: cpu stays fair on a busy machine")
    batch_size: int = Field(20, ge=1)
    stages: tuple[Stage, ...] = (Stage(),)
    ema: float | None = Field(None, gt=0, lt=1, description="decay of the averaged weights that are kept")
    evaluate_every: int = Field(1, ge=1, description="epochs between validations")
    early_stop: int | None = Field(None, ge=1, description="validations without progress before stopping")
    select: Literal["best", "last"] = "best"
    step: Literal["eager", "traced", "compiled", "auto"] = Field(
        "eager", description="loss and gradients as one graph; auto: compiled in runs of 5 minutes and more, or traced"
    )
    devices: int = Field(1, ge=1)
    strategy: Literal["auto", "ddp"] = "auto"
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    threads: int | None = Field(None, ge=1)
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()

    @model_validator(mode="after")
    def _one_budget(self) -> Training:
        given = [name for name in ("epochs", "steps", "minutes") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of epochs, steps, minutes as the budget; found {given or 'none'}")
        if abs(sum(stage.share for stage in self.stages) - 1) > 1e-6:
            raise ValueError("the shares of the stages must add up to 1")
        return self


class TermConfig(Section):
    weight: float = Field(1.0, ge=0)
    norm: Norm = "l2"


class DataConfig(Section):
    """Frames and how they are split; counts are frames, `test` may also name a file of its own."""

    path: str = "demo"
    labels: str | None = None
    units: str | None = Field(None, description="of a file that does not state its own, e.g. 'Hartree, Bohr'")
    force_sign: Literal[1, -1] | None = None
    train: int | None = Field(None, ge=1)
    validation: int = Field(50, ge=1)
    test: int | str | None = None
    split: str = Field("random", description="random, blocks, or an index file")
    split_seed: int = 0


class ModelConfig(Section):
    name: str = "schnet"
    preset: Literal["small", "paper"] = "small"
    fidelity: Literal["text", "scripts"] = "text"
    activation: str | None = Field(None, description="replaces the published activation where the paper does")
    normalization: bool = True
    overrides: dict[str, Any] = {}


class ScaleConfig(Section):
    references: Literal["elements", "mean"] | None = None
    unit: Literal["force_rms", "power_of_ten"] | float = 1.0


class AtomsLoss(Section):
    energy: TermConfig = TermConfig()
    forces: TermConfig = TermConfig()
    energy_per_atom: bool = False
    weighting: WeightingName = "fixed"
    weighting_options: dict[str, Any] = {}


class AtomsConfig(Section):
    """An interatomic potential."""

    kind: Literal["atoms"] = "atoms"
    recipe: str = "best"
    seed: int = 0
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    scale: ScaleConfig = ScaleConfig()
    loss: AtomsLoss = AtomsLoss()
    training: Training

    @property
    def rounds(self) -> int:
        """How often the stages of training are gone through."""
        return 1


class ProblemConfig(Section):
    name: str = Field("advection", description="a problem's name, or the path of a problem.py")
    parameters: dict[str, Any] = Field({}, description="of the PDE, and options of the problem")
    regularise: dict[str, Any] = Field({}, description="parameters to train with instead; tested are the true ones")
    fidelity: Literal["text", "scripts"] = "text"
    trainable: tuple[str, ...] = Field((), description="parameters of the PDE that are learnt (inverse problem)")
    reference: str | None = Field(None, description="a PDEBench HDF5 file; the built-in solver otherwise")
    sample: int = 0


class NetworkConfig(Section):
    width: int = Field(40, ge=1)
    depth: int = Field(6, ge=1)
    activation: str = "tanh"
    alternate: str | None = Field(None, description="activation of every second layer")
    initialisation: Literal["glorot", "he", "moments"] = "glorot"
    batch_norm: bool = False
    modes: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        0, description="waves for periodic and reflecting coordinates; 0: plain inputs; auto: 4 if there are any"
    )
    random_features: int = Field(0, ge=0, description="random Fourier features of the inputs")
    random_features_scale: float = Field(1.0, gt=0)
    residual: bool = Field(False, description="every hidden layer adds to its input")
    adaptive: bool = Field(False, description="a trained slope in every activation")
    scale_inputs: bool = Field(False, description="coordinates on [-1, 1]")
    transient: float | None = Field(None, gt=0, description="time scale of a fast start: log time, more points there")
    scale_fields: bool = Field(False, description="the problem's offset and unit for every field")
    features: bool | Literal["auto"] = Field(
        False, description="functions that the problem offers as further inputs; auto: if it offers any"
    )
    hard: bool | Literal["auto"] = Field(
        False, description="the problem's hard constraints instead of the terms they satisfy; auto: if it states any"
    )


class PointsConfig(Section):
    """Counts that are not given are the problem's own."""

    interior: int | None = Field(None, ge=1)
    boundary: int | None = Field(None, ge=1)
    initial: int | None = Field(None, ge=1)
    sampler: Literal["uniform", "latin_hypercube", "sobol", "grid", "hammersley"] | None = None
    shared: bool | None = Field(None, description="equations on boundary and initial points too, as in the scripts")
    resample_every: int | None = Field(None, ge=1, description="steps between new points; none: always the same")
    adaptive: bool = Field(False, description="draw new points where the residual is large")
    causal: float | None = Field(None, gt=0, description="causal weighting in time, its strength ε")
    time_windows: int = Field(1, ge=1, description="march through time in this many windows")


class PdeLoss(Section):
    """Weights by term, or by kind: residual, initial, boundary, data; a term that is not named has weight 1."""

    weights: dict[str, float] = {}
    norm: Norm = "l2"
    scale_terms: bool = Field(False, description="divide every residual by its natural unit")
    weighting: WeightingName = "fixed"
    weighting_options: dict[str, Any] = {}


class PdeConfig(Section):
    """A physics-informed network."""

    kind: Literal["pde"] = "pde"
    recipe: str = "best"
    seed: int = 0
    problem: ProblemConfig = ProblemConfig()
    network: NetworkConfig = NetworkConfig()
    points: PointsConfig = PointsConfig()
    loss: PdeLoss = PdeLoss()
    training: Training
    steps_per_epoch: int = Field(100, ge=1)

    @property
    def rounds(self) -> int:
        """How often the stages of training are gone through: once in every window of time."""
        return self.points.time_windows


Config = Annotated[AtomsConfig | PdeConfig, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[AtomsConfig | PdeConfig] = TypeAdapter(Config)


def validate(values: dict[str, Any], source: str = "configuration") -> AtomsConfig | PdeConfig:
    """The typed configuration, or one message that names every wrong field of `source`."""
    try:
        return _ADAPTER.validate_python(values)
    except ValidationError as error:
        lines = [_explain(issue) for issue in error.errors()]
        raise InputError(f"{source}: " + "; ".join(lines)) from None


def _explain(issue: Any) -> str:
    place = [str(part) for part in issue["loc"] if part not in ("atoms", "pde")]
    if issue["type"] == "extra_forbidden":
        return str(unknown(f"key in {'.'.join(place[:-1]) or 'the top level'}", place[-1], _keys_at(issue["loc"])))
    return f"{'.'.join(place) or 'top level'}: {issue['msg']} (found {issue['input']!r})"


def _keys_at(location: tuple[Any, ...]) -> list[str]:
    """The valid keys beside a misspelt one."""
    section: Any = PdeConfig if location and location[0] == "pde" else AtomsConfig
    for part in location[1:-1]:
        annotation = section.model_fields[part].annotation if isinstance(part, str) else Stage
        section = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else Stage
    return list(section.model_fields)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the values of `over` on top, section by section; a new budget replaces the old one."""
    merged = dict(base)
    if {"epochs", "steps", "minutes"} & over.keys():
        merged = {k: v for k, v in merged.items() if k not in ("epochs", "steps", "minutes")}
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[key] = merge(old, value)
        elif isinstance(value, dict) and isinstance(old, (list, tuple)):
            merged[key] = _merge_entries(key, old, value)
        else:
            merged[key] = value
    return merged


def _merge_entries(name: str, old: Sequence[Any], over: dict[str, Any]) -> list[Any]:
    """A list with some of its entries changed: training.stages.0.learning_rate=1e-3."""
    entries = dict(enumerate(old))
    for key, value in over.items():
        if not str(key).isdigit() or int(key) not in entries:
            raise InputError(f"{name}.{key}: {name} has {len(old)} entries, counted from 0")
        entry = entries[int(key)]
        entries[int(key)] = merge(entry, value) if isinstance(entry, dict) and isinstance(value, dict) else value
    return list(entries.values())


def parse_overrides(pairs: list[str]) -> dict[str, Any]:
    """`["training.epochs=5", "model.name=gemnet"]` as nested values; values are read as YAML."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"{pair!r} is not key=value, for example training.minutes=10")
        node: Any = yaml.safe_load(text) if text else None
        for part in reversed(key.split(".")):
            node = {part: node}
        values = merge(values, node)
    return values


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected key: value lines, found {type(values).__name__}")
    return values


def to_yaml(config: AtomsConfig | PdeConfig) -> str:
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
