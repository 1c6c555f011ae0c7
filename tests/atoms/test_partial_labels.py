"""Frames that lack labels: what a term, a scale, an error and a run make of them."""

import json

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write as ase_write

import dcnn
from dcnn.atoms import Dataset, Potential, Structure, build, collate, energy_and_forces, load
from dcnn.atoms.config import AtomsConfig
from dcnn.atoms.data import write
from dcnn.atoms.task import build_atoms
from dcnn.errors import InputError
from dcnn.results import TrainedRun, fit_config

SIZES = {"features": 8, "filters": 8, "blocks": 1, "gaussians": 6, "cutoff": 3.0}
KINDS = {"mixed": ("E", "F", "EF"), "energies": ("E",), "forces": ("F",)}


def frame(seed, labels="EF", **info):
    rng = np.random.default_rng(seed)
    positions = np.array([[0.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]]) + 0.1 * rng.standard_normal((3, 3))
    energy = -10.0 + 0.1 * rng.standard_normal() if "E" in labels else None
    forces = rng.standard_normal((3, 3)) if "F" in labels else None
    return Structure([8, 1, 1], positions, energy=energy, forces=forces, info=info)


def frames_of(kind, count=24):
    return Dataset([frame(n, KINDS[kind][n % len(KINDS[kind])]) for n in range(count)], "eV")


def task_of(frames, **settings):
    torch.manual_seed(0)
    config = {"model": {"name": "schnet"}, "training": {"epochs": 1, "batch_size": len(frames)}, **settings}
    network = build("schnet", **SIZES).double()
    return build_atoms(
        AtomsConfig(**config), frames=dict.fromkeys(("train", "validation", "test"), frames), network=network
    )


@pytest.mark.parametrize("norm", ["l1", "l2", "length"])
def test_a_term_is_the_mean_over_the_frames_that_have_its_label(norm):
    frames = frames_of("mixed", 6)
    task = task_of(frames, loss={"energy": {"norm": norm}, "forces": {"norm": norm}})
    batch = next(iter(task.batches(0)))
    values = {term.name: term.value(task.residuals(task.network, batch)[term.name]) for term in task.terms}
    whole = collate(frames, 3.0)
    energy, forces = energy_and_forces(task.network, whole)
    for name, error in {"energy": energy - whole.energy, "forces": forces - whole.forces}.items():
        known = error[~error.isnan()]
        assert 0 < len(known) < error.numel()
        vectors = known.view(-1, 3) if name == "forces" else known.view(-1, 1)
        expected = {"l1": known.abs().mean(), "l2": known.square().mean(), "length": vectors.norm(dim=1).mean()}
        torch.testing.assert_close(values[name], expected[norm])


def test_weights_of_frames_and_of_types_multiply():
    frames = Dataset([frame(0), frame(1, config_weight=3.0), frame(2, config_type="far", config_weight=0.5)], "eV")
    task = task_of(frames, loss={"config_weights": {"far": 4.0}})
    batch = next(iter(task.batches(0)))
    assert sorted(batch.weight.tolist()) == [1.0, 2.0, 3.0]
    values = {term.name: term.value(task.residuals(task.network, batch)[term.name]) for term in task.terms}
    energy, forces = energy_and_forces(task.network, batch)
    torch.testing.assert_close(values["energy"], (batch.weight * (energy - batch.energy).square()).mean())
    by_atom = batch.weight[batch.system].unsqueeze(1)
    torch.testing.assert_close(values["forces"], (by_atom * (forces - batch.forces).square()).mean())
    with pytest.raises(InputError, match=r"loss.forces.norm: huber is not possible where frames lack labels or have w"):
        task_of(frames, loss={"forces": {"norm": "huber"}})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ending", ["xyz", "npz", "lmdb", "db", "traj"])
def test_files_of_every_kind_train_and_are_evaluated(kind, ending, tmp_path):
    if ending != "xyz" and kind != "mixed":
        pytest.skip("one format is enough")
    write(frames_of(kind), tmp_path / f"a.{ending}")
    settings = {"train": 12, "validation": 6, "path": str(tmp_path / f"a.{ending}")}
    values = {
        "kind": "atoms",
        "data": settings,
        "model": {"name": "schnet", "overrides": SIZES},
        "training": {"epochs": 1},
    }
    run = tmp_path / "run"
    if kind == "mixed":
        result = fit_config(values, run)
    else:
        missing = {"energies": "forces", "forces": "an energy"}[kind]
        with pytest.warns(UserWarning, match=f"no training frame has {missing}: trained without"):
            result = fit_config(values, run)
    found = json.loads((run / "result.json").read_text())["test"]
    assert result.status == "finished"
    assert ("energy_mae_meV_atom" in found) == (kind != "forces")
    assert ("force_mae_meV_A" in found) == (kind != "energies")
    if kind == "mixed":
        assert TrainedRun.open(run).evaluate(tmp_path / f"a.{ending}")["frames"] == 24


