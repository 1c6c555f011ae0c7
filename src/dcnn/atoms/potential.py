"""A trained network as a potential: structures in Å in, energies in eV, forces in eV/Å and stress in eV/Å³ out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from ase.data import chemical_symbols
from torch import Tensor, nn

from dcnn.atoms.atoms_batch import AtomsBatch
from dcnn.atoms.batching import collate
from dcnn.atoms.dataset import Dataset
from dcnn.atoms.forces import energy_and_forces, energy_forces_stress
from dcnn.atoms.frame_arrays import GROUP, LABELS, FrameArrays
from dcnn.atoms.label_errors import LabelErrors, calibration, difference
from dcnn.atoms.models import build
from dcnn.atoms.neighbours import half_pairs
from dcnn.atoms.repeated import Repeated
from dcnn.atoms.structures import Structure
from dcnn.atoms.trained_range import TrainedRange
from dcnn.errors import InputError, unknown
from dcnn.guard import decoding, error_context
from dcnn.scaling import LabelScale
from dcnn.train import checkpoint

DTYPES = {"float32": torch.float32, "float64": torch.float64}
BATCH = 50  # frames evaluated at once


class Prediction(NamedTuple):
    """Of a batch of B systems with N atoms in all, in float64."""

    energy: Tensor  # (B,) eV
    forces: Tensor  # (N, 3) eV/Å
    stress: Tensor | None  # (B, 3, 3) eV/Å³, positive under tension
    energy_std: Tensor | None = None  # (B,) eV, of the members of a committee
    forces_std: Tensor | None = None  # (N,) eV/Å


def restored_network(
    state: Mapping[str, Any], where: str, network: nn.Module | None = None, trust: bool = False
) -> nn.Module:
    """The network of a checkpoint, in the precision it was trained in.

    network: one of the caller's own that takes the weights. trust: a Python file that the checkpoint names may be run.
    """
    with decoding(where, "checkpoint of a potential"):
        model, weights = dict(state["config"]["model"]), state["network"]
        if network is None:
            if model["name"].startswith("object:"):
                kind = model["name"].removeprefix("object:")
                raise InputError(f"{where}: trained with a {kind} given as an object: give one (network=, model=)")
            if ".py:" in model["name"] and not trust:
                raise InputError(
                    f"{where}: its network is {model['name']}, code that opening it would run; "
                    "say trust=True (--trust) if you know it, or give the network itself"
                )
            overrides = model.pop("overrides")
            largest = max([256, len(weights), *(size for tensor in weights.values() for size in tensor.shape)])
            if any(isinstance(value, int) and value > largest for value in overrides.values()):
                raise InputError(f"{where}: asks for a network that is larger than the weights it holds")
            network = build(**overrides, **model)
        network.to(checkpoint.trained_dtype(weights))
        checkpoint.load_weights(network, weights, where)
        return network


class Potential:
    """E = unit · (C · network(batch) + Σ references), with forces −∂E/∂r and stress ∂E/∂ε / V of the same E.

    ``network`` takes an :class:`AtomsBatch` and returns energies (B,) in the unit of ``scale``, whose labels are in
    units of ``energy_unit_eV``. ``elements`` are those it was trained on (None: not known, everything is admitted).
    The network is put into evaluation mode and its weights are frozen.
    """

    def __init__(
        self,
        network: nn.Module,
        scale: LabelScale | None = None,
        energy_unit_eV: float = 1.0,
        elements: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str = torch.float64,
        range: TrainedRange | None = None,
    ) -> None:
        self.range = range
        self.device, self.dtype = torch.device(device), as_dtype(dtype)
        self.network = network.to(self.device, self.dtype).eval().requires_grad_(False)
        self.cutoff: float = float(network.cutoff)  # type: ignore[arg-type]
        self.scale = scale or LabelScale(1.0)
        self.energy_unit_eV = energy_unit_eV
        if elements is None and isinstance(self.scale.references, dict):
            elements = list(self.scale.references)
        self.elements = None if elements is None else frozenset(elements)
        self._references = self.reference_energies().to(self.device)
        self.repeated: Repeated | None = None

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        device: torch.device | str = "cpu",
        dtype: torch.dtype | str | None = None,
        *,
        network: nn.Module | None = None,
        trust: bool = False,
    ) -> Potential:
        """The best weights of a run folder, or those of a checkpoint file; ``dtype`` None keeps the trained one.

        A network that was trained from a file (``my_net.py:PaiNN``) is made by running that file, which ``trust``
        allows; or give a ``network`` of its kind, which then takes the weights. Several runs, or the folder of a
        committee (``dcnn train --committee``), make a :class:`~dcnn.atoms.committee.Committee`.
        """
        from dcnn.atoms.committee import Committee, member_folders

        if not isinstance(path, (str, Path)) or (Path(path).is_dir() and member_folders(path)):
            return Committee.load(path, device, dtype, network=network, trust=trust)
        path = Path(path)
        if not path.exists():
            raise InputError(f"{path}: no such run folder or checkpoint")
        file = path / "checkpoints" / "best.ckpt" if path.is_dir() else path
        state = checkpoint.load(file)
        with decoding(file, "checkpoint of a potential"):
            kind = state.get("config", {}).get("kind")
            if kind != "atoms":
                raise InputError(f"{path}: holds a network of kind {kind!r}, not an interatomic potential")
            network, task = restored_network(state, str(file), network, trust), state["task"]
            scale = LabelScale.from_dict(task["scale"])
            known = TrainedRange.from_dict(task["range"]) if task.get("range") else None
            dtype = dtype or checkpoint.trained_dtype(state["network"])
            return cls(network, scale, task["energy_unit_eV"], task.get("elements"), device, dtype, known)

    def __repr__(self) -> str:
        known = "any element" if self.elements is None else _symbols(sorted(self.elements))
        weights = sum(parameter.numel() for parameter in self.network.parameters())
        kind, precision = type(self.network).__name__, str(self.dtype).removeprefix("torch.")
        return f"Potential({kind} of {weights:,} weights, {known}, cutoff {self.cutoff:g} Å, {precision})"

    def _repr_html_(self) -> str:
        return f"<b>{escape(repr(self))}</b>"

    def __call__(self, batch: AtomsBatch, stress: bool = False) -> Prediction:
        """Energies, forces and, if asked for, stress of a batch in Å; unknown elements are not looked for here."""
        batch = batch.to(self.device, self.dtype)
        energy, forces, by_strain = self.raw(batch, stress)
        unit = self.scale.constant * self.energy_unit_eV
        references = self._references.index_select(0, batch.z)  # (N,)
        total = (energy.double() * unit).index_add(0, batch.system, references)
        return Prediction(total, forces.double() * unit, None if by_strain is None else by_strain.double() * unit)

    def compile_if_repeated(self) -> None:
        """From now on batches of a shape that comes again and again are evaluated by compiled code, once that pays."""
        if self.repeated is None and self.device.type == "cpu":
            self.repeated = Repeated(self.network)

    def raw(self, batch: AtomsBatch, stress: bool = False) -> tuple[Tensor, Tensor, Tensor | None]:
        """Energies, forces and, if asked for, stress in the unit of the network, without references."""
        with torch.no_grad():  # beyond the forces nothing is differentiated
            function: Callable[..., tuple[Tensor, ...]] = energy_forces_stress if stress else energy_and_forces
            found = function(self.network, batch) if self.repeated is None else self.repeated(function, batch)
        energy, forces, *by_strain = found
        return energy, forces, by_strain[0] if stress else None

    def reference_energies(self) -> Tensor:
        """(119,) eV, the constant part of an atom's energy by Z; NaN for elements it was not trained on."""
        table = torch.full((119,), torch.nan, dtype=torch.float64)
        for z in range(1, 119) if self.elements is None else self.elements:
            table[z] = self.scale.unscale_energy(0.0, [z]) * self.energy_unit_eV
        return table

    def require_elements(self, z: Any) -> None:
        """Raises if an atom is of an element that was not in the training frames."""
        if self.elements is None:
            return
        strange = sorted(set(np.unique(z).tolist()) - self.elements)
        if strange:
            known = _symbols(sorted(self.elements))
            raise InputError(
                f"the structure holds {_symbols(strange)}, but the potential was trained on {known} only; "
                "train it on frames that hold every element"
            )

    def outside(
        self, structure: Structure, energy: float | None = None, forces: Any = None, pairs: Any = None
    ) -> list[str]:
        """What about a structure (Å) was never trained on, given its predicted energy and forces; [] if nothing.

        Potentials without a known range of training admit everything. ``pairs``: see :class:`TrainedRange`.
        """
        if self.range is None:
            return []
        if energy is not None:
            energy = energy - float(self.reference_energies()[structure.z].sum())
        return self.range.outside(structure, energy, forces, pairs)

    def predict(self, frames: Sequence[Structure], progress: Callable[[int, int], None] | None = None) -> Dataset:
        """The frames with predicted labels in eV and Å; stress for those that are periodic in all directions.

        A committee adds ``energy_std_eV`` and ``force_std_eV_A``, that of the atom with the largest, to their ``info``.

        ``frames`` that are no :class:`Dataset` are in Å. ``progress(done, total)`` is called after every batch.
        """
        found: list[Structure] = []
        for structures, _, prediction in self._evaluated(frames):
            energies, forces = prediction.energy.tolist(), prediction.forces.cpu().numpy()
            first = 0
            for number, structure in enumerate(structures):
                labels: dict[str, Any] = {"energy": energies[number], "forces": forces[first : first + len(structure)]}
                labels["stress"] = None if prediction.stress is None else prediction.stress[number].cpu().numpy()
                if prediction.energy_std is not None and prediction.forces_std is not None:
                    worst = float(prediction.forces_std[first : first + len(structure)].max())
                    spread = {"energy_std_eV": float(prediction.energy_std[number]), "force_std_eV_A": worst}
                    labels["info"] = structure.info | spread
                found.append(replace(structure, **labels))
                first += len(structure)
            if progress is not None:
                progress(len(found), len(frames))
        return Dataset(found, "eV", getattr(frames, "source", ""), getattr(frames, "name", ""))

    def evaluate(self, frames: Sequence[Structure]) -> dict[str, Any]:
        """Errors against the labels that frames have (:class:`~dcnn.atoms.label_errors.LabelErrors`), of stress, too.

        ``outside`` counts the frames that are not within the range trained on, where that is known; a committee adds
        its disagreement (:func:`~dcnn.atoms.label_errors.calibration`).

        ``frames`` that are no :class:`Dataset` are in eV and Å.
        """
        sums, outside = LabelErrors(), 0
        spread: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # errors and disagreement of a committee
        labelled = frames.to_units("eV", "Ang") if isinstance(frames, Dataset) else frames
        for structures, batch, prediction in self._evaluated(labelled):
            labels = FrameArrays.of(structures)
            errors = {
                name: difference(name, value, getattr(labels, name))
                for name in LABELS
                if (value := getattr(prediction, name)) is not None and labels.known(name).any()
            }
            groups = [str(structure.info.get(GROUP, "")) for structure in structures]
            sums.add(labels.z, batch.system.cpu().numpy(), **errors, groups=groups)
            if self.range is not None:
                parts = prediction.forces.cpu().split([len(s) for s in structures])
                each = zip(structures, prediction.energy.tolist(), parts, strict=True)
                outside += sum(bool(self.outside(s, e, f.numpy())) for s, e, f in each)
            if prediction.forces_std is not None and prediction.energy_std is not None and len(errors) >= 2:
                e, f = (torch.from_numpy(errors[name]) for name in ("energy", "forces"))
                e_std, f_std = prediction.energy_std.cpu(), prediction.forces_std.cpu()
                known, known_f = ~e.isnan(), ~f[:, 0].isnan()
                spread.append((e[known], f[known_f], e_std[known], f_std[known_f]))
        found = sums.result()
        if not found:
            raise InputError(f"none of the {len(frames)} frames has an energy, forces or a stress to compare with")
        if self.range is not None:
            found["outside"] = outside
        return found | (calibration(*zip(*spread, strict=True)) if spread else {})

    def _evaluated(self, frames: Sequence[Structure]) -> Iterator[tuple[list[Structure], AtomsBatch, Prediction]]:
        """Batch by batch, in order: structures, their batch and its prediction."""
        if isinstance(frames, Dataset):
            frames = frames.to_units(length="Ang")
        where = getattr(frames, "where", "frame {}".format)
        for first in range(0, len(frames), BATCH):
            numbers = range(first, min(first + BATCH, len(frames)))
            read = [(number, frames[number]) for number in numbers]
            for periodic, group in groupby(read, lambda entry: bool(np.all(entry[1].pbc))):
                structures, pairs = [], []
                for number, structure in group:
                    with error_context(where(number)):
                        self.require_elements(structure.z)
                        pairs.append(half_pairs(structure.positions, self.cutoff, structure.cell, structure.pbc))
                    structures.append(structure)
                batch = collate(structures, pairs, self.dtype)
                yield structures, batch, self(batch, stress=periodic)


def as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """float32 or float64, given as itself or by name."""
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise unknown("dtype", dtype, DTYPES)
    return found


def _symbols(elements: Sequence[int]) -> str:
    return ", ".join(chemical_symbols[z] for z in elements)
