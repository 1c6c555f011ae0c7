"""`dcnn.fit` takes objects: frames, networks, problems, tensors; a run remembers what it needs to be opened again."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import dcnn
from dcnn import atoms, pde
from dcnn.errors import InputError
from dcnn.losses import Fixed
from dcnn.results import TrainedRun

TINY = {"model": {"name": "schnet", "overrides": {"features": 8, "filters": 8, "blocks": 1, "gaussians": 8}}}
FEW = {"data": {"train": 20, "validation": 5, "test": 5}, "training": {"accelerator": "cpu"}}


class Springs(nn.Module):
    """E = Σ_pairs k (r − r₀)²/2 inside a smooth cutoff: the smallest network there is."""

    cutoff = 4.0

    def __init__(self):
        super().__init__()
        self.k, self.r0 = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(1.5))

    def forward(self, batch):
        r = batch.edge_vectors().norm(dim=1)
        energy = 0.25 * self.k * (r - self.r0) ** 2 * (1 - (r / self.cutoff).clamp(max=1) ** 2) ** 3
        return batch.sum_atoms(batch.sum_edges(energy))


class Cooling(pde.Problem):
    """u_t = u_xx with the solution exp(−π² t) sin(πx)."""

    name = "cooling"
    coordinates = ("x", "t")
    domain = {"x": (0.0, 1.0), "t": (0.0, 0.1)}
    fields = ("u",)
    parameters = {"alpha": 1.0}

    def residuals(self, u):
        return {"heat": u.t - self.alpha * u.xx}

    def conditions(self):
        return [pde.Initial(u=lambda x: torch.sin(torch.pi * x)), pde.Dirichlet(u=0.0)]


@pytest.fixture(scope="module")
def sine():
    """y, dy/dx of an offset sine on 200 points."""
    x = np.linspace(-1, 1, 200)
    return x, {"": 4e5 + np.sin(3 * x), "x": 3 * np.cos(3 * x)}


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


def test_values_and_derivatives_of_tensors(tmp_path, sine):
    x, labels = sine
    run = dcnn.fit(mlp(), tmp_path / "run", x=x, labels=labels, steps=800)
    assert run.test["rmse_value"] < 0.1 * run.test["constant_rmse_value"]
    assert run.test["rmse_x"] < 0.1 * run.test["constant_rmse_x"]
    points = np.array([-0.4, 0.7])
    assert run.solution(points) == pytest.approx(4e5 + np.sin(3 * points), abs=0.2)
    assert run.solution.partials("x", x=points) == pytest.approx(3 * np.cos(3 * points), abs=0.5)
    again = TrainedRun.open(run.folder, model=mlp())
    assert np.array_equal(again.solution(points), run.solution(points))
    assert again.evaluate() == pytest.approx(run.test)
    assert not [f for f in again.audit().findings if f.severity == "error"]
    with pytest.raises(InputError, match="a Sequential of your own: give one as model="):
        TrainedRun.open(run.folder).network  # noqa: B018


def test_training_in_scaled_units_is_training_in_those_of_the_labels():
    """The chain rule: scaled labels of y and dy/dx are value and derivative of one scaled function."""
    from dcnn.sobolev.scaled_network import FieldScales, ScaledNetwork

    x = torch.linspace(2, 5, 50, dtype=torch.float64)[:, None]
    y, slope, curvature = x**3, 3 * x**2, 6 * x
    labels = {"": y, "x": slope, "xx": curvature}
    scales = FieldScales.fit(x, labels, ["x"])
    scaled, scale = scales.scale(labels, ["x"]), scales[0]
    centre, width = scale.inputs["x"]

    class Exact(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Parameter(torch.ones((), dtype=torch.float64))

        def forward(self, u):
            return self.one * ((u * width + centre) ** 3 - scale.offset) / scale.constant

    found = dcnn.derivatives.partials(Exact(), scales.inputs(x), ["", "x", "xx"])
    for name, label in scaled.items():
        torch.testing.assert_close(found[name], label, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ScaledNetwork(Exact(), scales)(x), y, rtol=1e-12, atol=1e-10)


def test_a_gradient_of_many_inputs_is_one_label(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, (120, 6))
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
    run = dcnn.fit(net, tmp_path / "run", x=x, labels={"": (x**2).sum(1), "grad": 2 * x}, steps=1000)
    assert run.test["rmse_grad"] < 0.7 * run.test["constant_rmse_grad"]


def test_a_label_without_weight_is_evaluated_and_not_trained(tmp_path, sine):
    x, labels = sine
    settings = {"weights": {"x": 0.0}}
    run = dcnn.fit(mlp(), tmp_path / "run", x=x, labels=labels, steps=5, settings=settings)
    assert run.test["rmse_x"] > 0
    columns = (tmp_path / "run" / "metrics.csv").read_text().split("\n")[0].split(",")
    assert [name for name in columns if name.endswith("_raw")] == ["train_value_raw"]


@pytest.mark.parametrize(
    ("x", "labels", "message"),
    [
        (np.zeros(5), {"": np.zeros(4)}, r"labels\[''\] has 4 rows, x has 5"),
        (np.array([0.0, np.nan]), {"": np.zeros(2)}, "x is not finite in row 1"),
        (np.zeros(20), {}, "labels are empty"),
        (np.zeros((20, 2)), {"q": np.zeros(20)}, "'q'"),
        (np.zeros((20, 2)), {"grad": np.zeros((20, 3))}, "shape"),
    ],
)
def test_labels_that_do_not_fit_are_named_and_nothing_is_left(tmp_path, x, labels, message):
    with pytest.raises(InputError, match=message):
        dcnn.fit(mlp(), tmp_path / "run", x=x, labels=labels, steps=1)
    assert not (tmp_path / "run").exists()


def test_frames_in_memory_and_a_network_of_ones_own(tmp_path):
    frames = [frame.to_ase() for frame in atoms.demo_dataset()[:30]]
    run = dcnn.fit(frames, tmp_path / "run", model=Springs(), epochs=2, settings=FEW)
    assert run.test["force_mae_kcal_mol_A"] > 0
    assert len(run.potential.predict(atoms.demo_dataset()[:2])) == 2
    with pytest.raises(InputError, match="a Springs given as an object"):
        TrainedRun.open(run.folder).network  # noqa: B018
    again = TrainedRun.open(run.folder, model=Springs())
    assert again.evaluate()["force_mae_meV_A"] == pytest.approx(run.test["force_mae_meV_A"], rel=1e-5)
    assert run.report().read_text().count("Springs")


def test_a_path_a_dataset_and_a_configuration_train_alike(tmp_path):
    data = atoms.demo_dataset()
    settings = {"kind": "atoms", "data": {"path": "demo"}, "model": {"name": "schnet"}}
    values = dcnn.results.as_config(settings).to_dict()
    values["data"] |= FEW["data"]
    values["model"] |= TINY["model"]
    runs = [
        dcnn.fit("demo", tmp_path / "a", model="schnet", epochs=1, settings=FEW | TINY),
        dcnn.fit(data, tmp_path / "b", model="schnet", epochs=1, settings=FEW | TINY),
        dcnn.fit(values, tmp_path / "c", epochs=1, settings={"training": {"accelerator": "cpu"}}),
    ]
    errors = [run.test["force_mae_eV_A"] for run in runs]
    assert errors == pytest.approx([errors[0]] * 3, rel=1e-4)


def test_a_problem_as_a_class_or_an_object(tmp_path):
    small = {"network": {"width": 8, "depth": 2}, "training": {"accelerator": "cpu"}}
    run = dcnn.fit(Cooling(alpha=0.5), tmp_path / "a", steps=3, settings=small)
    assert run.solution(x=np.array([0.2, 0.4]), t=0.05).shape == (2,)
    assert run.solution.partials("xx", x=0.2, t=0.05).shape == ()
    assert dcnn.fit(Cooling, tmp_path / "b", steps=1, settings=small).status == "finished"
    again = TrainedRun.open(tmp_path / "a", model=Cooling(alpha=0.5))
    assert again.solution(x=0.2, t=0.05) == run.solution(x=0.2, t=0.05)
    ours = dcnn.fit(pde.problems.get("heat", alpha=0.2), tmp_path / "c", steps=1, settings=small)
    assert TrainedRun.open(ours.folder).config.problem.parameters["alpha"] == 0.2


def test_terms_metrics_and_weighting_of_ones_own(tmp_path, sine):
    x, labels = sine
    made = []

    def weighting(terms):
        made.append([term.name for term in terms])
        return Fixed(terms)

    run = dcnn.fit(
        mlp(),
        tmp_path / "run",
        x=x,
        labels=labels,
        steps=2,
        terms={"small": (lambda network, batch: network[-1].weight, 0.1)},
        metrics={"weights": lambda network, task, split: float(network[-1].weight.detach().abs().max())},
        weighting=weighting,
    )
    assert made == [["value", "x", "small"]]
    assert run.test["weights"] > 0
    assert "train_small_raw" in (run.folder / "metrics.csv").read_text().splitlines()[0]


def test_a_recipe_of_ones_own(tmp_path, sine):
    x, labels = sine
    mine = {"training": {"batch_size": 7}}
    run = dcnn.fit(mlp(), tmp_path / "a", x=x, labels=labels, steps=1, recipe=mine)
    assert (run.config.recipe, run.config.training.batch_size) == ("best+own", 7)
    (tmp_path / "slow.yaml").write_text("recipe: paper\ntraining: {batch_size: 9}\n")
    config = dcnn.results.resolve("demo", str(tmp_path / "slow.yaml"), [])
    assert (config.recipe, config.training.batch_size, config.model.activation) == ("paper+slow", 9, "irelu")


def test_a_run_shows_itself_in_a_notebook(tmp_path, sine):
    x, labels = sine
    run = dcnn.fit(mlp(), tmp_path / "run", x=x, labels=labels, steps=400)
    shown = run._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "rmse value" in shown
    assert len(run.plot()) >= 2
    assert "&lt;svg" in run.plot()._repr_html_()
    assert "200 frames" in atoms.demo_dataset()[:200]._repr_html_()


def test_what_cannot_be_trained_on_is_said():
    with pytest.raises(InputError, match="cannot train on int"):
        dcnn.fit(3)
    with pytest.raises(InputError, match="one budget"):
        dcnn.fit("demo", minutes=1, epochs=2)
    with pytest.raises(InputError, match="x and labels go with a network"):
        dcnn.fit("demo", x=[1.0])


def test_tensors_need_neither_lightning_nor_pydantic(tmp_path):
    """The core: torch and numpy."""
    script = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"lightning", "pydantic", "yaml", "rich", "typer", "ase", "scipy", "h5py", "vesin"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Refuse())
import torch, dcnn
x = torch.linspace(-1, 1, 50)
net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
run = dcnn.fit(net, sys.argv[1], x=x, labels={"": x**2, "x": 2 * x}, steps=5)
print(run.status, run.solution(x=0.5).shape)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "finished ()"
