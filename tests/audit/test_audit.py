"""The parts of the audit: every defect that is planted is found, with its number; a clean model gives no finding."""

import io
import json
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from dcnn.activations import get, init_
from dcnn.auditing import CODES, audit, differentiable_sample
from dcnn.auditing.measured_copy import copied
from dcnn.auditing.normalization_checks import coupling
from dcnn.errors import InputError


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def mlp(activation="silu", width=16, depth=2, inputs=3, norm=None):
    layers = [nn.Linear(inputs, width)]
    for _ in range(depth):
        layers += [norm(width)] if norm else []
        layers += [get(activation), nn.Linear(width, width)]
    return nn.Sequential(*layers, get(activation), nn.Linear(width, 1))


def points(n=32, inputs=3):
    return torch.randn(n, inputs)


def finding(report, code):
    return next(f for f in report if f.code == code)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", ["silu", "tanh", "softplus", "integrated_silu"])
def test_a_clean_model_gives_no_finding(name, order):
    net = mlp(name)
    init_(net, points())
    report = audit(net, points(), orders=order, labels={"y": points(8), "dy": points(8)})
    assert report.findings == ()
    assert report.ok
    assert str(report).startswith("no findings")


@pytest.mark.parametrize(
    ("name", "order", "codes"),
    [
        ("relu", 1, ["DC101"]),
        ("leaky_relu", 1, ["DC101"]),
        ("irelu", 1, []),
        ("irelu", 2, ["DC101"]),
        ("integrated_leaky_relu", 2, ["DC101"]),
        ("selu", 1, ["DC102"]),
        ("elu", 2, ["DC102"]),
        ("elu", 3, ["DC102"]),
        ("elu", 1, []),
    ],
)
def test_activations_are_judged_by_the_derivative_the_loss_trains_through(name, order, codes):
    net = mlp(name, depth=0)
    report = audit(net, points(), orders=order)
    assert [code for code in report.codes if code < "DC2"] == codes


def test_orders_may_be_listed():
    assert audit(mlp("irelu", depth=0), points(), orders=[0, 1, 2]).codes == ["DC101"]


class Functional(nn.Module):
    def __init__(self, norm=None):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(3, 16), nn.Linear(16, 1), norm

    def forward(self, x):
        h = F.relu(self.a(x))
        return self.b(h if self.norm is None else self.norm(h))


def test_a_function_called_in_forward_is_found_where_it_is_called():
    found = finding(audit(Functional(), points()), "DC101")
    assert found.where == "model.forward: relu()"


def test_an_activation_that_is_not_known_by_name_is_measured():
    net = nn.Sequential(nn.Linear(3, 8), nn.Mish(), nn.Linear(8, 1))
    assert audit(net, points()).codes == []


@pytest.mark.parametrize(
    ("norm", "kind", "severity"),
    [(nn.LayerNorm, "layer", "info"), (lambda w: nn.GroupNorm(4, w), "group", "warning")],
)
def test_norms_are_listed_with_their_kind(norm, kind, severity):
    found = finding(audit(mlp(norm=norm), points()), "DC201")
    assert kind in found.message
    assert found.severity == severity


def test_batch_norm_is_reported_with_the_measured_share_of_other_samples():
    net = mlp(norm=nn.BatchNorm1d)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    found = finding(audit(net, points()), "DC202")
    assert found.numbers["cross_sample_share"] > 0.05
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items()), "the audit changed the model"


def test_the_share_is_that_of_the_full_jacobian():
    net, x = copied(mlp(norm=nn.BatchNorm1d), training=True), points(4).double()
    jacobian = torch.autograd.functional.jacobian(lambda x: net(x)[:, 0], x)  # (4, 4, 3): dy_b / dx_a
    own = torch.stack([jacobian[a, a] for a in range(4)])
    other = jacobian.sum(0) - own
    assert coupling(net, differentiable_sample(x)) == pytest.approx(float(other.norm() / own.norm()), rel=1e-10)
    assert coupling(net.eval(), differentiable_sample(x)) == 0


class Detached(nn.Module):
    def __init__(self, everything=False):
        super().__init__()
        self.inner, self.everything = mlp(), everything

    def forward(self, x):
        if self.everything:
            return self.inner(x.detach())
        return self.inner(torch.cat([x[:, :1], x[:, 1:].detach()], 1))


def test_a_detached_path_is_found_by_finite_differences():
    assert finding(audit(Detached(), points()), "DC301").numbers["relative_difference"] > 0.1


def test_a_prediction_without_a_gradient_is_found():
    assert "DC302" in audit(Detached(everything=True), points()).codes


def test_a_derivative_of_the_models_own_is_compared_with_the_prediction():
    net, x = mlp(), points()

    def right(model, sample):
        sample = sample.double().requires_grad_()
        return torch.autograd.grad(model(sample).sum(), sample)[0]

    assert audit(net, x, derivative=right).ok
    assert "DC301" in audit(net, x, derivative=lambda m, s: 1.2 * right(m, s)).codes


