"""Every weighting against the formula of its paper, on numbers worked out by hand."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.losses import (
    NTK,
    ConFIG,
    Fixed,
    GradNorm,
    ReLoBRaLo,
    Schedule,
    SoftAdapt,
    Term,
    Uncertainty,
    Weighting,
)
from dcnn.losses.weighting import NAMES, get

A, B, C = Term("a"), Term("b"), Term("c")
E = math.e


def scalars(*numbers: float) -> dict[str, Tensor]:
    return {name: torch.tensor(v, dtype=torch.float64) for name, v in zip("abc", numbers, strict=False)}


def weights(weighting: Weighting, *history: tuple[float, ...]) -> list[float]:
    """The weights after these values, one tuple a step."""
    for step, values in enumerate(history):
        weighting.combine(scalars(*values), [], step)
    return list(weighting.current.values())


def linear(theta: Tensor, *gradients: list[float]) -> dict[str, Tensor]:
    """Terms that are linear in θ with the given gradients."""
    return {n: torch.tensor(g, dtype=torch.float64) @ theta for n, g in zip("abc", gradients, strict=False)}


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def test_fixed_and_scheduled_weights():
    weighting = Fixed([Term("a", 2.0), Term("b", Schedule.linear(0.0, 10.0, steps=10))])
    assert weighting.combine(scalars(3.0, 5.0), [], 4).item() == 2 * 3 + 4 * 5
    assert weighting.current == {"a": 2.0, "b": 4.0}
    report = {name: value.item() for name, value in weighting.report(scalars(3.0, 5.0)).items()}
    assert report == {"a_raw": 3.0, "b_raw": 5.0, "a_weighted": 6.0, "b_weighted": 20.0}


# Losses go from (1, 4) to (0.5, 5.5): s = (−0.5, 1.5), Σ|s| = 2; the first of softmax(x, x + d) is 1/(1 + eᵈ).
@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"beta": 1.0}, 1 / (1 + E**2)),  # 0.1192
        ({"beta": 0.1}, 1 / (1 + E**0.2)),  # 0.4502
        ({"beta": 1.0, "normalized": True}, 1 / (1 + E ** (1 / (1 + 0.5e-8)))),  # 0.2689
        ({"beta": 1.0, "loss_weighted": True}, 0.5 / (0.5 + 5.5 * E**2)),  # 0.01215
        (
            {"beta": 1.0, "loss_weighted": True, "normalized": True},
            0.5 / (0.5 + 5.5 * E ** (1 / (1 + 0.5e-8))),
        ),
    ],
)
def test_softadapt(options, share):
    weighting = SoftAdapt([A, B], **options)
    assert weights(weighting, (1.0, 4.0), (0.5, 5.5)) == pytest.approx([share, 1 - share], rel=1e-13)


def test_softadapt_starts_equal_and_averages_over_windows():
    weighting = SoftAdapt([A, B], beta=1.0, every=2)
    assert weights(weighting, (1.0, 4.0)) == [0.5, 0.5]
    # means (2, 5) then (1, 6): s = (−1, 1), known only when the second window is full
    assert weights(SoftAdapt([A, B], beta=1.0, every=2), (1, 4), (3, 6), (0, 7)) == [0.5, 0.5]
    found = weights(SoftAdapt([A, B], beta=1.0, every=2), (1, 4), (3, 6), (0, 7), (2, 5))
    assert found == pytest.approx([1 / (1 + E**2), 1 / (1 + E**-2)], rel=1e-14)


# m = 2, T = 1, α = 0.9; L(0) = (2, 4), L(1) = (1, 4), L(2) = (1, 2):
# λ̂(1, 0) = 2 softmax(½, 1), λ̂(2, 1) = 2 softmax(1, ½), λ̂(2, 0) = 2 softmax(½, ½) = (1, 1).
LOW, HIGH = 2 / (1 + E**0.5), 2 / (1 + E**-0.5)  # 0.7551, 1.2449


@pytest.mark.parametrize(
    ("rho", "after_one", "after_two"),
    [
        (1.0, 0.9 * 1 + 0.1 * LOW, 0.9 * (0.9 * 1 + 0.1 * LOW) + 0.1 * HIGH),  # 0.97551, 1.00245
        (0.0, 0.9 * LOW + 0.1 * LOW, 0.9 * 1 + 0.1 * HIGH),  # 0.75508, 1.02449
    ],
)
def test_relobralo(rho, after_one, after_two):
    def weighting() -> ReLoBRaLo:
        return ReLoBRaLo([A, B], alpha=0.9, temperature=1.0, rho=rho)

    assert weights(weighting(), (2, 4)) == [1.0, 1.0]
    assert weights(weighting(), (2, 4), (1, 4)) == pytest.approx([after_one, 2 - after_one], rel=1e-14)
    assert weights(weighting(), (2, 4), (1, 4), (1, 2)) == pytest.approx([after_two, 2 - after_two], rel=1e-14)


def test_relobralo_temperature_and_random_lookback():
    assert weights(ReLoBRaLo([A, B], alpha=0.0, temperature=0.1), (2, 4), (1, 4)) == pytest.approx(
        [2 / (1 + E**5), 2 / (1 + E**-5)], rel=1e-13
    )
    # With α = 1 the weights go back to λ̂(t, 0) exactly when ρ = 0 is drawn, and stay otherwise.
    weighting, draws = ReLoBRaLo([A, B], alpha=1.0, temperature=1.0, rho=0.5, seed=3), torch.Generator()
    draws.manual_seed(3)
    expected, seen = 1.0, set()
    for step in range(12):
        first = 1.0 + step
        weighting.combine(scalars(first, 1.0), [], step)
        if step > 0:
            stays = bool(torch.rand((), generator=draws) < 0.5)
            seen.add(stays)
            expected = expected if stays else 2 / (1 + E ** (1 - first))
        assert weighting.current["a"] == pytest.approx(expected, rel=1e-13)
    assert seen == {True, False}


# ∇Lₐ = (3, 0), ∇L_b = (0, 1), rate 0.1. Step 0 at θ = (1, 1): G = (3, 1), targets (2, 2), so
# λ = (1 − 0.3, 1 + 0.1) · 2/1.8 = (7/9, 11/9). Step 1 at θ = (1, 0.1): G = (7/3, 11/9), L/L(0) = (1, 0.1).
@pytest.mark.parametrize(
    ("alpha", "second"),
    [
        (0.0, [(7 / 9 - 0.3) * 2 / 1.8, (11 / 9 + 0.1) * 2 / 1.8]),  # targets 16/9: signs +, −
        (
            1.0,
            [(7 / 9 + 0.3) * 2 / 2.2, (11 / 9 - 0.1) * 2 / 2.2],
        ),  # targets 16/9 · (1, 0.1)/0.55: signs −, +
    ],
)
def test_gradnorm(alpha, second):
    weighting = GradNorm([A, B], alpha=alpha, rate=0.1)
    for step, theta, expected in (
        (0, vector(1.0, 1.0), [1.0, 1.0]),
        (1, vector(1.0, 0.1), [7 / 9, 11 / 9]),
        (2, vector(1.0, 1.0), second),
    ):
        weighting.combine(linear(theta, [3.0, 0.0], [0.0, 1.0]), [theta], step)
        assert list(weighting.current.values()) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("log_space", [False, True])
def test_gradnorm_with_a_term_that_is_missing_at_some_steps(log_space):
    terms, w = [Term(name) for name in "abc"], torch.ones(3, requires_grad=True)
    weighting = GradNorm(terms, rate=0.1, log_space=log_space)
    for step in range(6):
        values = {name: (10.0**i * w[i]) ** 2 for i, name in enumerate("abc") if step % 2 == 0 or name != "a"}
        weighting.combine(values, [w], step)
    assert sum(weighting.upcoming.values()) == pytest.approx(3.0)


def test_gradnorm_in_log_space_and_its_floor():
    theta = vector(1.0, 1.0)
    weighting = GradNorm([A, B], rate=0.1, log_space=True)
    for step in (0, 1):  # G/Ḡ = (1.5, 0.5), signs +, −
        weighting.combine(linear(theta, [3.0, 0.0], [0.0, 1.0]), [theta], step)
    total = E**-0.15 + E**0.05
    assert list(weighting.current.values()) == pytest.approx([2 * E**-0.15 / total, 2 * E**0.05 / total], rel=1e-14)
    weighting = GradNorm([A, B], rate=1.0)
    for step in (0, 1):  # 1 − 3 < 0 becomes 0.001, 1 + 1 = 2
        weighting.combine(linear(theta, [3.0, 0.0], [0.0, 1.0]), [theta], step)
    assert list(weighting.current.values()) == pytest.approx([0.002 / 2.001, 4 / 2.001], rel=1e-14)


@pytest.mark.parametrize(
    ("s", "total", "slope"),
    [
        ((0.0, 0.0), 0.5 * 4 + 0.5 * 0.5, (-1.5, 0.25)),
        ((math.log(4), math.log(0.5)), 1 + 0.5 * math.log(4) + 0.5 * math.log(0.5), (0.0, 0.0)),  # e^s = L
    ],
)
def test_uncertainty(s, total, slope):
    weighting = Uncertainty([A, B])
    weighting.to(dtype=torch.float64)
    weighting.log_variances.data = torch.tensor(s, dtype=torch.float64)
    value = weighting.combine(scalars(4.0, 0.5), [], 0)
    value.backward()
    assert value.item() == pytest.approx(total, rel=1e-15)
    assert weighting.parameters()[0].grad.tolist() == pytest.approx(slope, abs=1e-15)
    assert weighting.current == pytest.approx({"a": 0.5 * math.exp(-s[0]), "b": 0.5 * math.exp(-s[1])})


def test_uncertainty_is_learnt_to_the_size_of_the_losses():
    weighting = Uncertainty([A, Term("b", 30.0)])
    optimizer = torch.optim.LBFGS(weighting.parameters(), max_iter=100)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = weighting.combine(scalars(4.0, 0.25), [], 0)
        loss.backward()
        return loss

    optimizer.step(closure)
    assert weighting.log_variances.exp().tolist() == pytest.approx([4.0, 0.25], rel=1e-3)


JACOBIAN = {"a": [[1.0, 1.0], [0.0, 2.0], [1.0, -1.0]], "b": [[3.0, 4.0]]}  # traces 2 + 4 + 2 = 8 and 25


def residuals(theta: Tensor) -> dict[str, Tensor]:
    return {name: torch.tensor(rows, dtype=torch.float64) @ theta for name, rows in JACOBIAN.items()}


def test_ntk_with_exact_traces():
    theta = vector(1.0, 2.0)
    r = residuals(theta)
    values = {name: residual.square().mean() for name, residual in r.items()}
    weighting = NTK([A, Term("b", 2.0)], probes=None)
    total = weighting.combine(values, [theta], 0, r)
    assert weighting.current == pytest.approx({"a": 33 / 8, "b": 2 * 33 / 25}, rel=1e-14)
    # r = (3, 4, −1) and 11: mean squares 26/3 and 121
    assert total.item() == pytest.approx(33 / 8 * 26 / 3 + 2 * 33 / 25 * 121, rel=1e-14)


def test_ntk_with_random_probes_and_its_interval():
    theta, signs = vector(1.0, 2.0), torch.Generator().manual_seed(5)
    r = residuals(theta)
    weighting = NTK([A, B], every=10, probes=4, seed=5)
    traces = {}
    for name, rows in JACOBIAN.items():
        v = 2.0 * torch.randint(0, 2, (4, len(rows)), generator=signs).double() - 1
        traces[name] = ((v @ torch.tensor(rows, dtype=torch.float64)) ** 2).sum().item() / 4
    values = {name: residual.square().mean() for name, residual in r.items()}
    weighting.combine(values, [theta], 0, r)
    first = {name: sum(traces.values()) / trace for name, trace in traces.items()}
    assert weighting.current == pytest.approx(first, rel=1e-14)
    for step in range(1, 10):
        weighting.combine(values, [theta], step)  # no residuals needed between renewals
        assert weighting.current == pytest.approx(first, rel=1e-14)
    weighting.combine(values, [theta], 10, r)
    assert weighting.current["a"] != pytest.approx(first["a"], rel=1e-6)


def config(theta: Tensor, *gradients: list[float], terms: tuple[Term, ...] = (A, B, C)) -> tuple[Tensor, ConFIG]:
    weighting = ConFIG(terms[: len(gradients)])
    loss = weighting.combine(linear(theta, *gradients), [theta], 0)
    return torch.autograd.grad(loss, theta)[0], weighting


def test_config_by_hand():
    # g = (2, 0) and (−3, 4), units (1, 0) and (−0.6, 0.8). Mv = (1, 1) gives v = (1, 2), |v|² = 5.
    # Length (2 + 5)/√5, so g = 7/5 (1, 2) = 1.75 (2, 0) + 0.7 (−3, 4).
    direction, weighting = config(vector(1.0, 1.0), [2.0, 0.0], [-3.0, 4.0])
    assert direction.tolist() == pytest.approx([1.4, 2.8], rel=1e-13)
    assert weighting.current == pytest.approx({"a": 1.75, "b": 0.7}, rel=1e-13)
    # Weights 3 and 1: v = (3, 3.5), |v|² = 21.25, length (6 + 5)/|v|.
    direction, _ = config(vector(1.0, 1.0), [2.0, 0.0], [-3.0, 4.0], terms=(Term("a", 3.0), B))
    assert direction.tolist() == pytest.approx([11 / 21.25 * 3, 11 / 21.25 * 3.5], rel=1e-13)


def test_config_of_two_losses_is_the_closed_form():
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.normal(size=(2, 7)) * [[1.0], [100.0]]
        sides = [b - (a @ b) / (a @ a) * a, a - (a @ b) / (b @ b) * b]
        unit = sum(side / np.linalg.norm(side) for side in sides)
        unit /= np.linalg.norm(unit)
        direction, _ = config(vector(*rng.normal(size=7)), a.tolist(), b.tolist())
        np.testing.assert_allclose(direction, (a @ unit + b @ unit) * unit, rtol=1e-10, atol=1e-12)


def test_config_of_three_losses_is_the_pseudo_inverse_and_conflicts_with_none():
    rng = np.random.default_rng(1)
    for _ in range(20):
        g = rng.normal(size=(3, 9)) * [[1.0], [1e-3], [1e3]]
        unit = g / np.linalg.norm(g, axis=1, keepdims=True)
        v = np.linalg.pinv(unit) @ np.ones(3)
        v /= np.linalg.norm(v)
        direction, weighting = config(vector(*rng.normal(size=9)), *g.tolist())
        np.testing.assert_allclose(direction, (g @ v).sum() * v, rtol=1e-9)
        np.testing.assert_allclose(list(weighting.current.values()) @ g, direction, rtol=1e-9, atol=1e-9)
        projections = unit @ direction.numpy()
        np.testing.assert_allclose(projections, projections[0], rtol=1e-9)
        assert projections[0] > 0


@pytest.mark.parametrize(
    ("gradients", "direction"),
    [
        (([1.0, 0.0], [3.0, 0.0]), [4.0, 0.0]),  # parallel: the sum
        (([1.0, 0.0], [-3.0, 0.0]), [0.0, 0.0]),  # opposed: no step can lower both
        (([1.0, 2.0], [0.0, 0.0]), [1.0, 2.0]),  # nothing to learn in b
        (([5.0, -1.0],), [5.0, -1.0]),  # one loss: its gradient
    ],
)
def test_config_in_degenerate_cases(gradients, direction):
    assert config(vector(1.0, 1.0), *gradients)[0].tolist() == pytest.approx(direction, abs=1e-12)


def problem(dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Callable[[], tuple[dict, dict]]]:
    """An MLP fitted to the values and the derivative of sin 2x: two conflicting terms."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).to(dtype)
    x = torch.linspace(-1, 1, 24, dtype=dtype)[:, None]

    def evaluate() -> tuple[dict, dict]:
        points = x.clone().requires_grad_()
        u = network(points)
        slope = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
        r = {"a": u - torch.sin(2 * x), "b": slope - 2 * torch.cos(2 * x)}
        return {name: term.value(r[name]) for name, term in (("a", A), ("b", B))}, r

    return network, evaluate


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_is_that_of_the_current_weights_and_the_state_resumes_exactly(name):
    network, evaluate = problem()
    parameters = list(network.parameters())
    terms = [Term("a", 2.0), Term("b", Schedule.linear(0.5, 1.5, steps=8))]

    def start() -> Weighting:
        weighting = get(name, terms, **({"every": 3} if name == "ntk" else {"rho": 0.5} if name == "relobralo" else {}))
        weighting.to(dtype=torch.float64)
        return weighting

    def walk(weighting: Weighting, steps: range) -> list[dict[str, float]]:
        seen = []
        for step in steps:
            with torch.no_grad():  # a fixed path through the parameters, whatever the weights
                for k, parameter in enumerate(parameters):
                    parameter.copy_(torch.sin(torch.arange(parameter.numel()) + k + step).view_as(parameter))
                for own in weighting.parameters():
                    own.add_(0.1 * step)
            values, r = evaluate()
            loss = weighting.combine(values, parameters, step, r)
            found = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
            for n, parameter in enumerate(parameters):
                parts = [
                    torch.autograd.grad(v, parameter, retain_graph=True, materialize_grads=True)[0]
                    for v in values.values()
                ]
                expected = sum(w * g for w, g in zip(weighting.current.values(), parts, strict=True))
                torch.testing.assert_close(found[n], expected, rtol=1e-9, atol=1e-9)
            again = dict(weighting.current)
            weighting.combine(values, parameters, step, r)  # as a line search does
            assert weighting.current == again
            seen.append(again)
        return seen

    whole = walk(start(), range(14))
    first, second = start(), start()
    head, buffer = walk(first, range(7)), io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    assert head + walk(second, range(7, 14)) == whole


