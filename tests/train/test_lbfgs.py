"""L-BFGS on points that change between its steps."""

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
    optimizer = LBFGS([weights], lr=1.0, iterations=80)
    for _ in range(4):
        target = torch.randn(8, dtype=torch.float64)
        optimizer.step(closure_for(optimizer, weights, lambda w, t=target: (scale * (w - t) ** 2).sum()))
        torch.testing.assert_close(weights.detach(), target, atol=1e-5, rtol=0)


def test_no_curvature_is_taken_from_gradients_on_different_points():
    weights = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = LBFGS([weights], lr=1.0, iterations=3)
    stiff = torch.tensor([1.0, 3.0], dtype=torch.float64)
    optimizer.step(closure_for(optimizer, weights, lambda w: (stiff * w**2).sum()))
    optimizer.step(closure_for(optimizer, weights, lambda w: (stiff * (w - 100.0) ** 2).sum()))
    state = optimizer.state[weights]
    curvature = [float(y @ s / (s @ s)) for y, s in zip(state["y"], state["s"], strict=True)]
    assert all(2.0 - 1e-6 <= c <= 6.0 + 1e-6 for c in curvature)  # of the quadratic itself: 2 and 6
