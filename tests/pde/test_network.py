"""The network of a PDE: embeddings, hard constraints and derivatives against finite differences."""

import math

import pytest
import torch

from dcnn.derivatives import finite_difference
from dcnn.errors import InputError
from dcnn.pde import problems
from dcnn.pde.embedding import CoordinateEmbedding
from dcnn.pde.network import PdeNetwork

VARIANTS = {
    "plain": {},
    "irelu": {"activation": "irelu"},
    "alternate": {"alternate": "integrated_silu"},
    "periodic": {"modes": 3, "scale_inputs": True},
    "random": {"random_features": 8, "random_features_scale": 0.5, "scale_inputs": True},
    "residual": {"residual": True, "adaptive": True},
    "hard": {"hard": True, "scale_fields": True},
    "he": {"activation": "silu", "initialisation": "he"},
    "batch_norm": {"batch_norm": True},
}


def network(name="advection", seed=0, **options) -> PdeNetwork:
    torch.manual_seed(seed)
    return PdeNetwork(problems.get(name), **{"width": 10, "depth": 3, **options}).double()


def points(problem, n=7, seed=0) -> torch.Tensor:
    unit = torch.rand(n, len(problem.coordinates), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return problem.stretch(unit)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["advection", "compressible", "allen_cahn"])
def test_partials_are_those_of_forward(name, variant):
    net = network(name, **VARIANTS[variant]).eval()
    x = points(net.problem)
    found = net.partials(net.at(x, net.problem.wanted))
    expected = finite_difference(net, x, net.problem.wanted, net.problem.coordinates)
    for letters in net.problem.wanted:
        torch.testing.assert_close(found[letters], expected[letters], rtol=2e-6, atol=2e-6 * float(net.unit.max()))


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "batch_norm"])
def test_one_stacked_pass_has_the_gradients_of_nested_autograd(variant):
    net = network("compressible", **VARIANTS[variant])
    x = points(net.problem)
    taylor = net.partials(net.at(x, ["t", "x"]))
    plain = x.clone().requires_grad_()
    value = net(plain)
    for column in range(3):
        (slope,) = torch.autograd.grad(value[:, column].sum(), plain, create_graph=True)
        for letters, axis in (("x", 0), ("t", 1)):
            torch.testing.assert_close(taylor[letters][:, column], slope[:, axis])
            ours, theirs = (
                torch.autograd.grad(d.square().sum(), list(net.parameters()), retain_graph=True, materialize_grads=True)
                for d in (taylor[letters][:, column], slope[:, axis])
            )
            torch.testing.assert_close(ours, theirs)


def test_periodic_inputs_make_every_derivative_periodic_in_float64():
    net = network("compressible", modes=2)
    ends = [torch.tensor([[x, 0.3]], dtype=torch.float64) for x in net.problem.domain["x"]]
    low, high = (net.partials(net.at(end, ["x", "t", "xx"])) for end in ends)
    for letters in low:
        torch.testing.assert_close(low[letters], high[letters], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("options", [{"features": True}, {"hard": True}, {"features": True, "hard": True}])
def test_what_a_problem_knows_enters_with_its_derivatives(options):
    torch.manual_seed(0)
    problem = problems.get("diffusion_reaction", resolution=8)
    net = PdeNetwork(problem, width=8, depth=2, modes=2, transient=0.1, scale_inputs=True, **options).double()
    x = points(problem)
    found = net.partials(net.at(x, problem.wanted))
    expected = finite_difference(net, x, problem.wanted, problem.coordinates)
    for letters in problem.wanted:
        torch.testing.assert_close(found[letters], expected[letters], rtol=2e-6, atol=2e-6)


def test_reflecting_walls_have_no_slope_whatever_the_weights():
    net = network("diffusion_reaction", modes=3, features=True, hard=True)
    x = points(net.problem, 12)
    for i, (column, end) in enumerate((c, e) for c in (0, 1) for e in (-1.0, 1.0)):
        x[3 * i : 3 * i + 3, column] = end
    slopes = net.partials(net.at(x, ["x", "y"]))
    torch.testing.assert_close(slopes["x"][:6], torch.zeros(6, 2, dtype=torch.float64), atol=1e-10, rtol=0)
    torch.testing.assert_close(slopes["y"][6:], torch.zeros(6, 2, dtype=torch.float64), atol=1e-10, rtol=0)


def test_time_may_be_logarithmic():
    problem = problems.get("allen_cahn")  # t in [0, 1]
    embedding = CoordinateEmbedding(problem, scale=True, transient=0.1)
    t = torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64)
    found = embedding(torch.stack([torch.zeros(3, dtype=torch.float64), t], 1))[:, 1]
    assert found.tolist() == pytest.approx([-1.0, 2 * math.log(2) / math.log(11) - 1, 1.0])


