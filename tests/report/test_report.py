"""Pages of real tiny runs: what they show is what the run folder says, and they open without a network."""

import re
import shutil

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from dcnn.atoms import Structure
from dcnn.cli import report as report_command
from dcnn.cli import train as train_command
from dcnn.report import atoms_charts as potential
from dcnn.report import page as page_module
from dcnn.report import pde_charts as field
from dcnn.report import write_page, write_run_page
from dcnn.report.details import examine
from dcnn.report.molecule import molecule
from dcnn.report.reported_run import ReportedRun
from dcnn.results import TrainedRun
from dcnn.train import Run


@pytest.fixture(scope="module")
def best(grid):
    return ReportedRun.read(grid / "schnet-best-0")


@pytest.fixture(scope="module")
def predictions(best):
    return potential.predict(TrainedRun(best.run).task)


def test_a_page_is_one_small_file_that_asks_for_nothing(page):
    text = page.read_text()
    assert len(text) < 1_000_000
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert "@import" not in text
    assert "url(" not in text


def test_what_a_user_wrote_is_escaped(page):
    text = page.read_text()
    assert "<h1>Tiny &lt;runs&gt;</h1>" in text
    assert "Tiny <runs>" not in text


@pytest.mark.parametrize(
    "wanted",
    ["Summary", "Learning curves", "All runs", "Energies", "Force errors by element", "Forces on the atoms",
     "u: network", "u: reference", "u: error", "residual of advection", "u along x", "Error over time",
     "Audit of the trained network", "Configuration", "nRMSE of the best constant", "dcnn train"],
)  # fmt: skip
def test_a_page_has_all_its_parts(page, wanted):
    assert wanted in page.read_text()


def test_predictions_have_the_errors_of_the_result(best, predictions):
    """All 20 test frames are looked at, so the means must be those that training wrote down."""
    force = np.abs(predictions.forces - predictions.forces_label).mean()
    energy = np.abs(predictions.energy - predictions.energy_label).mean()
    assert force == pytest.approx(best.test["force_mae_kcal_mol_A"], rel=1e-4)
    assert energy == pytest.approx(best.test["energy_mae_kcal_mol"], rel=1e-4)
    assert predictions.note == "All 20 test frames."


def test_large_sets_of_frames_are_sampled(best, monkeypatch):
    monkeypatch.setattr(potential, "MOST_FRAMES", 7)
    monkeypatch.setattr(potential, "FEWEST_FRAMES", 2)
    task = TrainedRun(best.run).task
    assert potential.predict(task).note == "7 of 20 test frames."
    monkeypatch.setattr(potential, "MOST_ATOMS", 9 * 5)
    assert potential.predict(task).note == "5 of 20 test frames."


def test_errors_by_element_add_up(predictions):
    rows = potential.element_table(predictions)
    assert [row["element"] for row in rows] == ["H", "C", "O"]
    mean = sum(row["atoms"] * row["mae"] for row in rows) / sum(row["atoms"] for row in rows)
    assert mean == pytest.approx(np.abs(predictions.forces - predictions.forces_label).mean())
    frames = potential.frame_errors(predictions)
    chosen = dict(potential.chosen_frames(predictions))
    assert frames[chosen["worst"]] == frames.max()
    assert frames[chosen["best"]] == frames.min()


def test_rare_elements_share_a_colour():
    z = np.repeat([1, 6, 7, 8, 26, 27, 28], [9, 8, 7, 6, 5, 4, 3])
    found = potential.by_element(z)
    assert [name for name, *_ in found] == ["H", "C", "N", "O", "Fe", "others"]
    assert len({colour for *_, colour in found}) == 6
    assert sum(atoms.sum() for _, atoms, _ in found) == len(z)


def test_the_molecule_is_turned_and_not_bent(predictions):
    data = molecule(predictions)
    frame = data["frames"][0]
    number = dict(potential.chosen_frames(predictions))["typical"]
    original = predictions.frames[number].positions

    def distances(x):
        return np.linalg.norm(x[:, None] - x[None], axis=-1)

    assert distances(np.array(frame["positions"])) == pytest.approx(distances(original), abs=4e-3)
    # Forces turn with the atoms: the virial Σ r·F stays.
    forces = predictions.forces_label[predictions.system == number]
    virial = ((original - original.mean(0)) * forces).sum()
    assert (np.array(frame["positions"]) * np.array(frame["label"])).sum() == pytest.approx(virial, rel=1e-2, abs=0.5)
    assert len(frame["bonds"]) == 8, "ethanol"
    assert data["elements"]["O"]["colour"][0] == 255


def test_crystals_have_their_cell_and_energies_per_atom():
    rng = np.random.default_rng(0)
    z = [np.array([12, 8]), np.array([12, 8, 8])]
    cell = np.diag([4.0, 5.0, 6.0])
    frames = tuple(Structure(z=k, positions=rng.random((len(k), 3)) * 4, cell=cell, pbc=np.ones(3, bool)) for k in z)
    system = np.repeat([0, 1], [2, 3])
    energy, forces = np.array([-10.0, -16.0]), rng.normal(size=(5, 3))
    found = potential.Predictions(
        frames, 2, np.concatenate(z), system, energy + np.array([0.2, 0.3]), energy, forces + 0.1, forces
    )  # fmt: skip
    assert len(molecule(found)["frames"][0]["cell"]) == 12
    label, predicted, name = potential._comparable(found)
    assert label == pytest.approx([0, 0], abs=1e-9), "two compositions are fitted exactly by two elements"
    assert predicted == pytest.approx([0.1, 0.1])
    assert "per atom" in name
    assert len(potential.figures(found)) == 4


