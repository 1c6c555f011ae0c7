"""Activations against mpmath, against autograd, and against what torch computes itself."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from functools import partial

import mpmath as mp
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacfwd, jacrev, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from dcnn import activations as act
from dcnn.activations.dilogarithm import dilogarithm
from dcnn.activations.names import PLAIN as FAMILY
from dcnn.errors import InputError

mp.mp.dps = 40
ALPHA, SCALE, KAPPA = (mp.mpf(v) for v in (1.6732632423543772, 1.0507009873554805, 0.044715))
ETA2 = mp.pi**2 / 12


def half(x):
    return max(x, 0) ** 2 / 2


def logistic(x):
    return 1 / (1 + mp.exp(-x))


def gelu_tanh(x):
    return x * logistic(2 * mp.sqrt(2 / mp.pi) * (x + KAPPA * x**3))


def softplus_integral(x):
    return -mp.polylog(2, -mp.exp(x)) - ETA2


# name: (function, its integral from 0), both as mathematics writes them
EXACT = {
    "relu": (lambda x: max(x, 0), half),
    "leaky_relu": (lambda x: x if x > 0 else mp.mpf(0.01) * x, lambda x: (1 if x > 0 else mp.mpf(0.01)) * x**2 / 2),
    "elu": (lambda x: x if x > 0 else mp.expm1(x), lambda x: half(x) if x > 0 else mp.expm1(x) - x),
    "selu": (
        lambda x: SCALE * (x if x > 0 else ALPHA * mp.expm1(x)),
        lambda x: SCALE * (half(x) if x > 0 else ALPHA * (mp.expm1(x) - x)),
    ),
    "silu": (lambda x: x * logistic(x), lambda x: x * mp.log1p(mp.exp(x)) - softplus_integral(x)),
    "gelu": (
        lambda x: x * mp.ncdf(x),
        lambda x: ((x**2 - 1) * mp.ncdf(x) + x * mp.npdf(x) + mp.mpf(1) / 2) / 2,
    ),
    "gelu_tanh": (gelu_tanh, lambda x: mp.quad(gelu_tanh, [0, *(mp.sign(x) * b for b in (1, 3, 8) if b < abs(x)), x])),
    "softplus": (lambda x: mp.log1p(mp.exp(x)), softplus_integral),
    "shifted_softplus": (
        lambda x: mp.log1p(mp.exp(x)) - mp.log(2),
        lambda x: softplus_integral(x) - x * mp.log(2),
    ),
    "sigmoid": (logistic, lambda x: mp.log1p(mp.exp(x)) - mp.log(2)),
    "tanh": (mp.tanh, lambda x: mp.log(mp.cosh(x))),
    "sin": (mp.sin, lambda x: 1 - mp.cos(x)),
    "identity": (lambda x: x, lambda x: x**2 / 2),
}
PLAIN = list(EXACT)
TORCH = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "softplus": F.softplus,
    "shifted_softplus": lambda x: F.softplus(x) - math.log(2),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "sin": torch.sin,
}
SIZES = [1e-8, 1e-4, 0.01, 0.0624, 0.0626, 0.3, 0.7, 0.9999, 1.0, 1.0001, 1.5, 2.3, 4.0, 6.5, 9.0, 17.0, 33.0, 50.0]
GRID = torch.tensor([*(-x for x in reversed(SIZES)), *SIZES], dtype=torch.float64)
CLOSE = torch.tensor([-3.1, -1.2, -0.4, 0.2, 0.9, 2.7], dtype=torch.float64)  # off every kink


def relative_error(got: Tensor, x: Tensor, exact) -> float:
    wanted = [exact(mp.mpf(v)) for v in x.tolist()]
    return max(float(abs(mp.mpf(g) - w) / abs(w)) for g, w in zip(got.tolist(), wanted, strict=True))


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 3e-7)])
def test_integral_is_exact_to_the_relative_precision_of_the_dtype(name, dtype, tolerance):
    x = GRID.to(dtype)
    x = x[x > 0] if name == "relu" else x
    assert relative_error(act.integrate(name)(x), x, EXACT[name][1]) < tolerance


@pytest.mark.parametrize("name", PLAIN)
def test_integral_is_zero_at_zero_and_finite_far_out(name):
    integral = act.integrate(name)
    assert integral(torch.zeros(1)).item() == 0
    x = torch.tensor([-1e4, 1e4])
    for n in range(7):
        assert integral.derivative(x, n).isfinite().all()
    right = torch.tensor([1e4], dtype=torch.float64)
    exact = half if name == "gelu_tanh" else EXACT[name][1]
    assert relative_error(integral(right), right, exact) < 1e-7


@pytest.mark.parametrize("name", PLAIN)
def test_integral_differentiates_back_exactly(name):
    x = GRID.clone().requires_grad_()
    (slope,) = torch.autograd.grad(act.integrate(name)(x).sum(), x)
    assert torch.equal(slope, act.get(name).derivative(GRID, 0))


def test_softplus_with_beta():
    x = torch.linspace(-4, 4, 8, dtype=torch.float64)
    integral = act.integrate(nn.Softplus(beta=3.0))
    exact = torch.tensor([float(softplus_integral(mp.mpf(3 * v))) / 9 for v in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(integral(x), exact, rtol=1e-13, atol=0)
    torch.testing.assert_close(integral.derivative(x, 1), F.softplus(x, 3.0), rtol=1e-12, atol=0)
    torch.testing.assert_close(integral.derivative(x, 3), 3 * torch.sigmoid(3 * x) * torch.sigmoid(-3 * x))


@pytest.mark.parametrize("name", PLAIN)
def test_derivatives_of_orders_0_to_7_are_those_of_mpmath(name):
    activation = act.get(name)
    exact = [mp.taylor(EXACT[name][0], mp.mpf(v), 7) for v in CLOSE.tolist()]
    for n in range(8):
        want = torch.tensor([float(t[n] * mp.factorial(n)) for t in exact], dtype=torch.float64)
        torch.testing.assert_close(activation.derivative(CLOSE, n), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", TORCH)
def test_forward_is_what_torch_computes(name):
    x = torch.linspace(-6, 6, 101)
    torch.testing.assert_close(act.get(name)(x), TORCH[name](x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", act.NAMES)
def test_autograd_of_each_derivative_is_the_next(name):
    activation = act.get(name)
    x = CLOSE.clone().requires_grad_()
    together = activation.derivatives(x, 6)
    for n in range(7):
        (slope,) = torch.autograd.grad(activation.derivative(x, n).sum(), x)
        torch.testing.assert_close(slope, activation.derivative(CLOSE, n + 1), rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(together[n], activation.derivative(CLOSE, n), rtol=0, atol=0)
    torch.testing.assert_close(activation(CLOSE), together[0].detach(), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("name", act.NAMES)
def test_gradcheck_and_gradgradcheck(name):
    activation = act.get(name)
    x = CLOSE.clone().requires_grad_()
    for f in (activation, partial(activation.derivatives, n=2)):
        assert torch.autograd.gradcheck(f, x, check_forward_ad=True, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(f, x, check_fwd_over_rev=True, check_batched_grad=True)


@pytest.mark.parametrize("name", ["irelu", "silu", "tanh", "gelu_tanh", "integrated_silu", "integrated_tanh"])
@pytest.mark.parametrize("modes", list(itertools.product((jacfwd, jacrev), repeat=3)))
def test_every_nesting_of_forward_and_reverse_mode(name, modes):
    activation = act.get(name)
    f = activation
    for n, mode in enumerate(modes, start=1):
        f = mode(f)
        torch.testing.assert_close(vmap(f)(CLOSE), activation.derivative(CLOSE, n))
    slope = modes[0](lambda x: activation.derivatives(x, 2)[1])
    torch.testing.assert_close(vmap(slope)(CLOSE), activation.derivative(CLOSE, 2))


@pytest.mark.parametrize("name", act.NAMES)
def test_a_force_training_step_can_be_traced(name):
    activation = act.get(name)

    def step(x: Tensor, w: Tensor) -> Tensor:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        (force,) = torch.autograd.grad(activation(x[:, None] * w).sum(), x, create_graph=True)
        return torch.autograd.grad(force.square().sum(), w)[0]

    w = torch.tensor([0.3, -1.2], dtype=torch.float64)
    traced = make_fx(step)(CLOSE, w)
    torch.testing.assert_close(traced(2 * CLOSE, w), step(2 * CLOSE, w))


@pytest.mark.parametrize("name", [name for name in act.NAMES if name != "identity"])
def test_one_tensor_is_saved(name):
    saved = set()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.add(t.data_ptr()) or t, lambda t: t):
        x = CLOSE.clone().requires_grad_()
        y = act.get(name)(x)
        assert len(saved) == 1
        torch.autograd.grad(y, x, torch.ones_like(x), create_graph=True)
    assert len(saved) <= 3  # and the incoming gradient, for the product with it


SMOOTHNESS = {"relu": (0, 2), "leaky_relu": (0, 2), "elu": (1, None), "selu": (0, None), "identity": (math.inf, 2)}


@pytest.mark.parametrize("name", PLAIN)
def test_smoothness_and_vanishing_order(name):
    smoothness, vanishing = SMOOTHNESS.get(name, (math.inf, None))
    for activation, shift in ((act.get(name), 0), (act.integrate(name), 1)):
        assert activation.smoothness == smoothness + shift
        assert activation.vanishing_order == (None if vanishing is None else vanishing + shift)
        left, right = (torch.tensor([s * 1e-9], dtype=torch.float64) for s in (-1, 1))
        for n in range(6):  # continuous up to `smoothness`, and not one order more
            jumps = (activation.derivative(left, n) - activation.derivative(right, n)).abs().item() > 1e-6
            if n <= activation.smoothness + 1:
                assert jumps == (n > activation.smoothness)
            zero = not activation.derivative(CLOSE, n).any()
            assert zero == (activation.vanishing_order is not None and n >= activation.vanishing_order)


def test_elu_is_smooth_only_for_alpha_1():
    assert (act.ELU(0.5).smoothness, act.integrate(nn.ELU(0.5)).smoothness) == (0, 1)


def test_dilogarithm_is_that_of_mpmath():
    z = torch.cat(
        [-torch.logspace(-12, 0, 60, dtype=torch.float64), torch.linspace(0.01, 0.5, 30, dtype=torch.float64)]
    )
    assert relative_error(dilogarithm(z), z, lambda v: mp.polylog(2, v)) < 5e-16
    assert relative_error(dilogarithm(z.float()), z.float(), lambda v: mp.polylog(2, v)) < 3e-7


def test_nan_stays_nan():
    for name in act.NAMES:
        assert act.get(name).derivative(torch.tensor([math.nan, 1.0]), 0)[0].isnan()


def test_names():
    assert set(FAMILY) == set(PLAIN)
    assert [act.get(name).name for name in act.NAMES if name != "integrated_relu"] == [
        name for name in act.NAMES if name != "integrated_relu"
    ]
    assert isinstance(act.get("integrated_relu"), act.IReLU)
    assert isinstance(act.integrate(torch.relu), act.IReLU)
    assert isinstance(act.get("Swish"), act.SiLU)
    assert act.get("integrated_ssp").name == "integrated_shifted_softplus"
    module = nn.Hardtanh()
    assert act.get(module) is module


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: act.get("irellu"), "did you mean 'irelu'"),
        (lambda: act.get("integrated_silo"), "did you mean 'integrated_silu'"),
        (lambda: act.integrate(nn.Hardtanh()), "cannot integrate Hardtanh"),
        (lambda: act.integrate("irelu"), "cannot integrate 'irelu'"),
        (lambda: act.IReLU().derivative(torch.zeros(1), -1), "at least 0, got -1"),
    ],
)
def test_mistakes_are_explained(wrong, message):
    with pytest.raises(InputError, match=message):
        wrong()


class ShiftedSoftplus(nn.Module):
    """As in torch_geometric, with a shift that was computed in float32."""

    def forward(self, x):
        return F.softplus(x) - torch.log(torch.tensor(2.0)).item()


class Swish(nn.Module):
    def __init__(self, beta: float = 1.0):
        super().__init__()
        self.beta = beta

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


class normalize2mom(nn.Module):  # noqa: N801, e3nn's name
    """c·f(x), of second moment one for a standard normal x."""

    def __init__(self, f):
        super().__init__()
        self.f = f
        self.register_buffer("cst", torch.tensor(1.6765))

    def forward(self, x):
        return self.f(x).mul(self.cst)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (nn.ReLU(inplace=True), "ReLU()"),
        (nn.LeakyReLU(0.2), "LeakyReLU(negative_slope=0.2)"),
        (nn.ELU(0.7), "ELU(alpha=0.7)"),
        (nn.SELU(), "SELU()"),
        (nn.SiLU(), "SiLU()"),
        (nn.GELU(), "GELU()"),
        (nn.GELU("tanh"), "GELUTanh()"),
        (nn.Softplus(beta=2.0), "Softplus(beta=2.0)"),
        (nn.Sigmoid(), "Sigmoid()"),
        (nn.Tanh(), "Tanh()"),
        (nn.Identity(), "Identity()"),
        (ShiftedSoftplus(), "ShiftedSoftplus()"),
        (F.silu, "SiLU()"),
        (F.gelu, "GELU()"),
        (torch.sin, "Sin()"),
        (Tensor.tanh, "Tanh()"),
        (partial(F.leaky_relu, negative_slope=0.3, inplace=True), "LeakyReLU(negative_slope=0.3)"),
        (partial(F.gelu, approximate="tanh"), "GELUTanh()"),
        (partial(torch.clamp, min=0), "None"),
        (act.integrate("silu"), "Integrated(SiLU())"),
        (nn.Hardtanh(), "None"),
        (lambda x: x, "None"),
        (Swish(), "SiLU()"),
        (Swish(beta=5.0), "None"),
        (normalize2mom(F.silu), "Scaled(SiLU(), factor=1.6765)"),
        (lambda x: torch.tanh(0.5 * x), "None"),
        (lambda x: x.softmax(0), "None"),
        (lambda x: F.softplus(x) - math.log(2), "ShiftedSoftplus()"),
    ],
)
def test_from_torch(given, expected):
    assert str(act.from_torch(given)) == expected


@pytest.mark.parametrize("name", act.NAMES)
def test_activations_are_leaves_that_copy_and_pickle(name):
    activation = act.get(name)
    assert list(activation.children()) == []
    assert not activation.state_dict()
    for other in (copy.deepcopy(activation), pickle.loads(pickle.dumps(activation))):
        assert torch.equal(other(CLOSE), activation(CLOSE))


@pytest.mark.parametrize("name", act.NAMES)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_torchscript_computes_and_differentiates_the_same(name):
    activation, script = act.get(name), torch.jit.script(act.get(name))
    x = torch.linspace(-3.3, 3.1, 20, dtype=torch.float64).view(4, 5).requires_grad_()
    tight = 1e-8 if "leaky" in name else 1e-13  # TorchScript keeps the slope of leaky_relu in float32
    for _ in range(3):  # the first runs are interpreted, the later ones optimised
        torch.testing.assert_close(script(x), activation(x), rtol=0, atol=1e-14)
        slopes = [torch.autograd.grad(f(x).sum(), x)[0] for f in (script, activation)]
        torch.testing.assert_close(*slopes, rtol=0, atol=tight)
    assert script(x.float()).dtype is torch.float32


@pytest.mark.parametrize("order", range(2, 7))
@pytest.mark.parametrize("name", act.NAMES)
def test_high_derivatives_keep_their_digits_in_float32(name, order):
    x = torch.linspace(-6, 6, 2001)
    exact = act.get(name).derivative(x.double(), order)
    error = (act.get(name).derivative(x, order) - exact).abs().max()
    assert error <= 3e-6 * exact.abs().max()  # 25 roundings of the largest value
