"""Taylor mode gives the same numbers as nested autograd, for values, derivatives and parameter gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from dcnn import activations
from dcnn.derivatives import Jet, partials, register_jet
from dcnn.derivatives.elementwise import Cos, Exp, Log, Power
from dcnn.derivatives.jet import RuleError, UnsupportedError
from dcnn.derivatives.taylor import compose_plain, composition, downward_closed

EVERYTHING_3D = ["", "t", "x", "xx", "xy", "yt", "xxy", "tt", "xyt", "xxyy", "yyyy", "xyyt", "tttt"]


def mlp(d: int, activation: nn.Module, fields: int = 2, width: int = 7, depth: int = 3) -> nn.Sequential:
    sizes = [d] + [width] * depth
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), activation)]
    return nn.Sequential(*layers, nn.Linear(width, fields)).double()


def points(n: int, d: int) -> Tensor:
    return torch.rand(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2 - 1


def assert_same(net: Callable[[Tensor], Tensor], x: Tensor, wanted: list[str], tol: float = 1e-10) -> None:
    """Taylor mode and nested autograd agree, and so do the gradients of a loss of all the derivatives."""
    found, expected = partials(net, x, wanted, mode="taylor"), partials(net, x, wanted, mode="nested")
    assert list(found) == wanted
    for name in wanted:
        torch.testing.assert_close(found[name], expected[name], rtol=tol, atol=tol, msg=lambda m, n=name: n + m)
    parameters = [p for p in net.parameters() if p.requires_grad] if isinstance(net, nn.Module) else []
    if parameters:
        grads = [
            torch.autograd.grad(sum((u**2).sum() + u.sum() for u in us.values()), parameters, allow_unused=True)
            for us in (found, expected)
        ]
        for a, b in zip(*grads, strict=True):
            zero = torch.zeros(())  # a bias of the last layer has no gradient when only derivatives are wanted
            a, b = (zero if g is None else g for g in (a, b))
            torch.testing.assert_close(a, b.expand_as(a), rtol=tol, atol=tol * max(1.0, float(b.abs().max())))


@pytest.mark.parametrize("name", activations.NAMES)
def test_every_activation_up_to_order_four(name: str) -> None:
    torch.manual_seed(0)
    assert_same(mlp(2, activations.get(name)), points(5, 2), ["", "x", "y", "xx", "xy", "xyy", "xxxx", "xxyy"])


@pytest.mark.parametrize(
    "activation",
    [nn.Tanh(), nn.SiLU(), nn.GELU(), nn.GELU("tanh"), nn.Softplus(2.0), nn.ELU(0.7), nn.Sigmoid(), nn.SELU()],
    ids=repr,
)
def test_activations_of_torch(activation: nn.Module) -> None:
    torch.manual_seed(0)
    assert_same(mlp(1, activation), points(5, 1), ["", "x", "xx", "xxx"])


@pytest.mark.parametrize(
    "wanted",
    [["x"], [""], ["t", "x"], ["t", "xx", "yy"], ["xy"], ["xxxx"], ["tttt", "xy"], EVERYTHING_3D],
    ids=",".join,
)
def test_any_mix_of_orders(wanted: list[str]) -> None:
    torch.manual_seed(0)
    net = mlp(3, activations.get("tanh"))
    names = ("x", "y", "t")
    found = partials(net, points(4, 3), wanted, names, mode="taylor")
    expected = partials(net, points(4, 3), wanted, names, mode="nested")
    for name in wanted:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_random_networks(seed: int) -> None:
    torch.manual_seed(seed)
    name = ["tanh", "silu", "sin", "irelu", "integrated_tanh", "integrated_softplus"][seed]
    width, depth = int(torch.randint(1, 12, ())), int(torch.randint(1, 6, ()))
    net = mlp(3, activations.get(name), fields=1 + seed % 3, width=width, depth=depth)
    assert_same(net, points(3, 3), EVERYTHING_3D)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.act, self.scale = nn.Linear(width, width), activations.get("silu"), nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(self.scale * self.inner(x))


class Everything(nn.Module):
    """Input scaling, periodic and random Fourier features, skip connections, a hard constraint."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.tensor([0.1, -0.2]))
        self.register_buffer("k", torch.arange(1.0, 4.0))
        self.register_buffer("random", torch.randn(2, 3))
        self.first, self.blocks = (
            nn.Linear(3 * 2 + 3 + 3 + 1, 6),
            nn.Sequential(Residual(6), nn.Identity(), Residual(6)),
        )
        self.last = nn.Linear(6 + 2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scaled = (x - self.centre) / 1.5
        phase = 2 * math.pi * self.k * x[:, :1] / 2.0
        projected = scaled @ self.random
        features = torch.cat([torch.sin(phase), torch.cos(phase), projected.sin(), projected.cos(), x[:, 1:]], dim=-1)
        hidden = self.blocks(torch.tanh(self.first(features)))
        u = self.last(torch.cat([hidden, scaled], -1))
        t = x[:, 1:]
        return (1 - x[:, :1] ** 2) * t * u + torch.sin(math.pi * x[:, :1]) * (1 - t)


def test_fourier_features_residual_skip_and_hard_constraint() -> None:
    torch.manual_seed(0)
    assert_same(Everything().double(), points(4, 2), ["", "x", "t", "xx", "xt", "xxt", "xxxx", "tttt"])


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "division": lambda x: x[:, :1] / (2 + x[:, 1:] ** 2) + 1 / (x + 3) + torch.ones(2) / (x + 4),
    "tensor on the left": lambda x: torch.ones(1, 2) * 3 - x * x + torch.ones(2) * x + torch.ones(2) / (3 + x),
    "exp log sqrt": lambda x: x.exp() * torch.log(x + 2) - torch.sqrt(x + 3) + torch.exp(-x) + torch.reciprocal(x + 2),
    "powers": lambda x: torch.pow(x + 2, 2.5) + x**3 - torch.square(x) - x**0 + torch.neg(x) * x,
    "integer indexing": lambda x: torch.stack([x[:, 0] * x[:, 1], x[:, 1].sin()], dim=1) * x[..., 0][:, None],
    "broadcasting": lambda x: x[:, 0:1] * torch.arange(1.0, 4.0) + torch.arange(3.0) * x[:, 1:],
    "ranks": lambda x: (x[:, :, None] * x[:, None, :] + x[:, 0, None, None] + x[0, 0] * 0)[:, 0],
    "constant column": lambda x: torch.cat([x * x, torch.ones(x.shape[0], 1, dtype=x.dtype)], dim=1),
    "points joined": lambda x: torch.cat([x[:2] ** 2, x[2:] ** 3], dim=0),
    "functional": lambda x: F.softplus(x) + F.leaky_relu(x, 0.2) + F.elu(x, 0.5) + F.tanh(x) + F.sigmoid(x),
    "subtraction": lambda x: torch.sub(x, 1.0) * torch.sub(torch.ones(2), x) + torch.rsub(x, 2.0) * (x - x * x),
    "new axis": lambda x: x[:, None, :1][:, 0] * torch.add(x, 2) * torch.mul(3, x) / torch.div(x + 9, 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_generic_code_runs_on_jets(name: str) -> None:
    assert_same(FUNCTIONS[name], points(4, 2), ["", "x", "y", "xx", "xy", "xxy", "yyyy"])


@pytest.mark.parametrize(
    ("f", "torch_f"),
    [(Cos(), torch.cos), (Exp(), torch.exp), (Log(), torch.log), (Power(3), lambda x: x**3), (Power(0.5), torch.sqrt)],
)
def test_elementwise_derivatives(f: Power, torch_f: Callable[[Tensor], Tensor]) -> None:
    x = points(5, 1) + 2
    expected = partials(torch_f, x, ["", "x", "xx", "xxx", "xxxx"], mode="nested")
    for found, wanted in zip(f.derivatives(x, 4), expected.values(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "net",
    [
        lambda x: x.cumsum(-1),
        lambda x: torch.einsum("nf,nf->n", x, x)[:, None],
        lambda x: (x if isinstance(x, Tensor) else None) ** 2,
        lambda x: x @ (x.T @ x),
        lambda x: x**x,
        lambda x: 2.0**x,
        lambda x: torch.bmm(x[:, None], x[..., None])[:, 0],
        lambda x: torch.clamp(x, min=0.3),
        lambda x: F.linear(x, x, None),
    ],
)
def test_other_operations_fall_back_to_nested_autograd(net: Callable[[Tensor], Tensor]) -> None:
    x = points(4, 2) + 2
    with pytest.raises((TypeError, AttributeError)):
        partials(net, x, ["x"], mode="taylor")
    found, expected = partials(net, x, ["", "x", "xy"]), partials(net, x, ["", "x", "xy"], mode="nested")
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=0)


def test_a_mistake_in_a_jet_rule_is_not_passed_over() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    @register_jet(Scaled)
    def scaled(module: Scaled, jet: Jet) -> Jet:
        return jet * module.factor

    with pytest.raises(RuleError, match=r"the jet rule of Scaled raised AttributeError: .*factor"):
        partials(nn.Sequential(Scaled()), points(3, 2), ["xx"])


@pytest.mark.parametrize("decide", [lambda x: 1 if x[0, 0] else 2, lambda x: 1 if x == 0 else 2])
def test_decisions_are_not_taken_on_a_jet(decide: Callable[..., int]) -> None:
    x = torch.zeros(1, 1, dtype=torch.float64)
    assert float(partials(lambda u: u * decide(u), x, ["x"], mode="auto")["x"]) == decide(x)
    with pytest.raises(UnsupportedError):
        partials(lambda u: u * decide(u), x, ["xx"], mode="taylor")


@pytest.mark.parametrize("error", [TypeError, AttributeError, ValueError])
def test_a_mistake_in_the_network_surfaces(error: type[Exception]) -> None:
    def broken(x: Tensor) -> Tensor:
        raise error("a mistake")

    with pytest.raises(error, match="a mistake"):
        partials(broken, points(3, 2), ["xx"])


def test_batch_norm_and_dropout_are_left_to_nested_autograd() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4)
    net = nn.Sequential(nn.Linear(2, 4), norm, nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1)).double()
    partials(net, points(5, 2), ["x"])
    assert norm.num_batches_tracked == 1


