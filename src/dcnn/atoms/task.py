"""A potential as a training task: energies and forces as named terms on batches of frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.batching import Batcher, shared_radius
from dcnn.atoms.config import AtomsConfig, AtomsLoss, TermConfig
from dcnn.atoms.data import load
from dcnn.atoms.data.fingerprint import save_split
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.fine_tuning import freeze, started
from dcnn.atoms.forces import energy_and_forces, energy_forces_stress
from dcnn.atoms.frames import SPLIT, split_frames
from dcnn.atoms.label_errors import errors, errors_of_nothing
from dcnn.atoms.models import build
from dcnn.atoms.potential import Potential
from dcnn.atoms.structures import Structure
from dcnn.atoms.trained_range import TrainedRange
from dcnn.atoms.units import ENERGY
from dcnn.auditing import Audit, Finding
from dcnn.auditing import audit as run_audit
from dcnn.auditing.label_checks import label_findings
from dcnn.errors import InputError
from dcnn.losses import Term, Weighting
from dcnn.losses import weighting as weightings
from dcnn.scaling import LabelScale
from dcnn.train.step import term_losses

AUDITED = 200  # frames whose labels are judged


class AtomsTask:
    """Fits E(x) and −∂E/∂x to labels in the unit of `scale`; errors are reported in kcal/mol and Å.

    `frames` maps train, validation and test to labelled structures; lengths are Å, and `energy_unit_eV` says
    what one unit of their energies is. With `one_shape` all pairs of a small molecule are listed, so that its batches
    have one shape and one graph of the step serves them all.
    """

    monitor = "force_mae_kcal_mol_A"

    def __init__(
        self,
        network: nn.Module,
        scale: LabelScale,
        frames: Mapping[str, Sequence[Structure]],
        terms: tuple[Term, ...],
        weighting: Weighting,
        *,
        batch_size: int,
        energy_per_atom: bool,
        energy_unit_eV: float,
        seed: int = 0,
        one_shape: bool = False,
    ) -> None:
        for name, split in frames.items():
            if len(split) == 0:
                raise InputError(f"the {name} split is empty; lower data.train or data.validation")
        self.network, self.scale, self.terms, self.weighting = network, scale, terms, weighting
        self.frames, self.seed = frames, seed
        self.batch_size = min(batch_size, len(frames["train"]))
        self.steps_per_epoch = len(frames["train"]) // self.batch_size
        self.energy_per_atom = energy_per_atom
        self.energy_unit_eV = energy_unit_eV
        self.one_shape = one_shape
        self.elements = sorted({z for frame in frames["train"] for z in np.unique(frame.z).tolist()})
        self.cast(next(network.parameters()).dtype)

    def begin(self, number: int) -> None:
        """Nothing changes from round to round."""

    def cast(self, dtype: torch.dtype) -> None:
        self.network.to(dtype)
        cutoff: float = self.network.cutoff  # type: ignore[assignment]
        scaled = {name: _scaled(self.scale, split) for name, split in self.frames.items()}
        if self.one_shape:
            cutoff = shared_radius([frame for split in scaled.values() for frame in split], self.network)
        self._batchers = {name: Batcher(split, cutoff, dtype) for name, split in scaled.items()}
        self._evaluation: dict[str, list[AtomsBatch]] = {}

    def batches(self, epoch: int, rank: int = 0, world: int = 1, start: int = 0) -> Iterator[AtomsBatch]:
        """Every frame at most once an epoch, in an order of its own; each process takes its share of a batch."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.frames["train"]))
        for step in range(start, self.steps_per_epoch):
            frames = order[step * self.batch_size : (step + 1) * self.batch_size]
            yield self._batchers["train"](frames[rank::world])

    def residuals(self, network: nn.Module, batch: AtomsBatch) -> dict[str, Tensor]:
        wanted = {term.name: term for term in self.terms if term.weight != 0}
        stress = None
        if "stress" in wanted and batch.stress is not None and batch.cell is not None:
            energy, forces, stress = energy_forces_stress(network, batch)
        elif "forces" in wanted:
            energy, forces = energy_and_forces(network, batch)
        else:
            energy = network(batch)
        found = {}
        if "energy" in wanted:
            assert batch.energy is not None
            error = energy - batch.energy.to(energy.dtype)
            if self.energy_per_atom:  # not by bincount, whose result has no shape in a trace
                error = error / torch.zeros_like(error).index_add(
                    0, batch.system, torch.ones_like(batch.positions[:, 0])
                )
            found["energy"] = error
        if "forces" in wanted:
            assert batch.forces is not None
            found["forces"] = forces - batch.forces
        if "stress" in wanted:
            found["stress"] = torch.zeros_like(energy)
            if stress is not None and batch.stress is not None:
                found["stress"] = _where_known(stress - batch.stress, wanted["stress"].norm)
        return found

    def evaluate(self, network: nn.Module, split: str) -> dict[str, Any]:
        """MAE of total energies and of force components, EFwT: the share of frames within both thresholds.

        Of the test frames also the errors of zero forces and of the mean energy.
        """
        energy_errors, force_errors, systems, stress_errors = [], [], [], []
        fits_stress = any(term.name == "stress" and term.weight != 0 for term in self.terms)
        for batch in self._batches_of(split):
            with torch.no_grad():  # nothing is differentiated beyond the forces
                if fits_stress and batch.stress is not None and batch.cell is not None:
                    energy, forces, stress = energy_forces_stress(network, batch)
                    stress_errors.append(stress.double() - batch.stress.double())
                else:
                    energy, forces = energy_and_forces(network, batch)
            assert batch.energy is not None
            assert batch.forces is not None
            # A constant and references drop out of a difference: it is taken in scaled units, in float64.
            unit_eV = self.scale.constant * self.energy_unit_eV
            energy_errors.append((energy.double() - batch.energy) * unit_eV)
            force_errors.append((forces.double() - batch.forces.double()) * unit_eV)
            systems.append(batch.system)
        found = dict(errors(energy_errors, force_errors, systems))
        if stress_errors:
            found["stress_mae_eV_A3"] = float(torch.cat(stress_errors).abs().nanmean()) * unit_eV
        if split == "test":
            found |= errors_of_nothing(self.frames["train"], self.frames["test"], self.energy_unit_eV)
        return found

    def audit(self, network: nn.Module) -> Audit:
        """The audit of one training batch with labels as they are trained on."""
        batch = next(iter(self.batches(0)))
        return run_audit(network, batch, orders=1, labels=self._labels(scaled=True), losses=term_losses(self, batch))

    def raw_label_findings(self) -> list[Finding]:
        """What is wrong with the labels as they are in the file."""
        return list(label_findings(self._labels(scaled=False), None))

    def _labels(self, scaled: bool) -> dict[str, Any]:
        """Labels of some training frames, as trained on or as in the file."""
        frames = list(self.frames["train"][:AUDITED])
        frames = _scaled(self.scale, frames) if scaled else frames
        return {"energy": [f.energy for f in frames], "forces": [row for f in frames for row in f.forces]}  # type: ignore[union-attr]

    def count(self, split: str) -> int | None:
        return len(self.frames[split])

    def evaluate_file(self, network: nn.Module, path: Path) -> dict[str, Any]:
        """Errors on the labelled frames of another file."""
        dtype = next(network.parameters()).dtype
        potential = Potential(
            network, self.scale, self.energy_unit_eV, self.elements, dtype=dtype, range=self.range
        )  # fmt: skip
        frames = load(path)
        return {"frames": len(frames), **potential.evaluate(frames)}

    def remember(self, folder: Path) -> None:
        """Keeps in the run folder which frames were split how, and fingerprints of their files."""
        save_split(folder / SPLIT, cast(Mapping[str, Dataset], self.frames))

    def state(self) -> dict[str, Any]:
        known = {"scale": self.scale.to_dict(), "energy_unit_eV": self.energy_unit_eV, "elements": self.elements}
        return {**known, "range": self.range.to_dict()}

    @cached_property
    def range(self) -> TrainedRange:
        """Of the training frames, so that a potential knows when it is asked for something else."""
        references = {z: self.scale.unscale_energy(0.0, [z]) * self.energy_unit_eV for z in self.elements}
        return TrainedRange.of(
            self.frames["train"], lambda z: sum(references[n] for n in z.tolist()), self.energy_unit_eV
        )

    def load_state(self, state: dict[str, Any]) -> None:
        """Batches follow from seed and epoch alone."""

    def _batches_of(self, split: str, size: int = 50) -> list[AtomsBatch]:
        if split not in self._evaluation:
            count = len(self.frames[split])
            self._evaluation[split] = [
                self._batchers[split](range(begin, min(begin + size, count))) for begin in range(0, count, size)
            ]
        return self._evaluation[split]


