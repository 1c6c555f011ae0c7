"""Stress as a term of the loss: right values, the frames that have one, and what is said when none has."""

import numpy as np
import pytest
import torch

import dcnn.testing as checks
from dcnn.atoms import Dataset, Structure, build, energy_forces_stress
from dcnn.atoms.config import AtomsConfig
from dcnn.atoms.task import build_atoms
from dcnn.errors import InputError

SIZES = {"features": 8, "filters": 8, "blocks": 1, "gaussians": 6, "cutoff": 3.0}


def frames_of(stress=True):
    """Six displaced MgO cells; every second has a stress; in a slab and a molecule it would mean nothing."""
    found = []
    for seed in range(6):
        atoms = checks.crystal(3.0, seed)
        label = 0.01 * np.eye(3) * (1 + seed) if stress and seed % 2 == 0 else None
        forces, cell = np.zeros((4, 3)), atoms.cell[0].numpy()
        found.append(Structure(atoms.z.numpy(), atoms.positions.numpy(), cell, None, -1.0, forces, label))
    found[4] = Structure(**{**vars(found[4]), "pbc": np.array([True, True, False])})
    return Dataset(found, "eV", "cells.xyz")


def task_of(frames, weight=2.0, norm="l2"):
    torch.manual_seed(0)
    loss = {"stress": {"weight": weight, "norm": norm}}
    config = {"model": {"name": "schnet"}, "loss": loss, "training": {"epochs": 1, "batch_size": 6}}
    network = build("schnet", **SIZES).double()
    splits = {"train": frames, "validation": frames, "test": frames}
    return build_atoms(AtomsConfig(**config), frames=splits, network=network)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_term_is_the_mean_over_the_frames_that_have_a_stress(norm):
    frames = frames_of()
    task = task_of(frames, norm=norm)
    batch = next(iter(task.batches(0)))
    residuals = task.residuals(task.network, batch)
    terms = {term.name: term for term in task.terms}
    assert terms["stress"].weight == 2.0
    _, _, predicted = energy_forces_stress(task.network, batch)
    labelled = [row for row in range(6) if batch.pbc[row].all() and not batch.stress[row].isnan().any()]
    assert len(labelled) == 2, "frames 0 and 2; the slab has a label, but no stress"
    error = predicted[labelled] - batch.stress[labelled]
    expected = error.abs().mean() if norm == "l1" else error.square().mean()
    value = terms["stress"].value(residuals["stress"])
    torch.testing.assert_close(value, expected)
    gradients = torch.autograd.grad(value, list(task.network.parameters()), allow_unused=True)
    wanted = torch.autograd.grad(expected, list(task.network.parameters()), allow_unused=True)
    for ours, theirs in zip(gradients, wanted, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs)
    found = task.evaluate(task.network, "validation")
    assert found["stress_mae_eV_A3"] == pytest.approx(float(error.detach().abs().mean()), rel=1e-9)


def test_without_a_weight_no_stress_is_computed():
    task = task_of(frames_of(), weight=0.0)
    assert [term.name for term in task.terms] == ["energy", "forces"]
    assert "stress_mae_eV_A3" not in task.evaluate(task.network, "validation")


def test_a_weight_without_labels_and_huber_are_refused():
    with pytest.raises(InputError, match=r"loss.stress.weight is 2, but no training frame of cells.xyz"):
        task_of(frames_of(stress=False))
    with pytest.raises(InputError, match=r"loss.stress.norm: huber is not possible"):
        task_of(frames_of(), norm="huber")