def test_labels_that_float32_cannot_resolve_and_units_that_differ():
    energy, forces = -406_737 + 6 * np.random.default_rng(0).normal(size=100), np.full((100, 3), 29.0)
    report = audit(mlp(), points(), labels={"energy": energy, "forces": forces}, target_error={"energy": 0.01})
    precision, units = finding(report, "DC401"), finding(report, "DC402")
    assert precision.numbers["float32_spacing"] == 0.03125
    assert units.numbers["ratio"] == pytest.approx(406_737 / 29, rel=1e-3)
    clean = {"energy": energy - energy.mean(), "forces": forces}
    assert audit(mlp(), points(), labels=clean, target_error={"energy": 0.01}).ok


def test_bad_labels_name_their_rows():
    labels = np.ones((6, 2))
    labels[[1, 4], 0] = np.nan
    with pytest.raises(InputError, match=r"'y': rows \[1, 4\]"):
        audit(mlp(), points(), labels={"y": labels})


@pytest.mark.parametrize(("gain", "word"), [(0.3, "dies"), (4.0, "explodes")])
def test_a_signal_that_dies_or_explodes_is_found_in_value_and_derivative(gain, word):
    net = mlp("irelu", width=40, depth=8)
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear):
                layer.weight.normal_(0, gain / layer.in_features**0.5)
                layer.bias.zero_()
    report = audit(net, points())
    assert word in finding(report, "DC501").message
    assert word in finding(report, "DC502").message


