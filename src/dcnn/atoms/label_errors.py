"""How far predictions are from labels, with the unit in every name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dcnn.atoms.structures import Structure
from dcnn.atoms.units import ENERGY

KCAL_MOL_EV = ENERGY["kcal/mol"]
EFWT_ENERGY_EV, EFWT_FORCE_EV_A = 0.02, 0.03  # the Open Catalyst thresholds


def errors(energy: Sequence[Tensor], forces: Sequence[Tensor], system: Sequence[Tensor]) -> dict[str, float]:
    """MAE of total energies and of force components, and EFwT: the share of frames within both thresholds.

    For every batch: the error of its energies (B,) in eV and of its forces (N, 3) in eV/Å, and the system (N,) that
    an atom belongs to.

    >>> found = errors([torch.tensor([0.01])], [torch.tensor([[0.02, -0.04, 0.0]])], [torch.tensor([0])])
    >>> print(f"{found['energy_mae_eV']:.3f} {found['force_mae_eV_A']:.3f} {found['efwt']}")
    0.010 0.020 0.0
    """
    within = []
    for delta_e, delta_f, index in zip(energy, forces, system, strict=True):
        worst = torch.zeros_like(delta_e).scatter_reduce(0, index, delta_f.abs().amax(1), "amax")  # (B,)
        within.append((delta_e.abs() < EFWT_ENERGY_EV) & (worst < EFWT_FORCE_EV_A))
    energy_mae_eV = float(torch.cat(list(energy)).abs().mean())
    force_mae_eV_A = float(torch.cat(list(forces)).abs().mean())
    return {
        "energy_mae_kcal_mol": energy_mae_eV / KCAL_MOL_EV,
        "force_mae_kcal_mol_A": force_mae_eV_A / KCAL_MOL_EV,
        "efwt": float(torch.cat(within).double().mean()),
        "energy_mae_eV": energy_mae_eV,
        "force_mae_eV_A": force_mae_eV_A,
    }


def errors_of_nothing(train: Sequence[Structure], test: Sequence[Structure], unit_eV: float) -> dict[str, float]:
    """The MAE of zero forces, and of the mean training energy (of one energy per element where compositions differ).

    unit_eV: the energy unit of the labels. Every error of a network is to be read beside these.
    """
    elements = np.unique(np.concatenate([frame.z for frame in (*train, *test)]))
    counts, energies = (
        [np.array([f(frame) for frame in split], float) for split in (train, test)]
        for f in (lambda frame: (frame.z[:, None] == elements).sum(0), lambda frame: frame.energy)
    )
    references = np.linalg.lstsq(counts[0], energies[0], rcond=None)[0]
    unit = unit_eV / KCAL_MOL_EV
    forces = np.concatenate([np.asarray(frame.forces) for frame in test])
    return {
        "zero_force_mae_kcal_mol_A": unit * float(np.abs(forces).mean()),
        "mean_energy_mae_kcal_mol": unit * float(np.abs(energies[1] - counts[1] @ references).mean()),
    }


def calibration(
    energy: Sequence[Tensor], forces: Sequence[Tensor], energy_std: Sequence[Tensor], forces_std: Sequence[Tensor]
) -> dict[str, float]:
    """How the disagreement σ of a committee goes with its errors.

    ``*_std_*``: mean σ of energies (B,) and of force vectors (N,). ``*_error_over_std``: root mean square error over
    root mean square σ, 1 if σ says how large errors are, more if it is too sure. ``force_std_rank_correlation``:
    Spearman's, of σ and error of the forces on atoms.

    >>> one, two = torch.tensor([[3.0, 4.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    >>> found = calibration([torch.tensor([2.0])], [one, two], [torch.tensor([1.0])], [torch.tensor([5.0, 1.0])])
    >>> found["energy_error_over_std"], found["force_error_over_std"], found["force_std_rank_correlation"]
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