def test_embedding_features_are_the_documented_waves():
    problem = problems.get("compressible")  # x in [-1, 1], t in [0, 1]
    features = CoordinateEmbedding(problem, modes=2)(torch.tensor([[0.25, 0.75]], dtype=torch.float64))
    angle = 2 * math.pi * 1.25 / 2.0
    expected = [0.5, math.sin(angle), math.sin(2 * angle), math.cos(angle), math.cos(2 * angle)]
    torch.testing.assert_close(features, torch.tensor([expected], dtype=torch.float64))


def test_hard_constraints_hold_whatever_the_weights():
    net = network("burgers", hard=True)
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)
    start = net(torch.stack([x, torch.zeros_like(x)], 1))[:, 0]
    torch.testing.assert_close(start, -torch.sin(math.pi * x), atol=1e-12, rtol=0)
    walls = net(torch.tensor([[-1.0, 0.4], [1.0, 0.7]], dtype=torch.float64))
    torch.testing.assert_close(walls, torch.zeros(2, 1, dtype=torch.float64), atol=1e-12, rtol=0)


def test_scaled_fields_have_the_problems_offset_and_unit():
    net = network("compressible", scale_fields=True)
    torch.nn.init.zeros_(net.head.weight)
    torch.nn.init.ones_(net.head.bias)
    scales = net.problem.scales()
    expected = torch.tensor([[offset + unit for offset, unit in scales.values()]], dtype=torch.float64)
    torch.testing.assert_close(net(points(net.problem, 1)), expected, rtol=1e-6, atol=0)


def test_learnt_parameters_of_the_pde_are_parameters_of_the_network():
    problem = problems.get("advection", trainable="beta")
    net = PdeNetwork(problem).double()
    assert "unknowns.beta" in dict(net.named_parameters())
    assert problem.beta.dtype == torch.float64


def test_batch_norm_uses_the_statistics_of_all_points_in_training():
    net = network(batch_norm=True).train()
    x = points(net.problem, 16)
    alone, together = net.partials(net.at(x[:8], ["x"])), net.partials(net.at(x, ["x"]))
    assert not torch.allclose(alone["x"], together["x"][:8])
    net.eval()
    alone, together = net.partials(net.at(x[:8], ["x"])), net.partials(net.at(x, ["x"]))
    torch.testing.assert_close(alone["x"], together["x"][:8])


@pytest.mark.parametrize("kind", ["glorot", "he"])
def test_random_initialisations_have_their_published_spread(kind):
    torch.manual_seed(0)
    net = PdeNetwork(problems.get("advection"), width=400, depth=2, initialisation=kind)
    expected = math.sqrt(2 / 800) if kind == "glorot" else math.sqrt(2 / 400)
    assert net.layers[1].weight.std().item() == pytest.approx(expected, rel=0.02)
    assert not net.layers[1].bias.any()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("poisson", {"modes": 2}, "no coordinate is periodic or reflecting"),
        ("navier_stokes", {"hard": True}, "states no hard constraints"),
        ("advection", {"features": True}, "offers no features"),
        ("advection", {"initialisation": "xavier"}, "unknown initialisation 'xavier'"),
        ("advection", {"activation": "tanhh"}, "did you mean 'tanh'"),
    ],
)
def test_mistakes_are_named(name, options, message):
    with pytest.raises(InputError, match=message):
        network(name, **options)
