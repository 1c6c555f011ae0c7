"""L-BFGS with guards: new points between steps, and a way back from weights that are not finite."""

import math

import torch

from dcnn.train.lbfgs import LBFGS


def closure_for(optimizer, weights, value):
    def closure():
        optimizer.zero_grad()
        loss = value(weights)
        loss.backward()
        return loss

    return closure


def test_a_quadratic_is_solved_although_its_minimum_moves_between_steps():
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.zeros(8, dtype=torch.float64))
    scale = torch.logspace(0, 3, 8, dtype=torch.float64)
    optimizer = LBFGS(
        [weights], lr=1.0, max_iter=80, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe"
    )
    for _ in range(4):
        target = torch.randn(8, dtype=torch.float64)
        optimizer.step(closure_for(optimizer, weights, lambda w, t=target: (scale * (w - t) ** 2).sum()))
        torch.testing.assert_close(weights.detach(), target, atol=1e-5, rtol=0)


def test_no_curvature_is_taken_from_gradients_on_different_points():
    weights = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = LBFGS(
        [weights], lr=1.0, max_iter=3, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe"
    )
    stiff = torch.tensor([1.0, 3.0], dtype=torch.float64)
    optimizer.step(closure_for(optimizer, weights, lambda w: (stiff * w**2).sum()))
    optimizer.step(closure_for(optimizer, weights, lambda w: (stiff * (w - 100.0) ** 2).sum()))
    state = optimizer.state[weights]
    curvature = [float(y @ s / (s @ s)) for y, s in zip(state["old_dirs"], state["old_stps"], strict=True)]
    assert all(2.0 - 1e-6 <= c <= 6.0 + 1e-6 for c in curvature)  # of the quadratic itself: 2 and 6


def test_a_step_into_nothing_is_taken_back(monkeypatch):
    weights = torch.nn.Parameter(torch.tensor([9.0], dtype=torch.float64))
    optimizer = LBFGS([weights], lr=1.0, max_iter=2, line_search_fn="strong_wolfe")
    closure = closure_for(optimizer, weights, lambda w: torch.cosh(w - 0.3).sum())
    optimizer.step(closure)
    before = weights.detach().clone()

    def overflow(self, closure):
        weights.data.fill_(math.nan)
        return closure()

    monkeypatch.setattr(torch.optim.LBFGS, "step", overflow)
    loss = optimizer.step(closure)
    assert torch.equal(weights.detach(), before)
    assert math.isfinite(loss.item())
    assert not optimizer.state[weights]  # the curvature of the steps before is not trusted any more
    monkeypatch.undo()
    assert optimizer.step(closure).item() == loss.item()
    assert (weights - 0.3).abs().item() < (before - 0.3).abs().item()
