"""Networks of DeepXDE as ours and back; the published set-ups, term by term, against DeepXDE itself."""

import sys

import pytest
import torch
from torch import nn

from dcnn import activations
from dcnn.derivatives import partials
from dcnn.errors import InputError
from dcnn.pde import deepxde as adapter
from dcnn.pde import from_deepxde, problems, to_deepxde
from dcnn.pde.network import PdeNetwork

COARSE = {"resolution": 32}  # of the initial data: a reference that takes a second
FEW = {"num_domain": 60, "num_boundary": 20, "num_initial": 30, "width": 8, **COARSE}
TERMS = {
    "advection": ["f", "ic", "bc"],
    "compressible": ["f", "ic_data_d", "ic_data_v", "ic_data_p", "bc_D", "bc_V", "bc_P"],
    "diffusion_reaction": ["f", "bc", "ic_data_u", "ic_data_v", "bc_data_u", "bc_data_v"],
}


@pytest.fixture
def dde():
    return adapter.load_deepxde()


@pytest.fixture(autouse=True)
def _float64(dde, capsys):
    """Both sides in double precision: in float32 each sums its rows in an order that the processor chooses."""
    before = torch.get_default_dtype()
    dde.config.set_default_float("float64")
    torch.set_default_dtype(torch.float64)
    yield
    dde.config.set_default_float("float32")
    torch.set_default_dtype(before)


def weights(net):
    return [p.detach().clone() for p in net.parameters()]


def assert_equal(found, expected):
    assert len(found) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


# ---- the published set-ups ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "irelu"])
@pytest.mark.parametrize("name", TERMS)
def test_every_loss_term_is_that_of_deepxde(name, activation):
    from dcnn.bench.pair import build_pair

    pair = build_pair(name, activation, **FEW)
    (theirs, _), (ours, _) = pair.their_gradients(), pair.our_gradients()
    assert list(ours) == TERMS[name]
    torch.testing.assert_close(torch.stack(list(ours.values())), theirs, rtol=1e-9, atol=1e-15)
    assert pair.gradient_difference() < 1e-9


@pytest.mark.parametrize("name", [n if n == "advection" else pytest.param(n, marks=pytest.mark.slow) for n in TERMS])
def test_all_7000_points(name):
    from dcnn.bench.pair import build_pair

    pair = build_pair(name, **COARSE)
    (theirs, _), (ours, _) = pair.their_gradients(), pair.our_gradients()
    torch.testing.assert_close(torch.stack(list(ours.values())), theirs, rtol=1e-9, atol=0)
    assert pair.gradient_difference() < 1e-9
    assert len(pair.batch.interior) == 7000


def test_the_energy_flux_is_the_product_of_all_points_with_all():
    from dcnn.bench.deepxde_setups import energy_flux_x_as_published
    from dcnn.bench.pair import build_pair

    pair = build_pair("compressible", flux_x=energy_flux_x_as_published, **FEW)
    (theirs, _), (ours, _) = pair.their_gradients(), pair.our_gradients()
    torch.testing.assert_close(ours["f"], theirs[0], rtol=1e-9, atol=0)
    assert pair.gradient_difference() < 1e-9


# ---- from DeepXDE ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(((name, name)) for name in adapter.NAMED),
        ("Swish", "silu"),
        (torch.tanh, "tanh"),
        (nn.Softplus(), "softplus"),
        (activations.IReLU(), "irelu"),
    ],
)
def test_activations_and_weights_are_taken_over(dde, given, expected):
    net = dde.nn.FNN([2, 8, 8, 3], given, "Glorot normal")
    ours, x = from_deepxde(net), torch.rand(5, 2)
    assert [f.name for f in ours[1::2]] == [expected, expected]
    assert_equal(weights(ours), weights(net))
    torch.testing.assert_close(ours(x), net(x))
    assert all(a is not b for a, b in zip(ours.parameters(), net.parameters(), strict=True))


