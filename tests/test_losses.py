"""Terms and schedules against their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from dcnn.errors import InputError
from dcnn.losses import Schedule, Term, term_values
from dcnn.losses.terms import NORMS

R = torch.tensor([[0.5, -2.0], [0.0, 3.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("term", "value"),
    [
        (Term("a", norm="l1"), (0.5 + 2 + 0 + 3) / 4),
        (Term("a", norm="l2"), (0.25 + 4 + 0 + 9) / 4),
        (Term("a", norm="length"), (4.25**0.5 + 3) / 2),
        (Term("a", norm="huber"), (0.125 + 1.5 + 0 + 2.5) / 4),
        (Term("a", norm="huber", delta=2.5), (0.125 + 2 + 0 + 2.5 * (3 - 1.25)) / 4),
    ],
)
def test_value_is_the_mean_of_the_norm(term, value):
    assert term.value(R).item() == pytest.approx(value, rel=1e-15)
    assert term.value(R).shape == ()


@pytest.mark.parametrize("norm", NORMS)
def test_gradients_of_the_norms(norm):
    residual = torch.tensor([0.3, -0.7, 1.4, -2.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Term("a", norm=norm).value, residual)
    assert torch.autograd.gradgradcheck(Term("a", norm=norm).value, residual)


def test_length_of_numbers_is_l1_and_of_vectors_turns_with_them():
    length, turned = Term("a", norm="length"), torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    assert length.value(R.flatten()) == Term("a", norm="l1").value(R)
    torch.testing.assert_close(length.value(R @ turned), length.value(R))
    vectors = torch.tensor([[0.3, -0.7], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(length.value(vectors), vectors)
    assert gradient[1].tolist() == [0.0, 0.0], "a label that is missing has a residual of zero"
    assert torch.autograd.gradgradcheck(lambda x: length.value(x[:1]), vectors)


LINEAR = Schedule(((10, 2.0), (20, 4.0), (30, 0.0)))
COSINE = Schedule.cosine(1.0, 3.0, steps=100, begin=50)
STEPS = Schedule.piecewise({100: 30.0, 0: 1.0})


@pytest.mark.parametrize(
    ("schedule", "step", "weight"),
    [
        (Schedule.constant(7.0), 0, 7.0),
        (Schedule.constant(7.0), 10**9, 7.0),
        (LINEAR, 0, 2.0),
        (LINEAR, 10, 2.0),
        (LINEAR, 15, 3.0),
        (LINEAR, 20, 4.0),
        (LINEAR, 27, 1.2),
        (LINEAR, 99, 0.0),
        (Schedule.linear(0.0, 1.0, steps=4), 3, 0.75),
        (COSINE, 50, 1.0),
        (COSINE, 75, 1 + (1 - math.cos(math.pi / 4))),
        (COSINE, 100, 2.0),
        (COSINE, 150, 3.0),
        (STEPS, 99, 1.0),
        (STEPS, 100, 30.0),
    ],
)
def test_schedules(schedule, step, weight):
    assert schedule(step) == pytest.approx(weight, rel=1e-15)
    assert Term("a", schedule).weight_at(step) == schedule(step)


def test_term_values_of_the_residuals_that_are_there():
    terms = (Term("energy"), Term("forces", norm="l1"), Term("stress"))
    values = term_values(terms, {"forces": -R, "energy": R[0]})
    assert {name: value.item() for name, value in values.items()} == {"forces": 1.375, "energy": 2.125}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Term("a", norm="l3"), "unknown norm 'l3'; did you mean"),
        (lambda: Term("a", weight=-1.0), "term 'a': a weight is finite and not negative, not -1.0"),
        (lambda: Term("a", weight=math.nan), "not nan"),
        (lambda: Term("a", norm="huber", delta=0.0), "delta > 0, not 0.0"),
        (lambda: Term("a").value(torch.ones(0, 3)), "term 'a' has an empty residual"),
        (lambda: term_values([Term("force")], {"forces": R}), "unknown term 'forces'; did you mean 'force'"),
        (lambda: Schedule(((0, 1.0),), "lineal"), "did you mean 'linear'"),
        (lambda: Schedule(()), "one or more points"),
        (lambda: Schedule(((5, 1.0), (5, 2.0))), r"increasing steps, not at \[5, 5\]"),
        (lambda: Schedule.constant(-2.0), "finite and not negative"),
    ],
)
def test_wrong_input_is_explained(call, message):
    with pytest.raises(InputError, match=message):
        call()