@pytest.mark.parametrize("name", NAMES)
def test_every_weighting_trains_both_terms(name):
    network, evaluate = problem(torch.float32)
    weighting = get(name, [A, B])
    parameters = list(network.parameters())
    optimizer = torch.optim.Adam([*parameters, *weighting.parameters()], lr=0.02)
    start = {name: value.item() for name, value in evaluate()[0].items()}
    for step in range(300):
        values, r = evaluate()
        optimizer.zero_grad()
        weighting.combine(values, parameters, step, r).backward()
        optimizer.step()
    end = {name: value.item() for name, value in evaluate()[0].items()}
    assert all(end[name] < 0.05 * start[name] for name in start), (start, end)


@pytest.mark.parametrize("name", NAMES)
def test_a_term_of_weight_zero_is_left_out_until_its_schedule_starts(name):
    theta = vector(1.0, 2.0)
    weighting = get(name, [A, Term("b", Schedule.piecewise({0: 0.0, 2: 1.0}))])
    for step in range(4):
        r = residuals(theta)
        values = {
            "a": r["a"].square().mean(),
            "b": r["b"].square().mean() if step >= 2 else torch.tensor(math.nan),
        }
        loss = weighting.combine(values, [theta], step, r)
        assert torch.isfinite(loss)
        assert (weighting.current["b"] == 0) == (step < 2)
        assert torch.autograd.grad(loss, theta)[0].isfinite().all()