def test_a_network_with_a_problem_can_be_trained_on_it(dde):
    problem = problems.get("burgers")
    net = dde.nn.FNN([2, 12, 12, 12, 1], ["tanh", "sin", "silu", "tanh"], "Glorot normal")
    ours, x = from_deepxde(dde.Model(None, net), problem), torch.rand(6, 2)
    assert isinstance(ours, PdeNetwork)
    assert [f.name for f in ours.activations] == ["tanh", "sin", "silu"]
    torch.testing.assert_close(ours(x), net(x))
    found = ours.partials(ours.at(x, problem.wanted))["xx"]
    torch.testing.assert_close(found, partials(net, x, ["xx"], mode="nested")["xx"])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda dde: nn.Linear(2, 1), "takes a deepxde FNN .* not Linear"),
        (lambda dde: dde.nn.PFNN([2, [4, 4], 2], "tanh", "zeros"), "not PFNN"),
        (lambda dde: dde.nn.FNN([2, 4, 1], "LAAF-5 tanh", "zeros"), "activation LLAAF of layer 0 is not known"),
        (lambda dde: dde.nn.FNN([2, 4, 1], lambda x: x**3, "zeros"), "activation <lambda> of layer 0"),
        (lambda dde: dde.nn.FNN([3, 4, 1], "tanh", "zeros"), "3 inputs, .* advection needs 2 inputs"),
        (lambda dde: dde.nn.FNN([2, 4, 5, 1], "tanh", "zeros"), r"hidden layers \[4, 5\]"),
        (lambda dde: dde.nn.FNN([2, 4, 2], "tanh", "zeros"), "2 outputs; advection needs"),
    ],
)
def test_what_has_no_counterpart_here_says_so(dde, build, message):
    with pytest.raises(InputError, match=message):
        from_deepxde(build(dde), problems.get("advection"))


@pytest.mark.parametrize("kind", ["feature", "output"])
def test_transforms_are_code(dde, kind):
    net = dde.nn.FNN([2, 4, 1], "tanh", "zeros")
    getattr(net, f"apply_{kind}_transform")(lambda *x: x[-1])
    with pytest.raises(InputError, match=f"has an {'input' if kind == 'feature' else kind} transform"):
        from_deepxde(net)


# ---- to DeepXDE -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [None, "advection"])
def test_there_and_back(dde, problem):
    problem = problem and problems.get(problem)
    net = dde.nn.FNN([2, 8, 8, 1], ["tanh", "gelu", "tanh"], "Glorot normal")
    back, x = to_deepxde(from_deepxde(net, problem)), torch.rand(4, 2)
    assert_equal(weights(back), weights(net))
    assert back._input_transform is back._output_transform is None
    torch.testing.assert_close(back(x), net(x))
    assert_equal(weights(from_deepxde(back, problem)), weights(net))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("advection", {"modes": 3}),
        ("advection", {"hard": True, "modes": 2, "activation": "integrated_silu"}),
        ("compressible", {"scale_inputs": True, "scale_fields": True, "random_features": 6}),
        ("diffusion_reaction", {"features": True, "hard": True, "modes": 2}),
    ],
)
def test_embedded_inputs_units_and_hard_constraints_go_along(dde, name, options):
    problem = problems.get(name)
    network = PdeNetwork(problem, width=8, depth=2, **options)
    net, x = to_deepxde(network), problem.stretch(torch.rand(5, len(problem.coordinates)))
    torch.testing.assert_close(net(x), network(x))
    if name == "advection":
        torch.testing.assert_close(partials(net, x, ["t"], mode="nested"), partials(network, x, ["t"], mode="nested"))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (lambda: nn.Linear(2, 1), "takes a PdeNetwork or an nn.Sequential, not Linear"),
        (lambda: nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 1)), "layer 1 is Linear"),
        (lambda: nn.Sequential(nn.Linear(2, 4), activations.get("tanh")), "layer 1 is Tanh"),
        *(
            (lambda option=option: PdeNetwork(problems.get("advection"), **{option: True}), f"network with {option}")
            for option in ("batch_norm", "residual", "adaptive")
        ),
    ],
)
def test_what_has_no_counterpart_there_says_so(network, message):
    with pytest.raises(InputError, match=message):
        to_deepxde(network())


# ---- DeepXDE itself -------------------------------------------------------------------------------------------------


def test_without_deepxde_there_is_one_message(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepxde", None)
    with pytest.raises(InputError, match="DeepXDE is not installed"):
        from_deepxde(nn.Linear(1, 1))


def test_another_backend_is_refused(dde, monkeypatch):
    monkeypatch.setattr(dde.backend, "backend_name", "jax")
    with pytest.raises(InputError, match="runs on jax; set DDE_BACKEND=pytorch"):
        adapter.load_deepxde()
