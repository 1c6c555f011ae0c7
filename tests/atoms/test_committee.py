"""Committees: the mean and the spread of their members, in one pass, and what is done with the spread."""

import json
import shutil
import sys

import ase.io
import numpy as np
import pytest
import torch

from dcnn import cli
from dcnn.atoms import Calculator, Potential, Structure, batch, build, collate, demo_dataset, write
from dcnn.atoms.committee import Committee, _InTurn
from dcnn.atoms.dynamics import simulate
from dcnn.atoms.selection import disagreement, farthest, select
from dcnn.atoms.trained_range import OutsideRangeError
from dcnn.errors import InputError
from dcnn.results import fit_committee
from dcnn.scaling import LabelScale

TINY = {"features": 8, "filters": 8, "blocks": 1, "gaussians": 6}
SMALL = {
    "data": {"path": "demo", "train": 20, "validation": 5, "test": 5},
    "model": {"name": "schnet", "overrides": TINY},
    "training": {"steps": 4, "batch_size": 5},
}


def members(name="schnet", count=3, **options):
    found = []
    for seed in range(count):
        torch.manual_seed(seed)
        scale = LabelScale(1.0 + seed, {1: 0.1 * seed, 6: 1.0, 8: 2.0})
        found.append(Potential(build(name, **options), scale, energy_unit_eV=0.5 + 0.1 * seed))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("committee") / "four"
    fit_committee(SMALL, folder, 3)
    return folder


@pytest.mark.parametrize(
    ("name", "options"),
    [("schnet", TINY), ("cgcnn", {"features": 8, "convolutions": 1, "head_features": 8, "gaussians": 6}),
     ("tensornet", {"features": 4, "layers": 1, "radial": 6})],
)  # fmt: skip
def test_mean_and_spread_are_those_of_the_members_one_by_one(name, options, traced_only):
    several = members(name, **options)
    together = Committee(several)
    together.compile_if_repeated()
    together.repeated.scale = 0.0  # at once
    given = collate(list(demo_dataset()[:4].to_units(length="Ang")), together.cutoff)
    alone = [member(given) for member in several]
    energies = np.stack([p.energy.numpy() for p in alone])
    forces = np.stack([p.forces.numpy() for p in alone])
    for _ in range(4):  # as usual, then compiled
        found = together(given)
        np.testing.assert_allclose(found.energy, energies.mean(0), rtol=1e-12)
        np.testing.assert_allclose(found.forces, forces.mean(0), atol=1e-12)
        np.testing.assert_allclose(found.energy_std, energies.std(0, ddof=1), rtol=1e-9)
        expected = np.sqrt(((forces - forces.mean(0)) ** 2).sum(2).sum(0) / 2)
        np.testing.assert_allclose(found.forces_std, expected, rtol=1e-9)
    assert len(traced_only) == len(together.repeated.ready) == 1
    assert isinstance(together.repeated.network, _InTurn) == (name == "tensornet")  # which vmap cannot take


def test_stress_is_the_mean_stress():
    several = members(**TINY)
    rng = np.random.default_rng(0)
    crystal = batch([6, 8, 1], rng.random((3, 3)) * 4, cell=5 * np.eye(3) + 0.2 * rng.random((3, 3)), cutoff=6.0)
    stress = np.mean([member(crystal, stress=True).stress.numpy() for member in several], axis=0)
    together = Committee(several)
    for _ in range(5):
        np.testing.assert_allclose(together(crystal, stress=True).stress, stress, atol=1e-12)


def test_networks_of_several_kinds_are_taken_in_turn():
    mixed = [*members(count=1, **TINY), *members("tensornet", 1, features=4, layers=1, radial=6)]
    given = collate(list(demo_dataset()[:1].to_units(length="Ang")), 6.0)
    mean = (mixed[0](given).energy + mixed[1](given).energy) / 2
    assert float(Committee(mixed)(given).energy) == pytest.approx(float(mean), rel=1e-12)
    with pytest.raises(InputError, match="two members or more, not 1"):
        Committee(mixed[:1])