def test_register_jet_also_reaches_inner_modules() -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("nf,nf->nf", x, x)

    net = nn.Sequential(nn.Linear(2, 3), Square(), nn.Linear(3, 1)).double()
    with pytest.raises(UnsupportedError, match="einsum"):
        partials(net, points(3, 2), ["x"], mode="taylor")

    @register_jet(Square)
    def square(module: Square, jet: Jet) -> Jet:
        return jet * jet

    assert_same(net, points(3, 2), ["", "xx", "xxy"])


def test_only_needed_terms_are_carried() -> None:
    assert downward_closed(frozenset({(2, 0, 0), (0, 0, 1)})) == ((0, 0, 0), (1, 0, 0), (0, 0, 1), (2, 0, 0))
    x = Jet.coordinates(points(3, 2), [(2, 0), (0, 1)])
    assert x.terms == ((0, 0), (1, 0), (0, 1))  # the second derivative of a coordinate vanishes
    assert (x * 2 + 1).terms == x.terms
    assert torch.tanh(x).terms == x.closed
    assert x.term((2, 0)).abs().max() == 0
    assert (x.shape, x.ndim, x.dtype, str(x.device)) == ((3, 2), 2, torch.float64, "cpu")
    assert repr(x).startswith("Jet(shape=(3, 2)")


