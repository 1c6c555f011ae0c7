"""Commands that use a finished run: evaluate, predict, md, export, audit."""

import json
import sys

import ase.io
import numpy as np
import pytest
import torch
import typer
import yaml
from ase import Atoms
from typer.testing import CliRunner

import dcnn.cli
from dcnn import atoms
from dcnn.atoms.export import inputs
from dcnn.cli.audit import audit
from dcnn.cli.evaluate import evaluate
from dcnn.cli.export import export
from dcnn.cli.md import md
from dcnn.cli.predict import predict
from dcnn.errors import InputError
from dcnn.results import fit_config as fit

app = typer.Typer()
for command in (evaluate, predict, md, export, audit):
    app.command()(command)


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def values(*arguments):
    return json.loads(run(*arguments, "--json"))


@pytest.fixture(scope="module")
def pde_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "heat"
    network, points = {"width": 8, "depth": 2}, {"interior": 64, "boundary": 16, "initial": 32}
    config = {"kind": "pde", "problem": {"name": "heat"}, "network": network, "points": points}
    fit({**config, "steps_per_epoch": 5, "training": {"steps": 10, "accelerator": "cpu"}}, folder)
    return folder


@pytest.fixture
def water(tmp_path):
    """Two structures without labels."""
    path = tmp_path / "water.xyz"
    ase.io.write(path, [Atoms("OH2", [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, y]]) for y in (0.0, 0.1)])
    return path


def test_evaluate_repeats_the_test_of_the_run(ethanol_run):
    recorded = json.loads((ethanol_run / "result.json").read_text())["test"]
    found = values("evaluate", ethanol_run)
    assert found["frames"] == 20
    assert found["errors"].keys() == recorded.keys()
    for name in ("energy_mae_kcal_mol", "force_mae_kcal_mol_A", "energy_rmse_meV_atom", "force_rmse_meV_A", "efwt"):
        assert found["errors"][name] == pytest.approx(recorded[name], rel=1e-6)
    text = run("evaluate", ethanol_run)
    assert f"force_mae_kcal_mol_A     {recorded['force_mae_kcal_mol_A']:.6g}" in text


def test_evaluate_takes_another_file_in_its_own_units(ethanol_run, tmp_path):
    frames = atoms.demo_dataset()[:12]
    atoms.write(frames, tmp_path / "a.npz")
    atoms.write(frames, tmp_path / "b.xyz")
    found = [values("evaluate", ethanol_run, "--data", tmp_path / name) for name in ("a.npz", "b.xyz")]
    assert [f["frames"] for f in found] == [12, 12]
    for element, errors in found[0]["errors"].pop("by_element").items():
        assert errors == pytest.approx(found[1]["errors"]["by_element"][element], rel=1e-4)
    del found[1]["errors"]["by_element"]
    assert found[0]["errors"] == pytest.approx(found[1]["errors"], rel=1e-4)


def test_evaluate_takes_runs_of_a_pde(pde_run):
    recorded = json.loads((pde_run / "result.json").read_text())["test"]
    found = values("evaluate", pde_run)["errors"]
    assert found["nrmse"] == pytest.approx(recorded["nrmse"], rel=1e-5)
    assert "nrmse" in run("evaluate", pde_run)


@pytest.mark.parametrize("name", ["out.xyz", "out.extxyz", "out.traj", "out.db", "out.npz"])
def test_predict_writes_energies_in_ev(ethanol_run, water, tmp_path, name):
    found = values("predict", ethanol_run, water, "-o", tmp_path / name)
    expected = atoms.Potential.load(ethanol_run).predict(atoms.load(water, require=(), check=False))
    assert found.pop("outside").keys() <= {"0", "1"}
    assert found == {
        "file": str(tmp_path / name),
        "frames": 2,
        "energy_eV": pytest.approx(expected.energies().tolist()),
    }
    written = atoms.load(tmp_path / name, check=False).to_units("eV", "Ang")
    np.testing.assert_allclose(written.energies(), expected.energies(), rtol=1e-6)
    np.testing.assert_allclose(written[1].forces, expected[1].forces, atol=1e-5)


def test_predict_checks_the_output_before_it_works(ethanol_run, water):
    with pytest.raises(InputError, match=r"cannot write .foo"):
        run("predict", ethanol_run, water, "-o", "out.foo")


def test_md_reports_drift_and_writes_its_trajectory(ethanol_run, tmp_path):
    options = ("--steps", 40, "--timestep", 0.25, "--equilibrate", 5, "--every", 20, "--outside", "ignore")
    found = values("md", ethanol_run, *options, "-o", tmp_path / "path.traj")
    assert found["steps"] == 40
    assert abs(found["drift_meV_atom_ps"]) < 10
    assert found["trajectory"] == str(tmp_path / "path.traj")
    assert len(ase.io.read(tmp_path / "path.traj", index=":")) == 3
    text = run("md", ethanol_run, *options, "-o", tmp_path / "path.xyz")
    assert f"energy drift {found['drift_meV_atom_ps']:+.4f} meV/atom/ps" in text
    assert "trajectory in" in text