def build_atoms(
    config: AtomsConfig,
    frames: Mapping[str, Dataset] | None = None,
    scale: LabelScale | None = None,
    network: nn.Module | None = None,
) -> AtomsTask:
    """Data, network, scale and terms of a configuration; what is given is taken, as after training."""
    frames = split_frames(config.data) if frames is None else frames
    if scale is None and config.start.run is not None:
        network, scale = started(config.start, config.scale, frames["train"], network)
    elif scale is None:
        scale = LabelScale.fit(frames["train"], references=config.scale.references, unit=config.scale.unit)
    if network is None:
        network = build(**config.model.overrides, **config.model.model_dump(exclude={"overrides"}))
    freeze(network, config.start.freeze)
    loss = config.loss
    terms = tuple(Term(name, term.weight, term.norm) for name, term in _terms(loss, frames["train"]).items())
    return AtomsTask(
        network,
        scale,
        frames,
        terms,
        weightings.get(loss.weighting, terms, **loss.weighting_options),
        batch_size=config.training.batch_size,
        energy_per_atom=loss.energy_per_atom,
        energy_unit_eV=ENERGY[frames["train"].units.energy],
        seed=config.seed,
        one_shape=config.training.step != "eager",
    )


def _terms(loss: AtomsLoss, frames: Dataset) -> dict[str, TermConfig]:
    """The terms by name; that of the stress is there if it has a weight, which asks for frames with a stress."""
    terms = {"energy": loss.energy, "forces": loss.forces}
    if loss.stress.weight == 0:
        return terms
    if loss.stress.norm == "huber":
        raise InputError("loss.stress.norm: huber is not possible where frames may lack a stress; take l1 or l2")
    if not any(frame.stress is not None and np.all(frame.pbc) for frame in frames):
        raise InputError(
            f"loss.stress.weight is {loss.stress.weight:g}, but no training frame of {frames.source or 'the data'} is "
            "periodic in three directions and has a stress; name it with data.stress_key, or set the weight to 0"
        )
    return terms | {"stress": loss.stress}


def _where_known(residual: Tensor, norm: str) -> Tensor:
    """The residual with 0 where it is NaN, scaled so that the mean of its norm is that over the entries that are known.

    A choice of rows would have no fixed shape in the graph of a step.
    """
    known = ~residual.isnan()
    share = residual.numel() / known.sum().clamp(min=1)
    return residual.where(known, 0.0) * (share if norm == "l1" else share.sqrt())


def _scaled(scale: LabelScale, frames: Sequence[Structure]) -> list[Structure]:
    """The frames with labels in the unit of the scale, still in float64."""
    scaled = []
    for frame in frames:
        assert frame.energy is not None
        assert frame.forces is not None
        energy = scale.scale_energy(frame.energy, frame.z)
        stress = None if frame.stress is None else np.asarray(scale.scale_stress(frame.stress))
        scaled.append(replace(frame, energy=energy, forces=scale.scale_forces(frame.forces), stress=stress))
    return scaled