def test_residuals_on_the_page_are_those_of_the_equation(advection):
    """u_t + β u_x by central differences of the network."""
    task = TrainedRun.open(advection).task
    found = field.evaluate(task)
    points = torch.as_tensor(np.stack(np.meshgrid(*found.grid.values(), indexing="ij"), -1).reshape(-1, 2))
    h = 1e-5

    def network(dx=0.0, dt=0.0):
        with torch.no_grad():
            return task.network(points + torch.tensor([dx, dt]))[:, 0].numpy()

    beta = task.truth.parameters["beta"]
    slope = (network(dt=h) - network(dt=-h) + beta * (network(dx=h) - network(dx=-h))) / (2 * h)
    assert found.residuals["advection"].ravel() == pytest.approx(slope, abs=1e-6)
    assert found.network["u"].ravel() == pytest.approx(network(), abs=1e-12)
    assert found.reference["u"].shape == found.network["u"].shape == (96, 96)


@pytest.mark.parametrize(
    ("problem", "parameters", "titles"),
    [
        ("poisson", {}, ["u: network", "u: reference", "u: error", "residual of poisson"]),
        ("diffusion_reaction", {"resolution": 16}, ["u, t = 0: network", "v, t = 5: error"]),
    ],
)  # fmt: skip
def test_fields_in_the_plane_are_mapped(tmp_path, train_pde, problem, parameters, titles):
    section = examine(ReportedRun.read(train_pde(tmp_path / "run", problem, **parameters)))
    shown = [figure.title for row in section.figures for figure in row]
    assert set(titles) <= set(shown), shown


def test_a_problem_without_a_solution_is_shown_without_errors(advection, monkeypatch):
    task = TrainedRun.open(advection).task
    monkeypatch.setattr(type(task), "reference", None)
    found = field.evaluate(task)
    assert found.reference == {}
    titles = [figure.title for row in field.figures(found) for figure in row]
    assert titles == ["u: network", "residual of advection", "u along x"]


def test_a_constant_network_is_called_so(advection):
    entry = ReportedRun.read(advection)
    entry.values["test"] |= {"collapsed": True}
    assert "Collapsed" in examine(entry).notes[0]
    entry.values["test"] |= {"collapsed": False, "nrmse": 1.1, "constant_nrmse": 1.0}
    assert "No better than a constant: nRMSE 1.1 against 1" in examine(entry).notes[0]


def test_missing_data_is_noted_and_the_rest_is_shown(tmp_path, train_atoms):
    from dcnn.atoms import demo_dataset
    from dcnn.atoms.data import write

    write(demo_dataset()[:80], tmp_path / "frames.npz")
    folder = train_atoms(tmp_path / "run", path=str(tmp_path / "frames.npz"))
    (tmp_path / "frames.npz").unlink()
    text = write_run_page(folder).read_text()
    assert "Predictions and audit are left out" in text
    assert "frames.npz: no such file" in text
    assert "Loss terms" in text


@pytest.mark.parametrize("damage", ["gone", "other network", "broken"])
def test_a_checkpoint_that_cannot_be_used_is_noted(tmp_path, grid, damage):
    run = Run(shutil.copytree(grid / "schnet-best-0", tmp_path / "run"))
    if damage == "gone":
        run.best.unlink()
    elif damage == "broken":
        run.best.write_bytes(b"no checkpoint")
    else:
        text = run.config_file.read_text()
        run.config_file.write_text(text.replace("features: 16", "features: 8"))
    expected = {"gone": "No checkpoint yet", "broken": "not a readable checkpoint", "other network": "do not fit"}
    assert expected[damage] in write_run_page(run.folder).read_text()


def test_a_page_that_grows_too_long_drops_details_and_says_so(grid, tmp_path, monkeypatch):
    whole = len(write_page([grid], tmp_path / "page.html").read_bytes())
    monkeypatch.setattr(page_module, "MOST_BYTES", whole - 1)
    text = write_page([grid], tmp_path / "page.html").read_text()
    assert "1 more kind of run" in text
    assert text.count('<details class="run"') == 1


def run_command(command, *arguments):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(("options", "heading"), [(["--title", "Ethanol"], "Ethanol"), ([], "demo: schnet, original")])
def test_the_report_command_writes_a_page(grid, tmp_path, options, heading):
    path = tmp_path / "page.html"
    result = run_command(report_command.report, grid / "schnet-original-0", "-o", path, *options)
    assert result.exit_code == 0, result.output
    assert f"wrote {path}" in result.output
    assert f"<h1>{heading}</h1>" in path.read_text()


def test_training_leaves_a_page_in_the_run_folder(tmp_path):
    settings = [
        "training.epochs=1",
        "data.train=20",
        "data.test=10",
        "model.overrides={features: 8, layers: 1}",
    ]
    result = run_command(train_command.train, "demo", *settings, "-o", tmp_path / "run")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "run" / "report.html").read_text()
    assert "<h1>demo: tensornet, best</h1>" in text
    run_command(train_command.train, "demo", *settings, "-o", tmp_path / "other", "--no-page")
    assert not (tmp_path / "other" / "report.html").exists()
