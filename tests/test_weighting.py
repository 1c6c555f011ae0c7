"""Every weighting against the formula of its paper, on numbers worked out by hand."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.losses import Fixed, Schedule, Term, Uncertainty, Weighting
from dcnn.losses.weighting import NAMES, get

A, B = Term("a"), Term("b")


def scalars(*numbers: float) -> dict[str, Tensor]:
    return {name: torch.tensor(v, dtype=torch.float64) for name, v in zip("abc", numbers, strict=False)}


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def test_fixed_and_scheduled_weights():
    weighting = Fixed([Term("a", 2.0), Term("b", Schedule.linear(0.0, 10.0, steps=10))])
    assert weighting.combine(scalars(3.0, 5.0), [], 4).item() == 2 * 3 + 4 * 5
    assert weighting.current == {"a": 2.0, "b": 4.0}
    report = {name: value.item() for name, value in weighting.report(scalars(3.0, 5.0)).items()}
    assert report == {"a_raw": 3.0, "b_raw": 5.0, "a_weighted": 6.0, "b_weighted": 20.0}


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
        weighting = get(name, terms)
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
        later = theta.square().sum() if step >= 2 else torch.tensor(math.nan)
        loss = weighting.combine({"a": theta.square().sum(), "b": later}, [theta], step)
        assert torch.isfinite(loss)
        assert (weighting.current["b"] == 0) == (step < 2)
        assert torch.autograd.grad(loss, theta)[0].isfinite().all()


def state(weighting: Weighting) -> dict:
    return weighting.state_dict()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get("uncertain", [A]), "unknown weighting 'uncertain'; did you mean 'uncertainty'"),
        (lambda: get("uncertainty", [A], initail=1), "option of the weighting uncertainty 'initail'; did you"),
        (lambda: Fixed([A, A]), r"terms of different names, not \['a', 'a'\]"),
        (lambda: Fixed([]), "needs terms"),
        (lambda: Fixed([A]).combine(scalars(1.0, 2.0), [], 0), "unknown term 'b'"),
        (lambda: Fixed([Term("a", 0.0)]).combine(scalars(1.0), [], 7), "no term has a weight at step 7"),
        (
            lambda: Fixed([A]).load_state_dict(state(Fixed([A, B]))),
            r"Fixed on \['a', 'b'\], but this is Fixed",
        ),
        (lambda: Fixed([A]).load_state_dict(state(Uncertainty([A]))), "state is of Uncertainty"),
    ],
)
def test_wrong_input_is_explained(call, message):
    with pytest.raises(InputError, match=message):
        call()
