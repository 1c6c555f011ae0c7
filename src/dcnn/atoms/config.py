"""What a run of a potential is: one typed, complete, re-runnable configuration."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dcnn.losses.terms import Norm
from dcnn.losses.weighting import WeightingName
from dcnn.train.config import Training
from dcnn.train.settings import Section


class TermConfig(Section):
    weight: float = Field(1.0, ge=0)
    norm: Norm = "l2"

    @model_validator(mode="before")
    @classmethod
    def _not_a_number_alone(cls, given: Any) -> Any:
        if isinstance(given, (int, float)):  # as the weight alone it would lose the norm of the recipe
            raise ValueError(f"a term has a weight and a norm; give .weight={given}")
        return given


class DataConfig(Section):
    """Frames and how they are split; counts are frames, `validation` and `test` may also name files of their own."""

    path: str = Field("demo", description="a file, a folder, or a pattern such as 'run*.xyz'")
    labels: str | None = None
    units: str | None = Field(None, description="of a file that does not state its own, e.g. 'Hartree, Bohr'")
    force_sign: Literal[1, -1] | None = None
    energy_key: str | None = Field(None, description="name of the energy in the file, e.g. REF_energy")
    forces_key: str | None = Field(None, description="name of the forces")
    stress_key: str | None = Field(None, description="name of the stress, dE/dε / V")
    virial_key: str | None = Field(None, description="name of the virial, −V · stress")
    cache: str = Field(
        "runs/cache", description="folder for the frames of files of more than 64 MB, reused by later runs"
    )
    workers: int = Field(0, ge=0, description="processes that make batches ahead of the step")
    train: int | None = Field(None, ge=1)
    validation: Annotated[int, Field(ge=1)] | str = 50
    test: int | str | None = None
    split: str = Field("random", description="random, blocks, or an index file")
    split_seed: int = 0


class ModelConfig(Section):
    name: str = "tensornet"
    preset: Literal["small", "paper"] = "small"
    fidelity: Literal["text", "scripts"] = "text"
    activation: str | None = Field(None, description="replaces the published activation where the paper does")
    normalization: bool = True
    overrides: dict[str, Any] = Field({}, description="arguments of the network, on top of the preset")


class ScaleConfig(Section):
    references: dict[str | int, float] | str | None = Field(
        None,
        description="elements (free atoms of the file, else least squares), mean, {H: -13.6, …} or a file of these",
    )
    unit: Literal["force_rms", "power_of_ten"] | float = 1.0


class AtomsLoss(Section):
    energy: TermConfig = TermConfig()
    forces: TermConfig = TermConfig()
    stress: TermConfig = TermConfig(weight=0.0)
    energy_per_atom: bool = False
    config_weights: dict[str, float] = Field(
        {}, description="weight of frames by config_type, besides the config_weight of each frame"
    )
    weighting: WeightingName = "fixed"
    weighting_options: dict[str, Any] = Field({})


class StartConfig(Section):
    """An earlier run whose weights training begins with."""

    run: str | None = Field(None, description="run folder or checkpoint that the weights come from (--from)")
    digest: str | None = Field(None, description="of its weights; others are refused")
    freeze: tuple[str, ...] = Field((), description="parts that keep their weights, e.g. [embedding, 'blocks.0*']")


class AtomsConfig(Section):
    """An interatomic potential."""

    kind: Literal["atoms"] = "atoms"
    recipe: str = "best"
    seed: int = 0
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    start: StartConfig = StartConfig()
    scale: ScaleConfig = ScaleConfig()
    loss: AtomsLoss = AtomsLoss()
    training: Training

    @property
    def rounds(self) -> int:
        """How often the stages of training are gone through."""
        return 1

    @property
    def data_name(self) -> str:
        return self.data.path

    @property
    def model_name(self) -> str:
        return self.model.name
