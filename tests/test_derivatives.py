"""gradient, hessian_vector, partials, laplacian, finite_difference and safe_norm against closed forms."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dcnn.derivatives import finite_difference, gradient, hessian_vector, laplacian, partials, safe_norm
from dcnn.errors import InputError

DOUBLE = torch.float64


def points(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)) + 0.5


def close(found: Tensor, expected: Tensor, tol: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=tol, atol=tol)


def wave(x: Tensor) -> Tensor:
    """sin(2x) e^{3t}, whose derivatives ∂ₓᵃ∂ₜᵇ are 2ᵃ 3ᵇ sin(2x + aπ/2) e^{3t}."""
    return torch.sin(2 * x[:, :1]) * torch.exp(3 * x[:, 1:])


def wave_derivative(x: Tensor, a: int, b: int) -> Tensor:
    return 2**a * 3**b * torch.sin(2 * x[:, :1] + a * math.pi / 2) * torch.exp(3 * x[:, 1:])


@pytest.mark.parametrize("mode", ["taylor", "nested", "auto"])
@pytest.mark.parametrize(
    "name", ["", "x", "t", "xx", "xt", "tx", "tt", "xxt", "xxxx", "xxtt", "tttt", "xttt", "xxxttt", "tttttt"]
)
def test_partials_of_a_closed_form(mode: str, name: str) -> None:
    x = points(5, 2)
    expected = wave_derivative(x, name.count("x"), name.count("t"))
    close(partials(wave, x, [name], ("x", "t"), mode=mode)[name], expected)


@pytest.mark.parametrize(
    ("columns", "wanted", "columns_of"),
    [
        (2, ["t", "x"], {"x": 0, "t": 1}),
        (2, ["x", "y"], {"x": 0, "y": 1}),
        (2, ["x"], {"x": 0}),
        (3, ["t", "y"], {"y": 1, "t": 2}),
        (3, ["z"], {"z": 2}),
        (4, ["x", "t"], {"x": 0, "t": 3}),
        (1, ["t"], {"t": 0}),
        (1, ["y"], {"y": 0}),
    ],
)
def test_default_names_of_the_columns(columns: int, wanted: list[str], columns_of: dict[str, int]) -> None:
    weights = torch.arange(1.0, columns + 1, dtype=DOUBLE)[:, None]
    found = partials(lambda x: x @ weights, points(3, columns), wanted)
    assert {name: int(found[name][0]) - 1 for name in wanted} == columns_of


def test_coordinates_can_be_named_freely_and_one_string_is_enough() -> None:
    x = points(3, 2)
    close(partials(wave, x, "rs", coordinates=("r", "s"))["rs"], wave_derivative(x, 1, 1))


def test_outputs_without_a_field_axis_keep_their_shape() -> None:
    x = points(3, 2)
    for mode in ("taylor", "nested"):
        close(partials(lambda x: x[:, 0] ** 2, x, ["xx"], mode=mode)["xx"], torch.full((3,), 2.0, dtype=DOUBLE))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("mode", ["taylor", "nested"])
def test_derivatives_without_a_graph(context: type, mode: str) -> None:
    with context():
        x = points(4, 2)
        u = partials(wave, x, ["xt"], ("x", "t"), mode=mode)["xt"]
    assert not u.requires_grad
    close(u, wave_derivative(x, 1, 1))


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_laplacian_of_a_gaussian(d: int) -> None:
    x = points(5, d)
    r2 = (x * x).sum(-1, keepdim=True)
    expected = torch.exp(-r2) * (4 * r2 - 2 * d)

    def gaussian(x: Tensor) -> Tensor:
        squares = x * x
        return torch.exp(-sum((squares[:, i : i + 1] for i in range(1, d)), start=squares[:, :1]))

    close(laplacian(gaussian, x), expected)


def test_laplacian_leaves_time_out() -> None:
    x = points(5, 2)
    close(laplacian(wave, x, ("x", "t")), wave_derivative(x, 2, 0))
    close(laplacian(wave, x), wave_derivative(x, 2, 0) + wave_derivative(x, 0, 2))


def test_gradient_of_a_function_and_of_a_tensor() -> None:
    x = points(4, 3).requires_grad_()
    close(gradient(lambda x: (x**3).sum(-1), x), 3 * x**2)
    close(gradient((x**3).sum(), x), 3 * x**2)
    first, second = gradient(lambda a, b: a * b**2, [x, x.detach() + 1])
    close(first, (x + 1) ** 2)
    close(second, 2 * x * (x + 1))
    a, b = points(2).requires_grad_(), points(2).requires_grad_()
    assert [g.tolist() for g in gradient((a + 2 * b).sum(), (a, b))] == [[1.0, 1.0], [2.0, 2.0]]


def test_gradient_can_be_differentiated_again_or_not() -> None:
    x = points(3)
    assert gradient(lambda x: x**3, x).requires_grad
    assert not gradient(lambda x: x**3, x, create_graph=False).requires_grad
    with torch.no_grad():
        close(gradient(lambda x: x**3, x), 3 * x**2)


def test_hessian_vector_of_a_quadratic_form() -> None:
    matrix, x, v = points(4, 4), points(4), points(4)
    close(hessian_vector(lambda x: x @ matrix @ x, x, v), (matrix + matrix.T) @ v)
    assert hessian_vector(lambda x: x.sum(), x, v).abs().max() == 0
    with pytest.raises(InputError, match=r"v has shape \(2,\), x has \(4,\)"):
        hessian_vector(lambda x: x.sum(), x, v[:2])


def test_hessian_vector_trains_parameters() -> None:
    weight = torch.tensor(2.0, dtype=DOUBLE, requires_grad=True)
    x, v = points(3), points(3)
    (found,) = torch.autograd.grad(hessian_vector(lambda x: weight * x**3, x, v).sum(), weight)
    close(found, (6 * x * v).sum())


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_finite_differences_of_a_network(order: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))  # float32: copied to float64
    name = "xtxt"[:order]
    x = points(4, 2)
    found = finite_difference(net, x.float(), [name, ""])
    expected = partials(net.double(), x.float().double(), [name, ""])
    tol = {1: 1e-10, 2: 1e-8, 3: 1e-7, 4: 1e-6}[order]
    close(found[name], expected[name], tol)
    close(found[""], expected[""])


def test_finite_difference_gradient_of_any_shape() -> None:
    x = points(2, 3)
    close(finite_difference(lambda x: torch.sin(x).prod(), x), torch.sin(x).prod() / torch.tan(x), 1e-10)
    slope = finite_difference(lambda t: (torch.exp(x) * t).sum(), torch.zeros(1), step=0.1)
    close(slope, torch.exp(x).sum()[None], 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_safe_norm_has_no_nan_at_zero(dtype: torch.dtype) -> None:
    v = torch.tensor([[0.0, 0, 0], [1e-30, 0, 0], [3, 4, 0]], dtype=dtype, requires_grad=True)
    norm = safe_norm(v)
    (first,) = torch.autograd.grad(norm.sum(), v, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum() + first.sum(), v)
    assert norm[0] == 0
    assert norm[2] == 5
    assert torch.equal(first[0], torch.zeros(3, dtype=dtype))
    close(first[2], torch.tensor([0.6, 0.8, 0.0], dtype=dtype), 1e-6)
    assert bool(torch.isfinite(first).all() and torch.isfinite(second).all())
    assert torch.equal(second[0], torch.zeros(3, dtype=dtype))


def test_safe_norm_is_the_norm_elsewhere() -> None:
    v = points(4, 3).requires_grad_()
    close(safe_norm(v, dim=0, keepdim=True), v.norm(dim=0, keepdim=True))
    assert torch.autograd.gradcheck(safe_norm, v)
    assert torch.autograd.gradgradcheck(safe_norm, v)


class Detached(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach() * 2


def detaching() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), Detached(), nn.Linear(3, 1)).double()


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: gradient(detaching(), points(3, 2)), r"respect to x: the graph is lost in module '2' \(Detached\)"),
    (lambda: partials(detaching(), points(3, 2), ["x"]), r"the graph is lost in module '2' \(Detached\)"),
    (lambda: gradient(lambda x: x.detach(), points(3)), r"the output of shape \(3,\) has no graph"),
    (lambda: gradient(lambda a, b: a * 2, [points(3), points(3)]), r"respect to x\[1\]: .* does not depend on x\[1\]"),
    (lambda: gradient(points(3).sum(), points(3)), r"x of shape \(3,\) does not require a gradient"),
    (lambda: gradient(points(3).sum(), points(3).requires_grad_()), r"has no graph"),
    (lambda: gradient(lambda x: x * 1.0, torch.arange(3)), r"x is torch.int64"),
    (lambda: partials(wave, points(3, 2), ["xq"]), r"unknown coordinate in the derivative 'xq': 'q'.*Valid: x, y"),
    (lambda: partials(wave, points(3, 2), ["xxxxxxx"]), r"'xxxxxxx' is of order 7; orders up to 6"),
    (lambda: partials(wave, points(3, 2), ["x"], ("x",)), r"coordinates must be 2 different letters"),
    (lambda: partials(wave, points(3, 2), ["x"], ("x", "x")), r"coordinates must be 2 different letters"),
    (lambda: partials(wave, points(3, 7), ["x"]), r"x has 7 columns; name them"),
    (lambda: partials(wave, points(3), ["x"]), r"got shape \(3,\)"),
    (lambda: partials(wave, points(3, 2), ["x"], mode="forward"), r"unknown mode 'forward'"),
    (lambda: partials(lambda x: x.sum(), points(3, 2), ["x"]), r"returns shape \(\) for 3 points"),
    (lambda: laplacian(wave, points(3, 2), ("x",)), r"1 coordinates \('x',\) were named, but x has 2 columns"),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_mistakes_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("fields", "wanted", "taylor"),
    [(1, ["x", "t"], False), (2, ["", "x", "t"], False), (3, ["x", "t"], True), (1, ["xx"], True), (1, [""], True)],
)
def test_the_cheaper_mode_is_taken(fields: int, wanted: list[str], taylor: bool) -> None:
    calls = []

    def net(x: Tensor) -> Tensor:
        calls.append(type(x).__name__)
        return torch.cat([x[:, :1] * x[:, 1:]] * fields, -1)

    partials(net, points(5, 2), wanted)
    assert calls[-1] == ("Jet" if taylor else "Tensor")


def test_a_network_that_is_tied_to_the_number_of_points() -> None:
    x, column = points(5, 2), points(5, 1)
    found = partials(lambda x: torch.cat([x, column], 1) @ torch.ones(3, 1, dtype=DOUBLE), x, ["x", "y"])
    assert torch.equal(found["y"], torch.ones(5, 1, dtype=DOUBLE))


def test_a_field_that_is_constant_has_zero_derivatives() -> None:
    def net(x: Tensor) -> Tensor:
        return torch.stack([x[:, 0] ** 2, torch.ones(x.shape[0], dtype=x.dtype)], 1)

    for mode in ("taylor", "nested"):
        u = partials(net, points(3, 2), ["x", "xxx"], mode=mode)
        assert u["x"][:, 1].abs().max() == 0
        assert u["xxx"].abs().max() == 0


@pytest.mark.parametrize(
    "differentiate",
    [
        gradient,
        lambda f, x: partials(f, x, ["xx"]),
        lambda f, x: partials(f, x, ["xx"], mode="nested"),
        lambda f, x: hessian_vector(f, x, torch.ones_like(x)),
    ],
)
def test_parameters_made_in_inference_mode_are_named(differentiate):
    with torch.inference_mode():
        net, x = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)), torch.ones(3, 1)
    with pytest.raises(InputError, match=r"made inside torch.inference_mode\(\)"):
        differentiate(net, x)
    fine = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
    with torch.inference_mode():
        differentiate(fine, torch.ones(3, 1))


@pytest.mark.parametrize("seconds", [{"taylor": 2.0, "nested": 1.0}, {"taylor": 1.0, "nested": 2.0}])
def test_the_faster_way_is_measured_once_and_then_taken(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[str, float]
) -> None:
    module = sys.modules["dcnn.derivatives.partials"]
    asked: list[str] = []

    def measured(net: nn.Module, x: Tensor, wanted: object, mode: str) -> float:
        asked.append(mode)
        return seconds[mode]

    monkeypatch.setattr(module, "_seconds", measured)
    taken: list[bool] = []
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    net.register_forward_pre_hook(lambda _, inputs: taken.append(isinstance(inputs[0], Tensor)))
    x = points(300, 2)
    found = [partials(net, x, ["xx", "t"]) for _ in range(4)]
    assert asked == ["taylor", "nested"]  # at the second call
    assert taken == [False] + 3 * [seconds["nested"] < seconds["taylor"]]
    close(found[0]["xx"], found[3]["xx"])
    partials(net, x[:200], ["xx"])
    partials(net, x[:200], ["xx"])
    assert len(asked) == 2  # few points are not worth it


def test_a_network_without_rules_is_measured_as_nested() -> None:
    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x**3).sort(dim=1).values[:, :1]

    net, x = Sorted(), points(300, 2)
    for _ in range(3):
        close(partials(net, x, ["xx"])["xx"], torch.where(x[:, :1] < x[:, 1:], 6 * x[:, :1], 0 * x[:, :1]))