def test_the_scale_takes_the_labels_that_are_there():
    mixed = frames_of("mixed")
    with_energy = [f for f in mixed if f.energy is not None]
    scale, expected = dcnn.LabelScale.fit(mixed), dcnn.LabelScale.fit(with_energy, unit=1.0)
    assert scale.references == pytest.approx(expected.references)
    forces = np.concatenate([f.forces for f in mixed if f.forces is not None])
    assert scale.constant == pytest.approx(np.sqrt((forces**2).mean()))
    assert dcnn.LabelScale.fit(frames_of("forces")).references is None


def test_errors_count_the_frames_that_have_a_label():
    class Springs(torch.nn.Module):
        cutoff = 3.0

        def forward(self, batch):
            pairs = batch.pair_vectors().square().sum(1)
            return pairs.new_zeros(batch.n_systems).index_add(0, batch.system[batch.pair_i], pairs)

    mixed = [frame(n, "EF" if n == 2 else "E", config_type="near" if n else "") for n in range(3)]
    potential = Potential(Springs())
    found = potential.evaluate(mixed)
    energies = np.array([p.energy - f.energy for p, f in zip(potential.predict(mixed), mixed, strict=True)])
    assert found["energy_mae_meV_atom"] == pytest.approx(1000 * np.abs(energies / 3).mean())
    assert found["energy_rmse_meV_atom"] == pytest.approx(1000 * np.sqrt(np.square(energies / 3).mean()))
    near = found["by_config_type"]["near"]
    assert near["energy_mae_meV_atom"] == pytest.approx(1000 * np.abs(energies[1:] / 3).mean())
    forces = potential.predict(mixed)[2].forces - mixed[2].forces
    assert found["force_mae_meV_A"] == near["force_mae_meV_A"] == pytest.approx(1000 * np.abs(forces).mean())
    assert found["by_element"]["O"]["force_rmse_meV_A"] == pytest.approx(1000 * np.sqrt(np.square(forces[0]).mean()))
    assert found["by_element"].keys() == {"O", "H"}
    with pytest.raises(InputError, match="none of the 1 frames has an energy"):
        potential.evaluate([frame(0, "")])


def test_forces_of_some_atoms_are_refused(tmp_path):
    frames = []
    for n in range(3):
        atoms = Atoms("OH2", frame(n).positions)
        forces = np.ones((3, 3))
        forces[1:] = np.nan if n == 1 else 1.0
        atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=forces)
        frames.append(atoms)
    ase_write(tmp_path / "half.xyz", frames, format="extxyz")
    with pytest.raises(InputError, match=r"half.xyz, frame 1: forces of 2 of 3 atoms are NaN \(the first is atom 1\)"):
        load(tmp_path / "half.xyz", require="any")


def test_a_frame_without_any_label_is_refused(tmp_path):
    write(Dataset([frame(0), frame(1, "")], "eV"), tmp_path / "a.xyz")
    with pytest.raises(InputError, match=r"a.xyz, frame 1: no energy and no forces"):
        load(tmp_path / "a.xyz", require="any")


def test_elements_that_only_test_frames_have_are_named_before_the_first_step():
    frames, network = frames_of("mixed", 6), build("schnet", **SIZES)
    strange = Dataset([Structure([9, 1], [[0, 0, 0], [0, 0, 1.0]], energy=-1.0, forces=np.zeros((2, 3)))], "eV")
    splits = {"train": frames, "validation": frames, "test": strange}
    config = AtomsConfig(scale={"references": "elements"}, training={"epochs": 1})
    with pytest.raises(InputError, match=r"the test frames hold F, which no training frame does"):
        build_atoms(config, frames=splits, network=network)
    splits["test"] = Dataset([*frames, *strange], "eV")
    with pytest.warns(UserWarning, match=r"1 of 7 test frames are left out: no training frame has F "):
        task = build_atoms(config, frames=splits, network=network)
    assert len(task.frames["test"]) == task.count("test") == 6
    with pytest.raises(InputError, match="no reference energy for O, which training frames hold"):
        build_atoms(config, frames=splits, network=network, scale=dcnn.LabelScale(1.0, {1: 0.0}))