def test_a_parameter_that_a_term_does_not_use_gets_a_zero_gradient():
    used, unused = vector(1.0), vector(5.0, 6.0)
    weighting = ConFIG([A])
    weighting.combine({"a": (2 * used).sum()}, [unused, used], 0).backward()
    assert unused.grad.tolist() == [0.0, 0.0]
    assert used.grad.tolist() == [2.0]


def state(weighting: Weighting) -> dict:
    return weighting.state_dict()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get("softadap", [A]), "unknown weighting 'softadap'; did you mean 'softadapt'"),
        (
            lambda: get("relobralo", [A], temprature=1),
            "option of the weighting relobralo 'temprature'; did you",
        ),
        (lambda: Fixed([A, A]), r"terms of different names, not \['a', 'a'\]"),
        (lambda: Fixed([]), "needs terms"),
        (lambda: Fixed([A]).combine(scalars(1.0, 2.0), [], 0), "unknown term 'b'"),
        (lambda: Fixed([Term("a", 0.0)]).combine(scalars(1.0), [], 7), "no term has a weight at step 7"),
        (
            lambda: Fixed([A]).load_state_dict(state(Fixed([A, B]))),
            r"Fixed on \['a', 'b'\], but this is Fixed",
        ),
        (lambda: Fixed([A]).load_state_dict(state(SoftAdapt([A]))), "state is of SoftAdapt"),
        (lambda: NTK([A]).combine(scalars(1.0), [vector(1.0)], 0), "NTK weighting needs the residual"),
        (lambda: NTK([A], probes=0), "probes are at least 1"),
        (lambda: SoftAdapt([A], every=0), "every is a number of steps"),
        (lambda: ReLoBRaLo([A], alpha=2.0), "alpha=2.0"),
        (lambda: GradNorm([A]).combine(scalars(1.0), [vector(1.0)], 0), "term 'a' does not depend on the"),
        (lambda: ConFIG([A]).combine(scalars(1.0), [torch.ones(2)], 0), "none of the given parameters"),
    ],
)
def test_wrong_input_is_explained(call, message):
    with pytest.raises(InputError, match=message):
        call()