def test_md_of_a_structure_with_a_thermostat(ethanol_run, water):
    found = values("md", ethanol_run, "--structure", water, "--steps", 10, "--ensemble", "nvt", "--outside", "ignore")
    assert found["atoms"] == 3
    assert found["drift_meV_atom_ps"] is None
    options = ("--steps", 3, "--ensemble", "nvt", "--threads", 1, "--outside", "ignore")
    assert "drift" not in run("md", ethanol_run, "--structure", water, *options)


def test_export_writes_a_package(ethanol_run, tmp_path, water):
    found = values("export", ethanol_run, "-o", tmp_path / "a.pt2", "--structure", water, "--dtype", "float64")
    assert found["elements"] == [1, 6, 8]
    potential = torch.export.load(found["file"]).module()
    batch = atoms.collate(atoms.load(water, require=(), check=False), found["cutoff_A"])
    energy, *_ = potential(*inputs(batch))
    expected = atoms.Potential.load(ethanol_run, dtype="float64").predict(atoms.load(water, require=(), check=False))
    assert energy.tolist() == pytest.approx(expected.energies().tolist(), rel=1e-12)


def test_audit_of_a_run_a_recipe_and_a_file(ethanol_run, tmp_path):
    trained = values("audit", ethanol_run)
    assert {finding["code"] for finding in trained["findings"]} <= {"DC802"}, "terms may disagree after 20 epochs"
    assert [finding["code"] for finding in trained["raw_labels"]] == ["DC402"], "mended by the label scale"
    sizes = [
        "model.overrides={features: 16, head_features: 16, convolutions: 2, gaussians: 10}",
        "training.batch_size=5",
    ]
    original = values(
        "audit", "demo", "--model", "cgcnn", "--recipe", "original", "model.fidelity=scripts", "data.train=40", *sizes
    )
    assert {"DC202", "DC402", "DC601"} <= {finding["code"] for finding in original["findings"]}
    assert original["raw_labels"] == [], "the labels trained on are the raw ones"
    atoms.write(atoms.demo_dataset()[:80], tmp_path / "ethanol.npz")
    text = run("audit", tmp_path / "ethanol.npz", "--model", "forcenet", "data.train=20")
    assert "DC701" in text
    assert "before the label scale of this recipe: DC402" in text


def test_audit_of_a_pde_takes_the_orders_of_its_residuals(pde_run, tmp_path):
    assert "DC101" not in [finding["code"] for finding in values("audit", pde_run)["findings"]]
    config = yaml.safe_load((pde_run / "config.yaml").read_text())
    config["network"]["activation"] = "irelu"
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(config))
    found = values("audit", tmp_path / "my.yaml")["findings"]
    assert {"order": 2, "vanishing_order": 3} in [finding["numbers"] for finding in found], "heat has u_xx"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "nowhere"), "nowhere: not a run folder"),
        (("predict", "nowhere", "x.xyz", "-o", "y.xyz"), "nowhere: no such run folder or checkpoint"),
        (("audit", "nowhere"), "'nowhere' is neither a file nor one of"),
    ],
)
def test_what_does_not_exist_is_named(arguments, message):
    with pytest.raises(InputError, match=message):
        run(*arguments)


def test_a_run_of_a_pde_is_no_potential(pde_run):
    with pytest.raises(InputError, match="of kind 'pde', not an interatomic potential"):
        run("md", pde_run, "--steps", 1)


@pytest.mark.parametrize("command", ["evaluate", "predict", "md", "export", "audit"])
def test_every_command_shows_an_example(command):
    assert "Example: dcnn" in run(command, "--help")


def test_exit_codes_of_the_whole_program(ethanol_run, water, tmp_path, monkeypatch, capsys):
    hot = ["--structure", water, "--steps", "200", "--timestep", "500", "--last-frame", tmp_path / "last.xyz"]
    for arguments, code, message in (
        (["md", "nowhere", "--steps", "1"], 2, "dcnn: nowhere: no such run folder"),
        (["md", ethanol_run, *hot], 1, "outside of what the potential was trained on"),
        (["predict", ethanol_run, water, "-o", tmp_path / "o.xyz"], 0, ""),
    ):
        monkeypatch.setattr(sys, "argv", ["dcnn", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            dcnn.cli.main()
        assert (stopped.value.code or 0) == code
        assert message in capsys.readouterr().err