def test_a_folder_of_members_is_a_potential_like_any_other(folder):
    committee = Potential.load(folder)
    assert isinstance(committee, Committee)
    assert len({float(m.network.head[0].weight[0, 0]) for m in committee.members}) == 3
    frames = demo_dataset()[:3]
    found = committee.predict(frames)
    assert found[0].info["force_std_eV_A"] > 0
    errors = committee.evaluate(frames)
    assert {"force_mae_eV_A", "force_std_eV_A", "force_error_over_std", "force_std_rank_correlation"} <= set(errors)
    atoms = frames[0].to_ase()
    atoms.calc = Calculator(sorted(folder.glob("member-*")), outside="ignore")
    assert atoms.get_potential_energy() == pytest.approx(found[0].energy, abs=1e-4)
    assert atoms.calc.results["forces_std"].shape == (9,)


def test_training_goes_on_where_it_was_interrupted(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(copy / "member-2")
    before = (copy / "member-0/result.json").read_text()
    assert [r.values["seed"] for r in fit_committee(SMALL, copy, 3)] == [0, 1, 2]
    assert (copy / "member-0/result.json").read_text() == before
    with pytest.raises(InputError, match="holds a run of another configuration"):
        fit_committee({**SMALL, "recipe": "standard"}, copy, 3)


def test_dynamics_ends_where_the_committee_disagrees(folder, tmp_path):
    atoms = demo_dataset()[0].to_ase()
    atoms.calc = Calculator(folder, outside="ignore")
    with pytest.raises(OutsideRangeError, match=r"step 0 of 5: the committee disagrees by .* on the force on atom \d"):
        simulate(atoms, 5, stop_uncertainty=1e-9, last_frame=tmp_path / "last.xyz")
    assert "disagrees" in ase.io.read(tmp_path / "last.xyz").info["stopped"]
    simulate(atoms, 2, timestep=0.1, stop_uncertainty=1e9)
    atoms.calc = Calculator(folder / "member-0", outside="ignore")
    with pytest.raises(Exception, match="stop_uncertainty needs a committee"):
        simulate(atoms, 2, stop_uncertainty=1.0)


def test_the_frames_of_highest_disagreement_are_taken(folder):
    committee, pool = Potential.load(folder), demo_dataset()[:40]
    spread = disagreement(committee, pool)
    chosen, _ = select(committee, pool, 5, by="disagreement")
    assert sorted(chosen) == sorted(np.argsort(-spread)[:5].tolist())
    both, _ = select(committee, pool, 5)
    assert set(both) <= set(np.argsort(-spread)[:25].tolist())
    with pytest.raises(InputError, match="disagreement needs a committee"):
        select(committee.members[0], pool, 5)


def test_the_farthest_frames_are_unlike_each_other_and_unlike_the_known():
    def pair(r):
        return Structure([1, 1], [[0, 0, 0], [0, 0, r]])

    line = [pair(r) for r in (1.0, 1.05, 1.1, 2.0, 3.0)]
    assert farthest(line, 3) == [0, 3, 4] or farthest(line, 3) == [0, 4, 3]
    assert set(farthest(line, 2, known=[pair(1.0), pair(3.0)])) == {2, 3}


def test_the_commands(folder, tmp_path, monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["dcnn", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code in (0, None)
        return capsys.readouterr().out

    write(demo_dataset()[:12], tmp_path / "pool.xyz")
    out = json.loads(run("select", folder, tmp_path / "pool.xyz", "-n", 3, "-o", tmp_path / "to_label.xyz", "--json"))
    assert len(ase.io.read(tmp_path / "to_label.xyz", index=":")) == len(out["frames"]) == 3
    assert min(out["force_std_eV_A"]) > 0
    assert "force_error_over_std" in json.loads(run("evaluate", folder, "--json"))["errors"]
    small = [f"model.overrides.{k}={v}" for k, v in TINY.items()]
    data = ["data.train=8", "data.validation=2", "data.test=2", "training.steps=2"]
    trained = run(
        "train", "demo", "--model", "schnet", "--committee", 2, *small, *data, "--json", "-o", tmp_path / "two"
    )
    assert [m["seed"] for m in json.loads(trained)["members"]] == [0, 1]
    assert "Calibration of the committee" in (tmp_path / "two/report.html").read_text()
