"""A potential as a training task: energies and forces as named terms on batches of frames."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from ase.data import chemical_symbols
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.batch_plan import BatchPlan, frames_per_batch
from dcnn.atoms.batching import MEMORY, Batcher, pair_counts, shared_radius
from dcnn.atoms.batching import scaled as scaled_arrays
from dcnn.atoms.config import AtomsConfig, AtomsLoss, ScaleConfig, TermConfig
from dcnn.atoms.data import load
from dcnn.atoms.data.fingerprint import save_split
from dcnn.atoms.data.frame_checks import ANY
from dcnn.atoms.data.packed import pack
from dcnn.atoms.data_workers import DataWorkers
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.fine_tuning import freeze, started
from dcnn.atoms.forces import energy_and_forces, energy_forces_stress
from dcnn.atoms.frame_arrays import LABELS
from dcnn.atoms.frames import SPLIT, read_references, split_frames
from dcnn.atoms.label_errors import LabelErrors, difference, errors_of_nothing
from dcnn.atoms.models import build
from dcnn.atoms.potential import Potential
from dcnn.atoms.references import energy_spread
from dcnn.atoms.structures import Structure
from dcnn.atoms.trained_range import TrainedRange
from dcnn.atoms.units import ENERGY
from dcnn.auditing import Audit, Finding
from dcnn.auditing import audit as run_audit
from dcnn.auditing.label_checks import label_findings
from dcnn.errors import InputError
from dcnn.losses import Term, Weighting
from dcnn.losses import weighting as weightings
from dcnn.losses.terms import POWER
from dcnn.scaling import LabelScale
from dcnn.train.step import term_losses

AUDITED = 200  # frames whose labels are judged
KEPT_FRAMES, KEPT_ATOMS = 5000, 200_000  # of a split whose batches are kept from validation to validation


class AtomsTask:
    """Fits E(x) and −∂E/∂x to labels in the unit of `scale`; errors are reported in kcal/mol and Å.

    `frames` maps train, validation and test to labelled structures; lengths are Å, and `energy_unit_eV` says
    what one unit of their energies is. A term counts the frames that have its label, with their weights: that of the
    frame times that of its type in `config_weights`. With `one_shape` all pairs of a small molecule are listed, so
    that its batches have one shape and one graph of the step serves them all.
    """

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
        config_weights: Mapping[str, float] | None = None,
        batch_atoms: int | None = None,
        batch_edges: int | None = None,
        workers: int = 0,
    ) -> None:
        for name, split in frames.items():
            if len(split) == 0:
                raise InputError(f"the {name} split is empty; lower data.train or data.validation")
        self.network, self.scale, self.terms, self.weighting = network, scale, terms, weighting
        self.frames, self.seed = frames, seed
        self.packed = {name: in_arrays(split) for name, split in frames.items()}
        self.workers = workers
        self._pool: DataWorkers | None = None
        self._listed: float | None = None  # the distance up to which pairs are listed
        sizes = None
        if batch_atoms is not None:
            sizes = self.packed["train"].sizes()
        elif batch_edges is not None:
            sizes = pair_counts(self.packed["train"], float(network.cutoff))  # type: ignore[arg-type]
        most = batch_atoms if batch_atoms is not None else batch_edges
        self.plan = BatchPlan(len(frames["train"]), batch_size, seed, sizes, most)
        self.steps_per_epoch = self.plan.steps
        self.energy_per_atom = energy_per_atom
        self.energy_unit_eV = energy_unit_eV
        self.one_shape = one_shape
        held = {name: Held.by(split) for name, split in self.packed.items()}
        self.elements = held["train"].elements
        if isinstance(scale.references, dict):
            for name in [name for name in held if not set(held[name].elements) <= scale.references.keys()]:
                self.packed[name] = _with_known_elements(self.packed[name], name, held[name], scale.references)
                held[name] = Held.by(self.packed[name])
                self.frames = {**self.frames, name: self.packed[name]}
        weighted = bool(config_weights) or held["train"].weighted
        self.config_weights = dict(config_weights or {}) if weighted else None
        self.partial = {name for name in LABELS if held["train"].frames[name] < len(frames["train"]) or weighted}
        for term in terms:
            if term.norm == "huber" and term.weight != 0 and term.name in self.partial:
                raise InputError(f"loss.{term.name}.norm: huber is not possible where {_WHY}; take l1, l2 or length")
        self.monitor = _monitor(held)
        self.cast(next(network.parameters()).dtype)

    def begin(self, number: int) -> None:
        """Nothing changes from round to round."""

    def cast(self, dtype: torch.dtype) -> None:
        self.network.to(dtype)
        if self._listed is None:
            chunks = (chunk for part in self.packed.values() for chunk in part.chunks())
            self._listed = shared_radius(chunks, self.network) if self.one_shape else float(self.network.cutoff)  # type: ignore[arg-type]
        cutoff, labels = self._listed, [term.name for term in self.terms if term.weight != 0]
        self._pool = None  # its processes hold the old batcher
        share = MEMORY // max(1, self.workers)
        train = Batcher(self.packed["train"], cutoff, dtype, share, self.scale, labels, self.config_weights)
        self._batchers = {"train": train}
        for name, part in self.packed.items():
            if name != "train":
                self._batchers[name] = Batcher(part, cutoff, dtype, MEMORY // 4, self.scale)
        self._evaluation: dict[str, list[AtomsBatch]] = {}

    def batches(self, epoch: int, rank: int = 0, world: int = 1, start: int = 0) -> Iterator[AtomsBatch]:
        """Every frame at most once an epoch, in an order of its own; each process takes its share of a batch."""
        places = ((epoch, step, rank, world) for step in range(start, self.steps_per_epoch))
        if not self.workers:
            yield from map(self._batch, places)
            return
        self._pool = self._pool or DataWorkers(self._batch, self.workers)
        yield from self._pool(places)

    def _batch(self, place: tuple[int, int, int, int]) -> AtomsBatch:
        return self._batchers["train"](self.plan.frames(*place))

    def residuals(self, network: nn.Module, batch: AtomsBatch) -> dict[str, Tensor]:
        wanted = {term.name: term for term in self.terms if term.weight != 0}
        stress = None
        if "stress" in wanted and batch.stress is not None and batch.cell is not None:
            energy, forces, stress = energy_forces_stress(network, batch)
        elif "forces" in wanted:
            energy, forces = energy_and_forces(network, batch)
        else:
            energy = network(batch)
        found: dict[str, Tensor] = {}
        if "energy" in wanted:
            assert batch.energy is not None
            error = energy - batch.energy.to(energy.dtype)
            if self.energy_per_atom:  # not by bincount, whose result has no shape in a trace
                error = error / torch.zeros_like(error).index_add(
                    0, batch.system, torch.ones_like(batch.positions[:, 0])
                )
            found["energy"] = self._counted(error, wanted["energy"], batch.weight)
        if "forces" in wanted:
            assert batch.forces is not None
            weight = None if batch.weight is None else batch.weight.index_select(0, batch.system)
            found["forces"] = self._counted(forces - batch.forces, wanted["forces"], weight)
        if "stress" in wanted:
            found["stress"] = torch.zeros_like(energy)
            if stress is not None and batch.stress is not None:
                found["stress"] = self._counted(stress - batch.stress, wanted["stress"], batch.weight)
        return found

    def _counted(self, residual: Tensor, term: Term, weight: Tensor | None) -> Tensor:
        """The residual so that the mean of its norm is the weighted one over the entries that are known.

        Unknown ones are NaN and become 0: a choice of rows would have no fixed shape in the graph of a step.
        """
        if term.name not in self.partial and term.name != "stress":
            return residual
        known = ~residual.isnan()
        factor = residual.numel() / known.sum().clamp(min=1)
        if weight is not None:
            factor = factor * weight.view(-1, *[1] * (residual.dim() - 1))
        return residual.where(known, 0.0) * factor ** (1 / POWER[term.norm])

    def evaluate(self, network: nn.Module, split: str) -> dict[str, Any]:
        """:class:`~dcnn.atoms.label_errors.LabelErrors` of a split; of the test frames also those of zero forces and
        of the mean energy."""
        sums = LabelErrors()
        fits_stress = any(term.name == "stress" and term.weight != 0 for term in self.terms)
        # A constant and references drop out of a difference: it is taken in scaled units, in float64.
        unit_eV = self.scale.constant * self.energy_unit_eV
        for begin, batch in self._batches_of(split):
            predicted: dict[str, Tensor] = {}
            with torch.no_grad():  # nothing is differentiated beyond the forces
                if fits_stress and batch.stress is not None and batch.cell is not None:
                    predicted["energy"], predicted["forces"], predicted["stress"] = energy_forces_stress(network, batch)
                else:
                    predicted["energy"], predicted["forces"] = energy_and_forces(network, batch)
            errors = {
                name: difference(name, value, label.cpu().double()) * unit_eV
                for name, value in predicted.items()
                if (label := getattr(batch, name)) is not None
            }
            groups = self.packed[split].groups(range(begin, begin + batch.n_systems))
            sums.add(batch.z.cpu().numpy(), batch.system.cpu().numpy(), **errors, groups=groups)
        found = sums.result()
        if split == "test":
            found |= errors_of_nothing(self.packed["train"], self.packed["test"], self.energy_unit_eV)
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
        frames = self.packed["train"].arrays(range(min(AUDITED, len(self.packed["train"]))))
        frames = scaled_arrays(frames, self.scale) if scaled else frames
        labels = {"energy": frames.energy, "forces": frames.forces}
        labels = {name: values[~np.isnan(values.reshape(len(values), -1)[:, 0])] for name, values in labels.items()}
        return {name: values for name, values in labels.items() if len(values)}

    def count(self, split: str) -> int | None:
        return len(self.frames[split])

    def evaluate_file(self, network: nn.Module, path: Path, **reading: Any) -> dict[str, Any]:
        """Errors on the labelled frames of another file; reading: options of :func:`~dcnn.atoms.load`."""
        dtype = next(network.parameters()).dtype
        potential = Potential(
            network, self.scale, self.energy_unit_eV, self.elements, dtype=dtype, range=self.range
        )  # fmt: skip
        frames = load(path, require=ANY, **reading)
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

    def _batches_of(self, split: str, size: int = 50) -> Iterator[tuple[int, AtomsBatch]]:
        """(first frame, batch) of all frames of a split in order; those of a small split are kept."""
        if split in self._evaluation:
            yield from zip(itertools.count(0, size), self._evaluation[split], strict=False)
            return
        count = len(self.packed[split])
        few = count <= KEPT_FRAMES and self.packed[split].sizes().sum() <= KEPT_ATOMS
        made = []
        for begin in range(0, count, size):
            batch = self._batchers[split](range(begin, min(begin + size, count)))
            if few:
                made.append(batch)
            yield begin, batch
        if few:
            self._evaluation[split] = made


def build_atoms(
    config: AtomsConfig,
    frames: Mapping[str, Dataset] | None = None,
    scale: LabelScale | None = None,
    network: nn.Module | None = None,
) -> AtomsTask:
    """Data, network, scale and terms of a configuration; what is given is taken, as after training."""
    frames = split_frames(config.data) if frames is None else frames
    frames = {name: in_arrays(part) for name, part in frames.items()}
    loss, train = config.loss, frames["train"]
    terms = tuple(Term(name, term.weight, term.norm) for name, term in _terms(loss, train).items())
    if scale is None and config.start.run is not None:
        network, scale = started(config.start, config.scale, train, network)
    elif scale is None:
        scale = _scale(config.scale, train)
    if network is None:
        network = build(**config.model.overrides, **config.model.model_dump(exclude={"overrides"}))
    freeze(network, config.start.freeze)
    return AtomsTask(
        network,
        scale,
        frames,
        terms,
        weightings.get(loss.weighting, terms, **loss.weighting_options),
        batch_size=frames_per_batch(config.training.batch_size, train.sizes()),
        energy_per_atom=loss.energy_per_atom,
        energy_unit_eV=ENERGY[train.units.energy],
        seed=config.seed,
        one_shape=config.training.step != "eager",
        config_weights=loss.config_weights,
        batch_atoms=config.training.batch_atoms,
        batch_edges=config.training.batch_edges,
        workers=config.data.workers,
    )


def in_arrays(frames: Sequence[Structure]) -> Dataset:
    """The frames in flat arrays."""
    dataset = frames if isinstance(frames, Dataset) else Dataset(frames)
    return dataset if dataset.packed else dataset.held_by(pack(dataset.everything()))


def _scale(config: ScaleConfig, train: Dataset) -> LabelScale:
    """The label scale as configured; without any forces energies give the unit."""
    references: Any = config.references
    if isinstance(references, str) and references not in ("elements", "mean"):
        references = read_references(references, train.units)
    if config.unit == "force_rms" and not Held.by(train).frames["forces"]:
        scale = LabelScale.fit(train, references=references, unit=1.0)
        return LabelScale(energy_spread(train, scale) or 1.0, scale.references)
    return LabelScale.fit(train, references=references, unit=config.unit)


@dataclass(frozen=True)
class Held:
    """What the frames of a split hold: frames with each label, those whose stress means something, elements."""

    frames: dict[str, int]
    stressed: int  # frames that are periodic in three directions and have a stress
    elements: list[int]
    weighted: bool

    @classmethod
    def by(cls, dataset: Dataset) -> Held:
        frames, stressed, weighted, seen = dict.fromkeys(LABELS, 0), 0, False, np.zeros(256, bool)
        for chunk in dataset.chunks():
            for name in LABELS:
                frames[name] += int(chunk.known(name).sum())
            stressed += int((chunk.known("stress") & chunk.pbc.all(1)).sum())
            weighted = weighted or bool((chunk.weight != 1).any())
            seen[chunk.z] = True
        return cls(frames, stressed, np.flatnonzero(seen).tolist(), weighted)


def _with_known_elements(frames: Dataset, name: str, held: Held, references: Mapping[int, float]) -> Dataset:
    """The frames without those whose energy nobody can know: with an element that no training frame has."""
    strange = [z for z in held.elements if z not in references]
    keep = np.array([not np.isin(frame.z, strange).any() for frame in frames])
    symbols = ", ".join(chemical_symbols[z] for z in strange)
    if name == "train":
        raise InputError(f"the label scale has no reference energy for {symbols}, which training frames hold")
    if not keep.any():
        raise InputError(
            f"the {name} frames hold {symbols}, which no training frame does: raise data.train, take another "
            "data.split_seed, leave these frames out, or give scale.references for all elements"
        )
    warnings.warn(
        f"{(~keep).sum()} of {len(keep)} {name} frames are left out: no training frame has {symbols} "
        "(scale.references gives energies of elements)",
        stacklevel=4,
    )
    return frames[np.flatnonzero(keep)]


def _monitor(held: Mapping[str, Held]) -> str:
    """The error by which weights are chosen: of the forces, or of the energies where frames have none."""
    for label, name in (("forces", "force_mae_kcal_mol_A"), ("energy", "energy_mae_kcal_mol")):
        if all(held[split].frames[label] for split in held if split != "train"):
            return name
    raise InputError("validation and test frames must both hold forces, or both energies, to choose weights by")


def _terms(loss: AtomsLoss, frames: Dataset) -> dict[str, TermConfig]:
    """The terms by name. One whose label no frame has is left out; a stress that was asked for must be there."""
    held, source = Held.by(frames), frames.source or "the data"
    terms = {"energy": loss.energy, "forces": loss.forces}
    for name, term in list(terms.items()):
        if term.weight and not held.frames[name]:
            warnings.warn(f"{source}: no training frame has {_NOUN[name]}: trained without", stacklevel=2)
            del terms[name]
    if loss.stress.weight == 0:
        if not any(term.weight for term in terms.values()):
            raise InputError(f"{source}: no term of the loss has both a weight and labels")
        return terms
    if not held.stressed:
        raise InputError(
            f"loss.stress.weight is {loss.stress.weight:g}, but no training frame of {source} is "
            "periodic in three directions and has a stress; name it with data.stress_key, or set the weight to 0"
        )
    return terms | {"stress": loss.stress}


_NOUN = {"energy": "an energy", "forces": "forces"}
_WHY = "frames lack labels or have weights"
