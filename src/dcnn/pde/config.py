"""What a run of a PDE network is: one typed, complete, re-runnable configuration."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dcnn.losses.terms import Norm
from dcnn.losses.weighting import WeightingName
from dcnn.train.config import Training
from dcnn.train.settings import Section


class ProblemConfig(Section):
    name: str = Field("advection", description="a problem's name, or the path of a problem.py")
    parameters: dict[str, Any] = Field({}, description="of the PDE, and options of the problem")
    regularise: dict[str, Any] = Field({}, description="parameters to train with instead; tested are the true ones")
    fidelity: Literal["text", "scripts"] = "text"
    trainable: tuple[str, ...] = Field((), description="parameters of the PDE that are learnt (inverse problem)")
    reference: str | None = Field(None, description="a PDEBench HDF5 file; the built-in solver otherwise")
    sample: int = 0


class NetworkConfig(Section):
    module: str | None = Field(None, description="of a network that was given in Python: its class")
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
    grow: bool = Field(False, description="twice as many points when the loss on fresh ones is 10 times larger")
    causal: float | None = Field(None, gt=0, description="causal weighting in time, its strength ε")
    time_windows: int = Field(1, ge=1, description="march through time in this many windows")


class PdeLoss(Section):
    """Weights by term, or by kind: residual, initial, boundary, data; a term that is not named has weight 1."""

    weights: dict[str, float] = Field({})
    norm: Norm = "l2"
    scale_terms: bool = Field(False, description="divide every residual by its natural unit")
    weighting: WeightingName = "fixed"
    weighting_options: dict[str, Any] = Field({})


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

    @property
    def data_name(self) -> str:
        return self.problem.name

    @property
    def model_name(self) -> str:
        """Networks of a PDE differ in their activations."""
        return "/".join(filter(None, (self.network.activation, self.network.alternate)))
