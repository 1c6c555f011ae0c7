"""Training that begins with an earlier run: its forces are kept, its references are not."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml

import dcnn
from dcnn.atoms import Dataset, Potential, demo_dataset, fine_tuning
from dcnn.atoms.config import ScaleConfig, StartConfig
from dcnn.atoms.units import ENERGY
from dcnn.errors import InputError
from dcnn.results import TrainedRun, build_task, fit_config, resolve, resume_run
from dcnn.results.domains import as_config
from dcnn.train import checkpoint

SMALL = {"data": {"path": "demo", "train": 20, "validation": 5, "test": 5}, "training": {"steps": 4, "batch_size": 5}}


def started(run, **more):
    return as_config({**SMALL, "start": {"run": str(run)}, **more})


def moved_frames():
    """Ethanol by another method: another zero of the energy, another unit."""
    frames = demo_dataset()[:60].to_units("eV", "Ang")
    return Dataset([replace(frame, energy=frame.energy + 123.0) for frame in frames], "eV").to_units("kcal/mol")


def test_before_the_first_step_forces_are_those_of_the_origin_and_energies_only_lack_the_new_zero(ethanol_run):
    frames = moved_frames()
    task = build_task(started(ethanol_run))
    network, scale = fine_tuning.started(StartConfig(run=str(ethanol_run)), ScaleConfig(references="elements"), frames)
    old, new = Potential.load(ethanol_run, dtype="float64"), Potential(network, scale, ENERGY["kcal/mol"])
    before, after = old.predict(frames), new.predict(frames)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other.forces, one.forces, atol=1e-9)
    gaps = [other.energy - one.energy for one, other in zip(before, after, strict=True)]
    assert np.ptp(gaps) < 1e-6
    assert old.evaluate(demo_dataset()[:60])["energy_mae_eV"] > 0.9 * new.evaluate(frames)["energy_mae_eV"]
    assert all(p.requires_grad for p in task.network.parameters())


def test_the_run_brings_its_network_and_is_remembered(ethanol_run, tmp_path):
    result = dcnn.fit("demo", tmp_path / "new", start_from=ethanol_run, steps=4, settings={"data": SMALL["data"]})
    config = yaml.safe_load((tmp_path / "new/config.yaml").read_text())
    assert config["start"]["run"] == str(ethanol_run)
    assert len(config["start"]["digest"]) == 32
    assert config["model"] == TrainedRun.open(ethanol_run).config.to_dict()["model"]
    origin = checkpoint.load(ethanol_run / "checkpoints/best.ckpt")["network"]
    assert sum(not torch.equal(origin[name], value) for name, value in result.network.state_dict().items()) > 3


def test_frozen_parts_stay_as_they_were(ethanol_run, tmp_path):
    folder = tmp_path / "frozen"
    dcnn.fit("demo", folder, start_from=ethanol_run, freeze=["embedding", "blocks.0*"], steps=4,
             settings={"data": SMALL["data"]})  # fmt: skip
    origin = checkpoint.load(ethanol_run / "checkpoints/best.ckpt")["network"]
    found = checkpoint.load(folder / "checkpoints/last.ckpt")["network"]
    same = {name for name, value in found.items() if torch.equal(value, origin[name])}
    frozen = {name for name in origin if name.startswith(("embedding", "blocks.0"))}
    assert frozen <= same
    trained = [name for name, _ in TrainedRun.open(folder).network.named_parameters() if name not in frozen]
    assert not any(name in same for name in trained)


def test_a_run_goes_on_when_its_origin_is_gone(ethanol_run, tmp_path):
    origin = shutil.copytree(ethanol_run, tmp_path / "origin")
    fit_config(started(origin), tmp_path / "new")
    shutil.rmtree(origin)
    longer = resume_run(tmp_path / "new", overrides=["training.steps=8"])
    assert longer.values["steps"] == 8


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": {"name": "gemnet"}}, "holds the weights of schnet, which gemnet cannot take"),
        ({"start": {"run": "nowhere"}}, "nowhere: no such run folder or checkpoint to start from"),
        ({"model": {"overrides": {"features": 8}}}, "model.overrides: the weights are of another network"),
    ],
)
def test_what_does_not_fit_is_refused(ethanol_run, more, message):
    with pytest.raises(InputError, match=message):
        build_task(started(ethanol_run, **more))


def test_a_part_that_does_not_exist_is_named(ethanol_run):
    with pytest.raises(InputError, match=r"start.freeze: part of the network 'embeding'.*embedding"):
        build_task(started(ethanol_run, start={"run": str(ethanol_run), "freeze": ["embeding"]}))
    with pytest.raises(InputError, match="nothing is left to train"):
        build_task(started(ethanol_run, start={"run": str(ethanol_run), "freeze": ["*"]}))


def test_other_weights_than_those_of_the_configuration_are_refused(ethanol_run):
    with pytest.raises(InputError, match="other weights than this configuration was made with"):
        build_task(started(ethanol_run, start={"run": str(ethanol_run), "digest": "0" * 32}))


def test_the_command_line_says_the_same(ethanol_run):
    config = resolve("demo", None, [], start={"run": str(ethanol_run), "freeze": ["embedding"]})
    assert config.model == TrainedRun.open(ethanol_run).config.model
    assert config.start.freeze == ("embedding",)
