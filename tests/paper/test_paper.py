"""The paper's numbers, and the runs that each of its tables and figures is made of."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from dcnn import paper
from dcnn.atoms.label_errors import KCAL_MOL_EV
from dcnn.errors import InputError
from dcnn.grid.cells import GridCell
from dcnn.paper import sources as files
from dcnn.paper.cost import estimate, seconds_per_step, steps_of
from dcnn.paper.definitions import EXPERIMENTS
from dcnn.paper.published import ENERGY, FORCES, numbers, published
from dcnn.results import as_config

SHARED = Path(__file__).resolve().parents[3] / "shared"
NAMES = {
    "schnet": "SchNet",
    "cgcnn": "CGCNN",
    "dimenet_plus_plus": "DimeNet++",
    "forcenet": "ForceNet",
    "gemnet": "GemNet",
}
LABELS = {
    "table1": "tab:exp_qc_joint",
    "ablation-irelu": "tab:appx_qc_ir",
    "ablation-irelu-rescaled": "tab:appx_qc_ir2",
    "ablation-denorm": "tab:appx_qc_denorm",
}


def plan(name, scale="smoke", **options):
    return paper.plan(paper.get(name), paper.Options(scale, **options))


# ---- the numbers ----


@pytest.mark.parametrize(
    ("name", "key", "energy", "forces"),
    [
        ("table1", ("aspirin", "schnet", "original"), 53.00, 1.21),
        ("table1", ("uracil", "gemnet", "paper"), 21.98, 7.07),
        ("table1", ("toluene", "cgcnn", "original"), 124.29, 9.73),
        ("ablation-irelu", ("aspirin", "forcenet", "irelu"), 4e5, 32.34),
        ("ablation-irelu-rescaled", ("aspirin", "dimenet_plus_plus", "rescaled"), 237.34, 0.75),
        ("ablation-denorm", ("benzene", "cgcnn", "rescaled"), 1000.86, 0.35),
        ("fig1", ("aspirin", "schnet", "original", 30.0), 168.3, 1.26),
        ("table2", ("oxides", "schnet", "original"), 6.94 / KCAL_MOL_EV, 0.10 / KCAL_MOL_EV),
    ],
)
def test_numbers_are_those_of_the_paper(name, key, energy, forces):
    assert published(name)[key] == pytest.approx({ENERGY: energy, FORCES: forces})


def test_what_the_paper_prints_as_nan_is_not_a_number_to_compare_with():
    assert published("ablation-irelu")["benzene", "gemnet", "irelu"] == {}


@pytest.mark.parametrize(("name", "cells"), [("table1", 80), ("ablation-denorm", 32), ("table2", 8), ("table4", 4)])
def test_every_table_is_complete(name, cells):
    assert len(published(name)) == cells


def latex(label):
    text = next((SHARED / "paper").glob("*.txt")).read_text()
    end = text.index(f"\\label{{{label}}}")
    return text[text.rindex("\\begin{tabular}", 0, end) : end]


def row_of(table, first):
    """The numbers of the line that starts with `first`, and of the line below it."""
    lines = [re.sub(r"\\textbf\{\s*([^}]*)\}", r"\1", line).replace("\\", "") for line in table.splitlines()]
    at = next(n for n, line in enumerate(lines) if line.strip().startswith(f"{first} "))
    return [[float(cell) for cell in line.split("&")[1:]] for line in lines[at : at + 2]]


@pytest.mark.skipif(not (SHARED / "paper").is_dir(), reason="the paper's text is not here (../shared/paper)")
@pytest.mark.parametrize("name", LABELS)
def test_every_number_of_the_potentials_stands_in_the_papers_text(name):
    table = latex(LABELS[name])
    for model, recipes in numbers()[name].items():
        for star, found in zip(("", "*"), recipes.values(), strict=True):
            energy, forces = row_of(table, NAMES[model] + star)
            np.testing.assert_array_equal(found["energy"], energy)
            np.testing.assert_array_equal(found["forces"], forces)


@pytest.mark.skipif(not (SHARED / "paper").is_dir(), reason="the paper's text is not here (../shared/paper)")
@pytest.mark.parametrize(("name", "label"), [("table3", "adv"), ("table4", "cfd"), ("table5", "diffreact")])
def test_every_number_of_the_pdes_stands_in_the_papers_text(name, label):
    lines = [line for line in latex(f"tab:exp_pinns_{label}").splitlines() if line.count("&") > 2][1:]
    for line, recipe in zip(lines, ("original-bn", "paper-bn", "original", "paper"), strict=True):
        cells = re.sub(r"\\textbf\{([^}]*)\}", r"\1", line).replace("\\", "").replace("$<$e", "1e").split("&")[1:]
        assert [float(cell) for cell in cells] == pytest.approx(list(numbers()[name][recipe].values()), rel=1e-12)


# ---- the runs ----


@pytest.mark.parametrize(
    ("name", "count"),
    list(zip(EXPERIMENTS, (8, 10, 8, 4, 4, 4, 10, 10, 4, 3), strict=True)),
)
def test_a_smoke_test_needs_no_data_and_says_so(name, count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = plan(name)
    assert len(found.cells) == count
    assert len({cell.name for cell in found.cells}) == count
    if found.experiment.kind != "pde":
        assert all(cell.config.data.path == "demo" for cell in found.cells)
        assert "GFN2-xTB frames of ethanol instead of" in found.title
    assert sum(60 * cell.config.training.minutes for cell in found.cells) <= 40


def test_every_name_of_the_issue_is_there():
    names = "fig1 table1 table2 table3 table4 table5 ablation-irelu ablation-irelu-rescaled ablation-denorm scaling"
    assert set(EXPERIMENTS) == set(names.split())


def only(name, **labels):
    cells = plan(name).cells
    (found,) = [cell for cell in cells if all(cell.labels[key] == value for key, value in labels.items())]
    return found.config


def test_the_ablations_vary_one_thing():
    original, irelu = (only("ablation-irelu", model="cgcnn", recipe=r) for r in ("original", "irelu"))
    assert (original.model.activation, irelu.model.activation) == (None, "irelu")
    assert irelu.model_copy(update={"recipe": "original", "model": original.model}) == original
    rescaled, method = (only("ablation-irelu-rescaled", model="cgcnn", recipe=r) for r in ("rescaled", "paper"))
    assert (rescaled.model.activation, method.model.activation) == (None, "irelu")
    assert rescaled.scale == method.scale
    assert not rescaled.model.normalization
    assert only("ablation-denorm", model="cgcnn", recipe="original") == original


def test_pde_tables_have_batch_norm_or_not_and_the_papers_points():
    configs = {cell.config.recipe: cell.config for cell in plan("table3").cells}
    assert [(c.network.activation, c.network.batch_norm) for c in configs.values()] == [
        ("tanh", False), ("tanh", True), ("irelu", False), ("irelu", True),
    ]  # fmt: skip
    assert {c.points.interior for c in configs.values()} == {1000}
    assert [cell.config.training.steps for cell in plan("table5", "paper").cells] == [100] * 4


def test_the_weight_of_the_forces_is_what_figure_1_varies():
    assert [cell.config.loss.forces.weight for cell in plan("fig1").cells] == [0.01, 0.1, 1, 10, 30, 50, 100, 200]


def test_options_narrow_an_experiment():
    found = plan("table1", models=("gemnet",), recipes=("best",), seeds=3, minutes=0.5, fidelity="scripts")
    assert [cell.name[:-9] for cell in found.cells] == [f"ethanol-gemnet-best-{seed}" for seed in range(3)]
    assert found.cells[0].config.model.fidelity == "scripts"
    assert found.cells[0].config.training.minutes == 0.5


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tabel1", {}, "unknown table or figure 'tabel1'; did you mean 'table1'"),
        ("table1", {"scale": "smal"}, "unknown scale 'smal'; did you mean 'small'"),
        ("table1", {"models": ("schnett",)}, "unknown network of table1 'schnett'; did you mean 'schnet'"),
        ("table2", {"models": ("gemnet",)}, "unknown network of table2 'gemnet'"),
        ("table1", {"molecules": ("etanol",)}, "unknown molecule 'etanol'; did you mean 'ethanol'"),
        ("table1", {"molecules": ("aspirin",)}, "only the ethanol frames of the package"),
        ("table1", {"recipes": ("papr",)}, "unknown recipe 'papr'; did you mean 'paper'"),
        ("table1", {"fidelity": "exact"}, "unknown fidelity"),
        ("table1", {"seeds": 0}, "at least one seed"),
        ("table1", {"scale": "paper", "minutes": 1.0}, "leave --minutes out"),
        ("table1", {"scale": "long", "minutes": 1.0}, "leave --minutes out"),
        ("table1", {"scale": "small", "steps": 10}, "--steps 10: for --scale long"),
        ("table1", {"scale": "long", "steps": 0}, "at least one step"),
        ("table2", {"molecules": ("ethanol",)}, "has no molecules"),
        ("table3", {"molecules": ("ethanol",)}, "is a PDE; leave --molecules out"),
        ("table3", {"models": ("schnet",)}, "is a PDE; leave --models out"),
    ],
)
def test_wrong_names_are_refused_with_the_valid_ones(name, options, message):
    with pytest.raises(InputError, match=message):
        plan(name, **options)


# ---- data ----


def write(path, frames, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    np.savez(path, E=np.zeros(frames), F=np.zeros((frames, 2, 3)), R=rng.normal(size=(frames, 2, 3)), z=[1, 1], **more)
    return path


def write_splits(folder, frames, numbers_=(1,)):
    """rMD17 splits whose frames overlap by half from one to the next."""
    folder.mkdir(parents=True)
    for n in numbers_:
        for shift, part in enumerate(("train", "test")):
            index = np.arange(frames) + (2 * n + shift) * frames // 2
            arrays = {"coords": np.zeros((frames, 2, 3)), "energies": 1.0 * index, "old_indices": index}
            np.savez(folder / f"rmd17_ethanol_{part}_{n:02d}.npz", nuclear_charges=[1, 1], **arrays)


def test_small_takes_md17_labels_of_the_official_split(tmp_path):
    write_splits(tmp_path / "rmd17", 1000)
    found = plan("table1", "small", molecules=("ethanol",), models=("schnet",), data=tmp_path)
    data = found.cells[0].config.data
    assert Path(data.path).name == "rmd17_ethanol_train_01.npz"
    assert Path(data.test).name == "rmd17_ethanol_test_01.npz"
    assert (data.labels, data.train, data.validation) == ("md17", 950, 50)
    assert len(found.cells) == 4
    assert {cell.labels["recipe"]: cell.config.scale.unit for cell in found.cells} == {"original": 1.0, "paper": 1e6}
    (tmp_path / "rmd17" / "rmd17_ethanol_test_01.npz").unlink()
    with pytest.raises(InputError, match=r"rmd17_ethanol_test_01\.npz, are not beside it"):
        plan("table1", "small", molecules=("ethanol",), data=tmp_path)


def test_small_takes_more_and_larger_steps_than_the_paper_but_best_keeps_its_own(tmp_path):
    write_splits(tmp_path / "rmd17", 1000)
    every = ("original", "paper", "best")
    found = plan("table1", "small", molecules=("ethanol",), models=("cgcnn",), recipes=every, seeds=1, data=tmp_path)
    training = {cell.labels["recipe"]: cell.config.training for cell in found.cells}
    rates = {recipe: values.stages[0].learning_rate for recipe, values in training.items()}
    assert rates == {"original": 1e-3, "paper": 1e-3, "best": 3e-3}
    assert [values.batch_size for values in training.values()] == [5, 5, 5]
    assert [values.step for values in training.values()] == ["traced", "traced", "auto"]


def test_long_has_the_papers_batches_and_rate_and_goes_by_compiled_steps(tmp_path):
    write_splits(tmp_path / "rmd17", 1000)
    found = plan("table1", "long", molecules=("ethanol",), models=("cgcnn",), steps=500, data=tmp_path)
    assert "500 steps a run" in found.title
    assert [cell.config.recipe for cell in found.cells] == ["original", "original", "paper", "paper"]
    for cell in found.cells:
        training = cell.config.training
        assert (training.steps, training.minutes, training.epochs, training.step) == (500, None, None, "compiled")
        assert (training.batch_size, training.stages[0].learning_rate) == (20, 1e-4)
    advection = plan("table3", "long").cells[0].config.training
    assert (advection.steps, advection.step) == (15_000, "compiled")


def test_larger_training_sets_pool_the_distinct_frames_of_all_splits(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_splits(tmp_path / "data", 2000, numbers_=(1, 2, 3, 4, 5))
    source = files.molecule("ethanol", "small", [tmp_path / "data"], 7000)
    with np.load(source.data["path"]) as pooled:
        assert pooled["old_indices"].tolist() == list(range(2000, 13_000))
        np.testing.assert_array_equal(pooled["energies"], pooled["old_indices"])
    assert (source.data["train"], source.data["test"]) == (7000, 1000)
    assert files.molecule("ethanol", "small", [tmp_path / "data"], 7000) == source
    with pytest.raises(InputError, match="no MD17 file of ethanol with 21,050 frames"):
        files.molecule("ethanol", "small", [tmp_path / "data"], 20_000)


def test_whole_trajectories_serve_both_scales(tmp_path):
    write(tmp_path / "md17" / "md17_benzene2017.npz", 3000)
    found = files.molecule("benzene", "small", [tmp_path])
    assert found.data == {"path": str(tmp_path / "md17/md17_benzene2017.npz"), "train": 950, "validation": 50,
                          "test": 1000}  # fmt: skip
    with pytest.raises(InputError) as caught:
        files.molecule("benzene", "paper", [tmp_path])
    for part in ("62,500 frames", str(tmp_path), "dcnn data fetch md17 --molecules benzene", "quantum-machine.org"):
        assert part in str(caught.value)


def test_the_paper_scale_has_the_papers_counts_and_the_authors_lists(tmp_path, monkeypatch):
    write(tmp_path / "uracil_dft.npz", 1000)
    monkeypatch.setattr(files, "_count", lambda file: 133_770)
    found = plan("table1", "paper", molecules=("uracil",), data=tmp_path)
    config = found.cells[0].config
    assert (config.data.train, config.data.validation, config.data.test) == (50_000, 6250, 6250)
    assert (config.training.epochs, config.training.batch_size, config.model.preset) == (50, 20, "paper")
    assert steps_of(config) == 125_000
    lists = tmp_path / "MD17/random/50000/uracil"
    lists.mkdir(parents=True)
    (lists / "train.pkl").write_bytes(b"")
    assert plan("table1", "paper", molecules=("uracil",), data=tmp_path).cells[0].config.data.split == str(lists)
    sizes = [cell.labels["frames"] for cell in plan("scaling", "paper", molecules=("uracil",), data=tmp_path).cells]
    assert sizes == [50_000, 100_000]


def test_folders_are_searched_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    for name in ("mine", "data", "shared/data"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("DCNN_DATA", str(tmp_path / "mine"))
    assert files.folders(None)[:3] == [tmp_path / "mine", tmp_path / "data", tmp_path / "shared/data"]
    assert files.folders(tmp_path) == [tmp_path]
    with pytest.raises(InputError, match="no such data folder"):
        files.folders(tmp_path / "nowhere")


def test_table_2_takes_any_lmdb_or_says_what_stands_in(tmp_path):
    (tmp_path / "oxides").mkdir()
    with pytest.raises(InputError, match=r"neither an S2EF LMDB nor .*dcnn data fetch oc22"):
        plan("table2", "small", data=tmp_path)
    (tmp_path / "oxides" / "tio2_xsf.tar.gz").write_bytes(b"")
    found = plan("table2", "small", data=tmp_path)
    assert "TiO₂₋ₓ crystals as stand-in for OC22" in found.title
    assert found.cells[0].config.model.overrides == {"cutoff": 4.0}
    with pytest.raises(InputError, match="no OC22 LMDB"):
        plan("table2", "paper", data=tmp_path)
    for part in ("train", "val_ood"):
        (tmp_path / "oc22/s2ef-total" / part).mkdir(parents=True)
    (tmp_path / "oc22/s2ef-total/train/data.0000.lmdb").write_bytes(b"")
    cells = {cell.labels["model"]: cell.config for cell in plan("table2", "paper", data=tmp_path).cells}
    assert (cells["schnet"].data.train, Path(cells["schnet"].data.test).name) == (200_000, "val_ood")
    assert [cells[m].training.batch_size for m in ("schnet", "dimenet_plus_plus", "forcenet")] == [20, 10, 10]
    assert cells["forcenet"].training.stages[0].learning_rate == 1e-5
    assert cells["forcenet"].scale.unit == 1e4
    own = plan("table2", "small", data=tmp_path / "oc22/s2ef-total/train")
    assert own.cells[0].config.data.train == 2000


# ---- cost ----


def test_the_cost_is_steps_times_measured_time():
    cells = plan("table5", "paper").cells
    costs = estimate(cells, lambda cell: 2.0)
    assert (costs[0].what, costs[0].runs, costs[0].steps) == ("original", 1, 100)
    assert sum(cost.hours for cost in costs) == pytest.approx(4 * 100 * 2.0 / 3600)


def test_a_step_of_a_network_is_timed():
    tiny = {"name": "schnet", "overrides": {"features": 8, "filters": 8, "blocks": 1, "gaussians": 5}}
    config = as_config({"kind": "atoms", "recipe": "original", "model": tiny, "data": {"path": "demo", "train": 100}})
    assert steps_of(config) == 250
    seconds = seconds_per_step(GridCell({}, config))
    assert 0 < seconds < math.inf
