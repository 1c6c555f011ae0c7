"""Trained networks as potentials: the numbers of the run, in eV and Å, and clear refusals."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from dcnn.atoms import Dataset, Potential, Structure, batch, demo_dataset
from dcnn.atoms.frames import split_frames
from dcnn.atoms.units import ENERGY
from dcnn.errors import InputError
from dcnn.results import TrainedRun
from dcnn.results import fit_config as fit
from dcnn.scaling import LabelScale
from dcnn.train import checkpoint
from dcnn.train.run import Run

KCAL = ENERGY["kcal/mol"]


class Springs(nn.Module):
    """½ Σ_pairs r², which has simple forces."""

    cutoff = 3.0

    def forward(self, batch):
        pairs = 0.5 * batch.pair_vectors().square().sum(1)
        energy = torch.zeros(batch.n_systems, dtype=pairs.dtype)
        return energy.index_add(0, batch.system[batch.pair_i], pairs)


def molecule(shift=0.0, **options):
    return Structure(np.array([8, 1, 1]), np.array([[0.0, 0, 0], [1, 0, 0], [0, 1 + shift, 0]]), **options)


@pytest.fixture(scope="module")
def frames(ethanol_run):
    return split_frames(TrainedRun.open(ethanol_run).config.data)["test"]


def test_the_errors_are_those_of_the_run(ethanol_run, frames):
    recorded = json.loads((ethanol_run / "result.json").read_text())["test"]
    found = Potential.load(ethanol_run).evaluate(frames)
    assert found.pop("outside") == 0
    assert found.keys() | {"mean_energy_mae_kcal_mol", "zero_force_mae_kcal_mol_A"} == recorded.keys()
    again = Potential.load(ethanol_run).evaluate(frames.to_units("eV"))
    for other in (recorded, again):
        for element, errors in found["by_element"].items():
            assert other["by_element"][element] == pytest.approx(errors, rel=1e-6)
        numbers = {name: value for name, value in found.items() if isinstance(value, float)}
        assert {name: other[name] for name in numbers} == pytest.approx(numbers, rel=1e-6)


def test_predictions_are_in_electronvolts_and_have_true_forces(ethanol_run, frames):
    potential = Potential.load(ethanol_run / "checkpoints" / "best.ckpt", dtype="float64")
    found = potential.predict(frames[:3])
    assert (found.units.energy, found.units.length, len(found)) == ("eV", "Ang", 3)
    labels = frames.energies()[:3] * KCAL
    assert np.abs(found.energies() - labels).max() < 2, "eV of total energies near -310 eV"

    frame, step = frames[1], 1e-4
    rng = np.random.default_rng(0)
    for direction in rng.standard_normal((3, *frame.positions.shape)):
        ends = [Structure(frame.z, frame.positions + h * direction) for h in (step, -step)]
        ahead, behind = potential.predict(ends).energies()
        assert (behind - ahead) / (2 * step) == pytest.approx(np.sum(found[1].forces * direction), rel=1e-6, abs=1e-6)


def test_scale_references_and_units_enter_as_they_should():
    scale = LabelScale(3.0, {1: -10.0, 8: -50.0})
    found = Potential(Springs(), scale, energy_unit_eV=0.5).predict([molecule()])[0]
    assert found.energy == pytest.approx(0.5 * (3 * 0.5 * (1 + 1 + 2) - 70))
    assert found.forces == pytest.approx(1.5 * np.array([[1, 1, 0], [-2, 1, 0], [1, -2, 0]]))


def test_only_what_is_periodic_in_all_directions_has_a_stress():
    cell = np.diag([6.5, 7.0, 7.5])
    frames = [molecule(), molecule(0.1, cell=cell), molecule(0.2, cell=cell, pbc=np.array([1, 1, 0])), molecule(0.3)]
    found = Potential(Springs()).predict(frames)
    assert [frame.stress is not None for frame in found] == [False, True, False, False]
    expected = [0.5 * (1 + (1 + s) ** 2 + 1 + (1 + s) ** 2) for s in (0, 0.1, 0.2, 0.3)]
    assert found.energies() == pytest.approx(expected), "the order of the frames is kept"
    virial = np.array([[2.0, -1.1, 0], [-1.1, 2 * 1.1**2, 0], [0, 0, 0]])  # Σ r ⊗ r
    assert found[1].stress == pytest.approx(virial / np.prod([6.5, 7.0, 7.5]))


def test_stress_errors_are_reported_where_there_are_labels():
    cell = np.diag([6.5, 7.0, 7.5])
    truth = Potential(Springs()).predict([molecule(s, cell=cell) for s in (0, 0.1)])
    shifted = [Structure(**{**vars(frame), "stress": frame.stress + 0.25}) for frame in truth]
    assert Potential(Springs()).evaluate(shifted)["stress_mae_eV_A3"] == pytest.approx(0.25)


def test_float32_is_close_and_its_own(ethanol_run, frames):
    rough, fine = (Potential.load(ethanol_run, dtype=d).predict(frames[:2]) for d in ("float32", torch.float64))
    assert rough.energies() == pytest.approx(fine.energies(), abs=1e-4)
    assert not np.array_equal(rough.energies(), fine.energies())
    assert rough[0].forces.dtype == np.float64


def test_progress_is_told(ethanol_run, frames, monkeypatch):
    monkeypatch.setattr("dcnn.atoms.potential.BATCH", 8)
    seen = []
    Potential.load(ethanol_run).predict(frames, lambda done, total: seen.append((done, total)))
    assert seen == [(8, 20), (16, 20), (20, 20)]


def test_unknown_elements_are_refused_with_their_place(ethanol_run):
    potential = Potential.load(ethanol_run)
    assert potential.elements == {1, 6, 8}
    frames = Dataset([molecule(), Structure([7, 14], [[0, 0, 0], [0, 0, 2.0]])], "eV", "new.xyz")
    with pytest.raises(InputError, match=r"new.xyz, frame 1: the structure holds N, Si, .* on H, C, O only"):
        potential.predict(frames)
    everything = Potential(Springs())
    assert everything.elements is None
    everything.require_elements([118])


@pytest.mark.parametrize("recipe", ["original", "paper"])
def test_recipes_without_references_know_their_elements(tmp_path, recipe):
    config = {"data": {"path": "demo", "train": 10, "validation": 2, "test": 2}, "recipe": recipe}
    model = {"name": "schnet", "overrides": {"features": 8, "filters": 8, "blocks": 1, "gaussians": 5}}
    result = fit({**config, "model": model, "training": {"epochs": 1, "accelerator": "cpu"}}, tmp_path / "run")
    potential = Potential.load(tmp_path / "run")
    assert potential.elements == {1, 6, 8}
    frames = split_frames(TrainedRun.open(tmp_path / "run").config.data)["test"]
    assert potential.evaluate(frames)["force_mae_eV_A"] == pytest.approx(result.test["force_mae_eV_A"], rel=1e-6)


def test_checkpoints_without_a_list_of_elements_take_that_of_the_references(ethanol_run, tmp_path):
    state = checkpoint.load(Run(ethanol_run).best)
    del state["task"]["elements"], state["format_version"]
    checkpoint.save(tmp_path / "old.ckpt", state)
    assert Potential.load(tmp_path / "old.ckpt").elements == {1, 6, 8}


def test_atoms_on_top_of_each_other_are_refused_with_their_place(ethanol_run):
    frames = Dataset([molecule(), Structure([1, 1], np.zeros((2, 3)))], "eV", "new.xyz")
    with pytest.raises(InputError, match=r"new.xyz, frame 1: atoms 0 and 1 are 0 Å apart"):
        Potential.load(ethanol_run).predict(frames)


def frames_without_labels_cannot_be_compared():
    with pytest.raises(InputError, match="2 of 2 frames have no energy or no forces"):
        Potential(Springs()).evaluate([molecule(), molecule()])


def test_what_is_no_potential_is_refused(tmp_path):
    checkpoint.save(tmp_path / "pde.ckpt", {"config": {"kind": "pde"}, "network": {}})
    (tmp_path / "text.ckpt").write_text("not a checkpoint")
    (tmp_path / "empty").mkdir()
    for name, message in {
        "nowhere": "no such run folder or checkpoint",
        "pde.ckpt": "of kind 'pde', not an interatomic potential",
        "text.ckpt": "not a readable checkpoint",
        "empty": "no such checkpoint",
    }.items():
        with pytest.raises(InputError, match=message):
            Potential.load(tmp_path / name)
    with pytest.raises(InputError, match="unknown dtype 'float46'; did you mean 'float64'"):
        Potential(Springs(), dtype="float46")


def test_a_batch_can_be_passed_directly():
    potential = Potential(Springs(), LabelScale(2.0))
    water = batch(z=[8, 1, 1], positions=[[0.0, 0, 0], [1, 0, 0], [0, 1, 0]], cutoff=3.0)
    found = potential(water)
    assert found.energy.tolist() == [4.0]
    assert found.energy.dtype == found.forces.dtype == torch.float64
    assert found.stress is None


def test_the_whole_demo_fits_in_batches(ethanol_run):
    found = Potential.load(ethanol_run).predict(demo_dataset()[:120])
    assert len(found) == 120
    assert found.name == "ethanol_xtb"


def test_it_says_what_it_is(ethanol_run):
    potential = Potential.load(ethanol_run)
    text = repr(potential)
    assert text.startswith("Potential(SchNet of ")
    assert "weights, H, C, O, cutoff 6 Å, float32)" in text
    assert potential._repr_html_() == f"<b>{text}</b>"
