"""How far predictions are from labels, with the unit in every name; sums only, so that any number of frames will do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ase.data import chemical_symbols
from torch import Tensor

from dcnn.atoms.dataset import Dataset
from dcnn.atoms.references import LeastSquares, elements_of
from dcnn.atoms.structures import Structure
from dcnn.atoms.units import ENERGY

KCAL_MOL_EV = ENERGY["kcal/mol"]
GPA_EV_A3 = 160.21766208  # GPa in one eV/Å³
EFWT_ENERGY_EV, EFWT_FORCE_EV_A = 0.02, 0.03  # the Open Catalyst thresholds


class LabelErrors:
    """Errors of energies (B,) in eV, forces (N, 3) in eV/Å and stress (B, 3, 3) in eV/Å³, added batch by batch.

    NaN is a label that a frame does not have; what no frame has is not in the result. EFwT is the share of the frames
    with energy and forces within both thresholds.

    >>> sums = LabelErrors()
    >>> sums.add(np.array([1]), np.array([0]), np.array([0.01]), np.array([[0.02, -0.04, 0.0]]))
    >>> found = sums.result()
    >>> print(f"{found['energy_mae_eV']:.3f} {found['force_mae_eV_A']:.3f} {found['efwt']}")
    0.010 0.020 0.0
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str], np.ndarray] = defaultdict(lambda: np.zeros(3))  # count, Σ|e|, Σe²

    def add(
        self,
        z: np.ndarray,
        system: np.ndarray,
        energy: np.ndarray | None = None,
        forces: np.ndarray | None = None,
        stress: np.ndarray | None = None,
        groups: Sequence[str] = (),
    ) -> None:
        """One batch: atomic numbers and system of every atom (N,), errors, and the ``config_type`` of every system."""
        counts = np.bincount(system)
        names = np.array(groups) if any(groups) else np.zeros(len(counts), str)
        if energy is not None:
            self._note("energy_eV", energy, names)
            self._note("energy_meV_atom", 1000 * energy / counts, names)
        if stress is not None:
            self._note("stress_eV_A3", stress, names)
        if forces is None:
            return
        self._note("force_eV_A", forces, names[system])
        known = ~np.isnan(forces[:, 0])
        for element in np.unique(z[known]).tolist():
            self._add("element", chemical_symbols[element], "force_eV_A", forces[known & (z == element)])
        if energy is not None:
            both = (np.bincount(system, weights=known) == counts) & ~np.isnan(energy)
            close = np.bincount(system, weights=(np.abs(forces) < EFWT_FORCE_EV_A).all(1)) == counts
            self._add("", "", "efwt", (close & (np.abs(energy) < EFWT_ENERGY_EV))[both].astype(float))

    def _note(self, label: str, errors: np.ndarray, groups: np.ndarray) -> None:
        known = ~np.isnan(errors.reshape(len(errors), -1)[:, 0])
        self._add("", "", label, errors[known])
        for group in np.unique(groups[known]).tolist():
            if group:
                self._add("config_type", group, label, errors[known & (groups == group)])

    def _add(self, kind: str, name: str, label: str, errors: np.ndarray) -> None:
        if errors.size:
            self._sums[kind, name, label] += errors.size, np.abs(errors).sum(), np.square(errors).sum()

    def result(self) -> dict[str, Any]:
        """MAE and RMSE in all units, ``by_element`` for the forces, ``by_config_type`` where frames have one."""
        means = {key: (sums[1] / sums[0], np.sqrt(sums[2] / sums[0])) for key, sums in self._sums.items()}
        whole = {label: pair for (kind, _, label), pair in means.items() if not kind}
        found: dict[str, Any] = {}
        for name, label in (("energy", "energy_eV"), ("force", "force_eV_A")):
            if label in whole:
                found[f"{name}_mae_kcal_mol{'_A' * (name == 'force')}"] = float(whole[label][0] / KCAL_MOL_EV)
        if "efwt" in whole:
            found["efwt"] = float(whole["efwt"][0])
        for label in ("energy_eV", "force_eV_A"):
            if label in whole:
                name, unit = label.split("_", 1)
                found[f"{name}_mae_{unit}"] = float(whole[label][0])
        found |= _readable(whole)
        if "stress_eV_A3" in whole:
            found["stress_mae_eV_A3"] = float(whole["stress_eV_A3"][0])
        for kind in ("element", "config_type"):
            names = sorted({name for k, name, _ in means if k == kind})
            by_name = {n: _readable({la: m for (k, o, la), m in means.items() if (k, o) == (kind, n)}) for n in names}
            if by_name:
                found[f"by_{kind}"] = by_name
        return found