def test_number_of_partitions_is_the_bell_number() -> None:
    closed = downward_closed(frozenset({(4,)}))
    total = sum(c for bell in composition(closed, closed).bells if bell.row == 4 for c, _ in bell.monomials)
    assert total + 1 == 15  # + 1 for the linear part


@pytest.mark.parametrize("name", ["tanh", "irelu", "integrated_silu"])
@pytest.mark.parametrize("bias", [True, False])
def test_second_derivatives_by_parameters(name: str, bias: bool) -> None:
    """The closed-form reverse pass can itself be differentiated."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3, bias), activations.get(name), nn.Linear(3, 2, bias), nn.Tanh()).double()
    x, weights = points(3, 2), list(net.parameters())

    def loss(mode: str) -> list[Tensor]:
        u = partials(net, x, ["", "x", "yy"], mode=mode)
        grads = torch.autograd.grad(sum((v**2).sum() for v in u.values()), weights, create_graph=True)
        return list(torch.autograd.grad(sum((g**2).sum() for g in grads), weights))

    for a, b in zip(loss("taylor"), loss("nested"), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_results_can_be_differentiated_by_the_points() -> None:
    torch.manual_seed(0)
    net, x = mlp(2, activations.get("tanh")), points(3, 2).requires_grad_()
    (found,) = torch.autograd.grad(partials(net, x, ["xx"], mode="taylor")["xx"].sum(), x)
    torch.testing.assert_close(found[:, 0], partials(net, x, ["xxx"])["xxx"].sum(1), rtol=1e-10, atol=1e-10)


def loss_and_grads(net: nn.Module, x: Tensor, weights: dict[str, Tensor]) -> tuple[Tensor, ...]:
    u = partials(partial(functional_call, net, weights), x, ["t", "xx", "x"], mode="taylor")
    loss = ((u["t"] - u["xx"]) ** 2).mean() + u["x"].square().mean()
    return (loss, *torch.autograd.grad(loss, list(weights.values()), materialize_grads=True))


@pytest.mark.parametrize("name", ["tanh", "silu", "irelu"])
def test_a_traced_step_gives_the_same_numbers(name: str) -> None:
    torch.manual_seed(0)
    net = mlp(2, activations.get(name), fields=1)
    weights = dict(net.named_parameters())
    step = partial(loss_and_grads, net)
    traced = make_fx(step)(points(9, 2), weights)
    other = points(9, 2) * 0.7
    for a, b in zip(traced(other, weights), step(other, weights), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_functorch_transforms() -> None:
    """Per-point parameter gradients of a residual (as the neural tangent kernel needs) by vmap over grad."""
    torch.manual_seed(0)
    net, x = mlp(2, activations.get("tanh"), fields=1), points(4, 2)
    weights = dict(net.named_parameters())

    def residual(w: dict[str, Tensor], point: Tensor) -> Tensor:
        u = partials(partial(functional_call, net, w), point[None], ["xx", "y"], mode="taylor")
        return (u["xx"] + u["y"]).sum()

    found = torch.func.vmap(torch.func.grad(residual), in_dims=(None, 0))(weights, x)
    for i in range(len(x)):
        expected = torch.autograd.grad(residual(weights, x[i]), list(weights.values()), materialize_grads=True)
        for a, b in zip(found.values(), expected, strict=True):
            torch.testing.assert_close(a[i], b, rtol=1e-10, atol=1e-12)


def test_trainable_activation_parameters_get_their_gradient() -> None:
    class Swish(activations.Activation):
        name, smoothness, vanishing_order = "swish", math.inf, None

        def __init__(self) -> None:
            super().__init__()
            self.beta = nn.Parameter(torch.tensor(1.3, dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(self.beta * x)

        def derivatives(self, x: Tensor, n: int) -> tuple[Tensor, ...]:
            return tuple(self.beta**k * torch.sin(self.beta * x + k * math.pi / 2) for k in range(n + 1))

        def _evaluate(self, x: Tensor, orders: object) -> list[Tensor]:
            raise NotImplementedError

    f, z = Swish(), points(3, 2)
    jet = Jet.coordinates(z, [(1, 1)])
    (jet.apply(f).term((1, 1)).sum() + 0).backward()
    expected = partials(lambda x: torch.sin(f.beta * x[:, :1]), z, ["xy"])
    assert expected["xy"].abs().max() == 0  # each column depends on itself alone, so u_xy = 0 …
    assert f.beta.grad is not None
    assert f.beta.grad == 0
    f.beta.grad = None
    Jet.coordinates(z, [(2, 0)]).apply(f).term((2, 0)).sum().backward()
    beta = f.beta.detach().requires_grad_()  # … and u_xx = −β² sin(βx)
    (-(beta**2) * torch.sin(beta * z[:, 0])).sum().backward()
    torch.testing.assert_close(f.beta.grad, beta.grad, rtol=1e-12, atol=1e-12)


def test_plain_and_fast_composition_agree_in_float32() -> None:
    x = Jet.coordinates(points(50, 2).float(), [(2, 1)])
    u = x * x * 0.5 + x
    plan = composition(u.terms, u.closed)
    plain = compose_plain(u.rows, activations.get("silu"), plan)
    torch.testing.assert_close(u.apply(activations.get("silu")).rows, plain)
