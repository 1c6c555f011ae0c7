"""SOAP: Adam where the basis is the identity, invariant under rotations, faster on ill-conditioned matrices."""

import copy

import pytest
import torch

from dcnn.train.soap import SOAP


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def minimise(optimizer, parameter, loss, steps):
    for _ in range(steps):

        def closure():
            optimizer.zero_grad()
            value = loss(parameter)
            value.backward()
            return value

        optimizer.step(closure)
    return loss(parameter).item()


def test_vectors_follow_adam():
    start = torch.randn(5, dtype=torch.float64)
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    soap = SOAP([ours], lr=0.01, betas=(0.9, 0.99))
    minimise(soap, ours, lambda p: p.pow(4).sum(), 1)  # the first gradient only sets up
    minimise(soap, ours, lambda p: p.pow(4).sum(), 20)
    minimise(torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.99)), theirs, lambda p: p.pow(4).sum(), 20)
    assert torch.allclose(ours, theirs, rtol=1e-10)


def test_a_rotation_of_the_weights_rotates_the_path():
    a = torch.randn(4, 4, dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    curvature = torch.diag(torch.logspace(0, 1, 4, dtype=torch.float64))
    plain, turned = a.clone().requires_grad_(), (q @ a).clone().requires_grad_()
    minimise(SOAP([plain], lr=0.01, frequency=100), plain, lambda w: (curvature @ w).square().sum(), 30)
    minimise(SOAP([turned], lr=0.01, frequency=100), turned, lambda w: (curvature @ q.T @ w).square().sum(), 30)
    # In its own eigenbasis the first gradient is diagonal; what rounding leaves beside it is divided by eps = 1e-8.
    assert float((q @ plain - turned).detach().abs().max()) < 1e-5


@pytest.mark.parametrize("shape", [(8, 3), (8, 8)])
def test_an_ill_conditioned_matrix_is_fitted_better_than_by_adam(shape):
    n, m = shape
    q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64)).Q
    curvature = q @ torch.diag(torch.logspace(-2, 1, n, dtype=torch.float64)) @ q.T
    target = torch.randn(n, m, dtype=torch.float64)

    def loss(w):
        return (curvature @ (w - target)).square().sum()

    def best(make):
        ends = []
        for lr in (0.1, 0.03, 0.01, 0.003):
            w = torch.zeros(n, m, dtype=torch.float64, requires_grad=True)
            ends.append(minimise(make([w], lr=lr), w, loss, 300))
        return min(ends)

    assert best(SOAP) < 0.5 * best(torch.optim.Adam)


def test_a_side_that_is_too_long_keeps_its_basis():
    w = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    soap = SOAP([w], largest=4)
    minimise(soap, w, lambda w: w.square().sum(), 12)
    assert soap.state[w]["bases"][0] is None
    assert soap.state[w]["bases"][1].shape == (3, 3)


def weights():
    shapes = [(4, 3), (3,), (4, 3), (2, 3, 3), (5, 4), (1, 3), (4, 3)]
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def descend(optimizers, weights, steps, without=()):
    """`without`: (step, number of a weight that has no gradient then)."""
    for step in range(steps):
        for number, w in enumerate(weights):
            curvature = torch.linspace(1, 9, w.numel(), dtype=torch.float64).view_as(w)
            w.grad = None if (step, number) in without else (curvature * w + 0.1 * w.roll(1)).detach()
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("without", [(), [(0, 2), (7, 0), (7, 1), (8, 4)]], ids=["all move", "some stay"])
def test_weights_that_are_stacked_move_as_they_would_alone(without):
    together, alone = weights(), weights()
    descend([SOAP(together, lr=0.01, frequency=5, weight_decay=0.1)], together, 25, without)
    descend([SOAP([w], lr=0.01, frequency=5, weight_decay=0.1) for w in alone], alone, 25, without)
    for w, v in zip(together, alone, strict=True):
        torch.testing.assert_close(w, v, rtol=1e-9, atol=1e-12)


def test_a_checkpoint_knows_nothing_of_stacks():
    whole, parts = weights(), weights()
    descend([SOAP(whole, lr=0.01)], whole, 43)
    first = SOAP(parts, lr=0.01)
    descend([first], parts, 21)
    state = copy.deepcopy(first.state_dict())
    shapes = [tuple(state["state"][number]["mean"].shape) for number in range(len(parts))]
    assert shapes == [tuple(w.shape) for w in parts]
    second = SOAP(parts, lr=0.01)
    second.load_state_dict(state)
    descend([second], parts, 11)
    descend([copy.deepcopy(second, {id(w): w for w in parts})], parts, 11)
    assert all(torch.equal(w, v) for w, v in zip(whole, parts, strict=True))


def test_the_state_survives_a_checkpoint():
    def run(steps, w, optimizer):
        return minimise(
            optimizer, w, lambda w: (w**2 * torch.arange(1, 13, dtype=torch.float64).view(4, 3)).sum(), steps
        )

    w = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    whole = SOAP([w], lr=0.01)
    run(25, w, whole)
    v = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    first = SOAP([v], lr=0.01)
    run(13, v, first)
    second = SOAP([v], lr=0.01)
    second.load_state_dict(first.state_dict())
    run(12, v, second)
    assert torch.equal(w, v)
