"""Initial data spread by diffusion alone, against the heat equation they solve."""

import numpy as np
import pytest
import torch

from dcnn.derivatives import partials
from dcnn.pde.diffused_field import DiffusedField, linear_response
from dcnn.pde.problems._grids import cell_centres
from dcnn.pde.problems.diffusion_reaction import DiffusionReaction

START = np.random.default_rng(0).normal(size=(6, 10))
RANGES = ((-1.0, 1.0), (0.0, 3.0))


def columns(points):
    return points[:, 0], points[:, 1], points[:, 2]


def test_it_starts_from_the_cells():
    x, y = (low + (high - low) * (np.arange(n) + 0.5) / n for (low, high), n in zip(RANGES, START.shape, strict=True))
    grid = torch.as_tensor(np.stack([a.ravel() for a in np.meshgrid(x, y, [0.0], indexing="ij")], 1))
    found = DiffusedField(START, 0.3, *RANGES)(*columns(grid))
    np.testing.assert_allclose(found.numpy().reshape(START.shape), START, atol=1e-12)


def test_it_solves_the_heat_equation_between_walls():
    spread = DiffusedField(START, 0.03, *RANGES)
    random = torch.rand(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points = random * torch.tensor([2.0, 3.0, 1.0]) + torch.tensor([-1.0, 0.0, 0.1])
    found = partials(lambda p: spread(*columns(p))[:, None], points, ["t", "xx", "yy"], ("x", "y", "t"))
    torch.testing.assert_close(found["t"], 0.03 * (found["xx"] + found["yy"]), rtol=1e-9, atol=1e-9)
    points[:, 0] = 1.0
    slope = partials(lambda p: spread(*columns(p))[:, None], points, ["x"], ("x", "y", "t"))["x"]
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-12, rtol=0)


def test_its_derivatives_in_closed_form_are_those_of_autograd():
    spread = DiffusedField(START, 0.03, *RANGES)
    points = torch.rand(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    letters = ["", "x", "y", "t", "xx", "xy", "yt", "tt", "xxt", "yyy"]
    expected = partials(lambda p: spread(*columns(p))[:, None], points, letters, ("x", "y", "t"), mode="nested")
    found = spread.partials(*columns(points), letters)
    for word in letters:
        torch.testing.assert_close(found[word], expected[word][:, 0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("early", [0.0, 2.0, 50.0])
def test_waves_that_are_gone_are_left_out_without_a_trace(early):
    spread = DiffusedField(START, 0.5, *RANGES)
    late = torch.tensor([[0.3, 1.1, 60.0], [-0.5, 2.0, 60.0]], dtype=torch.float64)
    both = torch.cat([late, torch.tensor([[0.0, 0.0, early]], dtype=torch.float64)])
    torch.testing.assert_close(spread(*columns(both))[:2], spread(*columns(late)), atol=1e-15, rtol=0)


def test_diffusion_reaction_knows_its_fields_under_three_coefficients():
    problem = DiffusionReaction(resolution=8, initial="smooth")
    x = torch.as_tensor(cell_centres(problem, "x", 8))
    points = torch.cartesian_prod(x, x, torch.zeros(1, dtype=torch.float64))
    start = problem.start().fields
    for name, feature in problem.features().items():
        np.testing.assert_allclose(feature(*columns(points)).numpy(), start[name[0]].ravel(), atol=1e-12)
    assert sorted({f.diffusion for f in problem.spread.values()}) == pytest.approx([1e-3, np.sqrt(5e-6), 5e-3])
    assert problem.hard_constraints()["v"].lift.diffusion == 5e-3


def test_a_linear_reaction_is_a_sum_of_diffused_fields():
    reaction, diffusion = np.array([[1.0, -1.0], [1.0, -1.0]]), (1e-3, 5e-3)
    D, c = linear_response(reaction, diffusion, 5.0)
    for t, k2 in ((0.0, 300.0), (0.1, 5000.0), (1.0, 0.0), (2.0, 400.0), (5.0, 50.0)):
        exact = torch.matrix_exp(torch.as_tensor(t * (reaction - k2 * np.diag(diffusion)))).numpy()
        found = sum(c[m] @ t ** np.arange(5) * np.exp(-D[m] * k2 * t) for m in range(4))
        np.testing.assert_allclose(found, exact, atol=0.02 * np.abs(exact).max() if t else 1e-15)


def test_noise_evolves_linearly_from_its_values_and_is_close_to_the_solution_when_it_is_smooth():
    problem = DiffusionReaction(resolution=48, D_u=8e-3, D_v=4e-2)
    known = problem.solution()
    for n, most in ((0, 1e-12), (10, 0.12)):  # t = 0 and 0.5
        here = known.at("t", slice(n, n + 1))
        for field, lift in problem.evolved.items():
            found = lift(*torch.as_tensor(here.points()).unbind(1)).numpy()
            error = found - here.fields[field].ravel()
            assert np.linalg.norm(error) <= most * np.linalg.norm(here.fields[field]), (field, n)


def test_derivatives_of_a_linear_evolution_are_those_of_autograd():
    lift = DiffusionReaction(resolution=8).evolved["u"]
    points = torch.rand(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    letters = ["", "x", "t", "xx", "yt", "tt"]
    expected = partials(lambda p: lift(*columns(p))[:, None], points, letters, ("x", "y", "t"), mode="nested")
    found = lift.partials(*columns(points), letters)
    for word in letters:
        torch.testing.assert_close(found[word], expected[word][:, 0], rtol=1e-9, atol=1e-9)