def difference(name: str, predicted: Tensor, label: Any) -> np.ndarray:
    """Prediction minus label in float64, NaN where there is no label; a prediction that is NaN is infinitely far off.

    (Not a stress: that of a molecule is NaN.)
    """
    values = predicted.detach().cpu().double().numpy()
    return np.asarray((values if name == "stress" else np.nan_to_num(values, nan=np.inf)) - np.asarray(label))


def _readable(means: dict[str, tuple[float, float]]) -> dict[str, float]:
    """{energy_mae_meV_atom, energy_rmse_meV_atom, force_…_meV_A, stress_…_GPa} of what is there."""
    found: dict[str, float] = {}
    for label, name, unit, factor in (
        ("energy_meV_atom", "energy", "meV_atom", 1.0),
        ("force_eV_A", "force", "meV_A", 1000.0),
        ("stress_eV_A3", "stress", "GPa", GPA_EV_A3),
    ):
        if label in means:
            mae, rmse = means[label]
            found |= {f"{name}_mae_{unit}": float(factor * mae), f"{name}_rmse_{unit}": float(factor * rmse)}
    return found


def errors_of_nothing(train: Sequence[Structure], test: Sequence[Structure], unit_eV: float) -> dict[str, float]:
    """The MAE of zero forces, and of the mean training energy (of one energy per element where compositions differ).

    unit_eV: the energy unit of the labels. Every error of a network is to be read beside these.
    """
    trained, tested = (part if isinstance(part, Dataset) else Dataset(part) for part in (train, test))
    elements = np.union1d(elements_of(trained.chunks()), elements_of(tested.chunks()))
    fit = LeastSquares(elements)
    for chunk in trained.chunks():
        fit.add(chunk)
    references, unit = fit.solution(), unit_eV / KCAL_MOL_EV
    forces, energies = np.zeros(2), np.zeros(2)  # count, Σ|label|
    for chunk in tested.chunks():
        forces += _sum_of(chunk.forces[~np.isnan(chunk.forces[:, 0])])
        known = chunk.known("energy")
        energies += _sum_of((chunk.energy - chunk.compositions(elements) @ references)[known])
    found = {}
    if forces[0]:
        found["zero_force_mae_kcal_mol_A"] = float(unit * forces[1] / forces[0])
    if energies[0] and fit.rows:
        found["mean_energy_mae_kcal_mol"] = float(unit * energies[1] / energies[0])
    return found


def _sum_of(values: np.ndarray) -> np.ndarray:
    return np.array([values.size, np.abs(values).sum()])


def calibration(
    energy: Sequence[Tensor], forces: Sequence[Tensor], energy_std: Sequence[Tensor], forces_std: Sequence[Tensor]
) -> dict[str, float]:
    """How the disagreement σ of a committee goes with its errors.

    ``*_std_*``: mean σ of energies (B,) and of force vectors (N,). ``*_error_over_std``: root mean square error over
    root mean square σ, 1 if σ says how large errors are, more if it is too sure. ``force_std_rank_correlation``:
    Spearman's, of σ and error of the forces on atoms.

    >>> one, two = torch.tensor([[3.0, 4.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    >>> found = calibration([torch.tensor([2.0])], [one, two], [torch.tensor([1.0])], [torch.tensor([5.0, 1.0])])
    >>> found["energy_error_over_std"], found["force_error_over_std"], round(found["force_std_rank_correlation"], 9)
    (2.0, 1.0, 1.0)
    """
    e, f = torch.cat(list(energy)), torch.cat(list(forces)).norm(dim=1)
    e_std, f_std = torch.cat(list(energy_std)), torch.cat(list(forces_std))
    ranks = torch.stack([values.argsort().argsort().double() for values in (f, f_std)])
    return {
        "energy_std_eV": float(e_std.mean()),
        "force_std_eV_A": float(f_std.mean()),
        "energy_error_over_std": _rms(e) / max(_rms(e_std), 1e-300),
        "force_error_over_std": _rms(f) / max(_rms(f_std), 1e-300),
        "force_std_rank_correlation": float(torch.corrcoef(ranks)[0, 1]),
    }


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