def test_the_signal_of_a_layer_is_its_output_and_slope():
    net = nn.Sequential(nn.Linear(1, 1, bias=False), get("irelu"), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        net[0].weight.fill_(3.0)
        net[2].weight.fill_(1.0)
    x = torch.full((4, 1), 2.0)  # which do not differ: their size is the unit of the derivative
    first, last = audit(net, x).layers
    assert first.value_rms == pytest.approx(6.0)
    assert last.value_rms == pytest.approx(18.0)
    assert last.derivative_rms / first.derivative_rms == pytest.approx(6.0, rel=1e-6)  # σ′(6)
    dz = torch.randn(4, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2.0 * 3
    assert first.derivative_ratio == pytest.approx(float(dz.abs().mean() / 6), rel=1e-6)  # σ″ = 1, σ′ = 6


def test_a_read_out_that_starts_at_zero_is_no_dying_signal():
    net = mlp()
    nn.init.zeros_(net[-1].weight)
    assert "DC501" not in audit(net, points()).codes


def test_missing_rotation_invariance_is_found_where_it_is_expected():
    class Norm(nn.Module):
        def forward(self, x):
            return x.square().sum(1, keepdim=True)

    assert audit(Norm(), points(), rotation_invariant=True).ok
    assert "DC701" in audit(mlp(), points(), rotation_invariant=True).codes
    assert audit(mlp(), points()).ok, "a plain MLP is not expected to be invariant"


def test_shares_and_conflicts_of_loss_terms():
    net = nn.Linear(3, 1)

    def losses(model, x):
        y = model(x).mean()
        return {"up": 1000 * y, "down": -0.1 * y}

    report = audit(net, points(), losses=losses)
    assert finding(report, "DC801").where == "term 'up'"
    assert finding(report, "DC802").numbers["cosine"] == pytest.approx(-1.0)
    assert audit(net, points(), losses=lambda m, x: {"a": (m(x) - 5).square().mean(), "b": (m(x) - 6).abs().mean()}).ok


def test_a_constant_solution_is_found():
    net = mlp()
    with torch.no_grad():
        net[-1].weight.mul_(1e-12)
    assert "DC901" in audit(net, points()).codes


@pytest.mark.parametrize(
    ("sample", "options"),
    [
        ((points(), torch.arange(32)), {}),
        ({"x": points(), "shift": torch.ones(32, 1)}, {"wrt": "x"}),
    ],
)
def test_samples_may_be_arguments_of_the_model(sample, options):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = mlp()

        def forward(self, x, shift):
            return {"y": self.inner(x) + shift.reshape(-1, 1), "other": None}

    assert audit(Shifted(), sample, **options).ok


@pytest.mark.parametrize(
    ("sample", "options", "message"),
    [
        ("text", {}, "type str is not understood"),
        (torch.arange(4), {}, "torch.int64"),
        ((points(), points()), {}, "which tensor"),
        ((points(), points()), {"wrt": "7"}, "wrt='7'"),
        (points(), {"output": lambda y: "no tensor"}, "output="),
    ],
)
def test_a_sample_that_cannot_be_used_says_why(sample, options, message):
    with pytest.raises(InputError, match=message):
        audit(mlp(), sample, **options)


def test_every_finding_has_a_known_code_and_survives_json():
    net = mlp("relu", norm=nn.BatchNorm1d)
    report = audit(net, points())
    loaded = json.loads(json.dumps(report.to_dict()))
    assert [f["code"] for f in loaded["findings"]] == report.codes
    assert set(report.codes) <= set(CODES)
    assert not loaded["ok"]
    assert all(f["fix"] and f["where"] and f["message"] for f in loaded["findings"])


def test_the_terminal_form_shows_codes_fixes_and_layers():
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(audit(mlp("relu"), points()))
    console.print(audit(mlp("silu"), points()))
    text = console.export_text()
    assert "DC101" in text
    assert "swap_activations" in text
    assert "value rms" in text
    assert "no findings" in text


def test_equal_findings_are_one_row_in_a_notebook():
    report = audit(mlp("relu", depth=2), points())
    html = report._repr_html_()
    assert report.codes == ["DC101"] * 3
    assert html.count("DC101") == 1
    assert all(f"{finding.where}<br>" in html or f"{finding.where}</td>" in html for finding in report)
    assert "no findings" in audit(mlp(), points())._repr_html_()


def test_what_was_not_looked_at_is_listed():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = mlp(), nn.Linear(3, 3)

        def forward(self, x):
            return {"y": self.used(x), "z": x.sum(1)}

    net = Spare()
    nn.init.zeros_(net.used[-1].weight)
    report = audit(net, points())
    assert report.ok
    assert "spare.weight" in report.skipped["layers that this sample does not run through"]
    assert "used.6.weight" in report.skipped["weights that are zero"]
    assert "output 'z'" in report.skipped


def test_a_learnt_term_is_not_taken_for_a_starved_one():
    """Energies known to 1e-6 beside forces known to 1e-2: the gradient of the first is a millionth, and rightly so."""
    net, x = mlp().double(), points().double()

    def terms(energy_error, weight=1.0):
        def losses(model, x):
            x = x.clone().requires_grad_()
            y = model(x)
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            error = y - y.detach() + energy_error
            return {"energy": weight * error.square().mean(), "forces": (slope - slope.detach() + 0.01).square().mean()}

        return losses

    assert "DC801" not in audit(net, x, losses=terms(1e-6)).codes
    assert "DC801" in audit(net, x, losses=terms(0.01, weight=1e-9)).codes


def test_the_model_is_left_as_it_was_and_random_numbers_too():
    net = mlp("relu", norm=nn.BatchNorm1d).train()
    before, state = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    audit(net, points().clone())
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert net.training
    function = net[0].forward
    audit(lambda x: net(x), points())
    assert net[0].forward == function
    torch.set_rng_state(state)


def bad_model(x):
    raise KeyError("nothing here")


@pytest.mark.parametrize(
    ("model", "sample", "options", "message"),
    [
        (nn.Linear, points(), {}, "the class Linear"),
        (3.0, points(), {}, "a float"),
        (bad_model, points(), {}, "does not run on this sample"),
        (mlp(), points(4, 7), {}, "does not run on this sample"),
        (mlp(), {"y": points()}, {}, "does not run on this sample"),
        (mlp(), points(), {"orders": "two"}, "orders="),
        (mlp(), points(), {"orders": []}, "orders="),
        (mlp(), points(), {"output": "energy"}, "output='energy'"),
        (mlp(), points(), {"labels": [1.0]}, "dictionary"),
        (mlp(), points(), {"labels": {"y": "words"}}, "not numbers"),
        (mlp(), points(), {"labels": {"y": []}}, "empty"),
        (mlp(), points(), {"losses": lambda m, x: m(x)}, "losses="),
        (mlp(), points(), {"derivative": lambda m, x: m(x)}, "derivative="),
        (mlp(), torch.tensor(1.0), {}, "shape"),
        (mlp(), torch.tensor([[0.0, 1.0, 2.0], [0.0, float("nan"), 1.0]]), {}, r"rows \[1\]"),
        (mlp(), torch.zeros(0, 3), {}, "shape"),
    ],
)
def test_what_cannot_be_used_ends_in_a_message(model, sample, options, message):
    with pytest.raises(InputError, match=message):
        audit(model, sample, **options)


def test_a_check_that_fails_is_listed_and_the_others_go_on():
    def losses(model, x):
        raise ValueError("no labels here")

    report = audit(mlp("relu"), points(), losses=losses)
    assert "no labels here" in report.skipped["balance of the loss terms"]
    assert "DC101" in report.codes


class InFloat32(nn.Module):
    """Runs in float32 only."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        assert x.dtype == torch.float32
        return self.inner(x)


def test_a_model_that_runs_in_float32_only_is_measured_there():
    assert audit(InFloat32(mlp()), points()).ok
    report = audit(InFloat32(mlp("relu")), points())
    assert set(report.codes) == {"DC101"}
    assert "float64" in report.skipped
    assert "DC301" in audit(InFloat32(Detached()), points()).codes


def test_dcnn_audit_is_one_function():
    import dcnn

    assert dcnn.audit is audit
    assert not hasattr(dcnn.audit, "__path__")
    with pytest.raises(ModuleNotFoundError):
        __import__("dcnn.audit")


def test_a_check_that_fails_without_a_word_is_left_out(monkeypatch):
    def fails(*_: object) -> Iterator[None]:
        raise AssertionError
        yield

    monkeypatch.setattr("dcnn.auditing.normalization_findings", fails)
    report = audit(nn.Linear(2, 1), torch.rand(8, 2))
    assert any("AssertionError" in reason for reason in report.skipped.values())
