"""Shapes: distances, surfaces and normals against closed forms; composed shapes against what they are composed of."""

import math

import pytest
import torch

from dcnn.errors import InputError
from dcnn.pde import Collocation, problems
from dcnn.pde.geometry import Ball, Box, Extrusion, Polygon
from dcnn.pde.points import draw
from dcnn.pde.sampling import generator
from dcnn.report import write_page
from dcnn.results import fit_config

L_SHAPE = Polygon([(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)])
SHAPES = {
    "interval": (Box([1.0], [3.0]), 2.0, 2.0),
    "rectangle": (Box([0, 0], [2, 1]), 2.0, 6.0),
    "cuboid": (Box([0, 0, 0], [1, 2, 3]), 6.0, 22.0),
    "disc": (Ball([1, 1], 0.5), math.pi / 4, math.pi),
    "ball": (Ball([0, 0, 0], 2.0), 32 * math.pi / 3, 16 * math.pi),
    "polygon": (L_SHAPE, 3.0, 8.0),
    "clockwise": (Polygon([(0, 0), (0, 1), (1, 0)]), 0.5, 2 + math.sqrt(2)),
    "prism": (Extrusion(L_SHAPE, -1, 1), 6.0, 22.0),
    "union": (Box([0, 0], [2, 1]) | Box([0, 0], [1, 2]), 3.0, 8.0),
    "annulus": (Ball([0, 0], 1.0) - Ball([0, 0], 0.5), 0.75 * math.pi, 3 * math.pi),
    "intersection": (Box([0, 0], [1, 1]) & Ball([0, 0], 1.0), math.pi / 4, 2 + math.pi / 2),
    "drilled": (Box([-1, -1, 0], [1, 1, 1]) - Extrusion(Ball([0, 0], 0.5), -1, 2), 4 - math.pi / 4, None),
    "ring": (Extrusion(Ball([0, 0], 1.0) - Ball([0, 0], 0.5), 0, 1), 0.75 * math.pi, 4.5 * math.pi),
}


def samples(n, d, seed=0):
    return torch.quasirandom.SobolEngine(d, scramble=True, seed=seed).draw(n, dtype=torch.float64)


@pytest.mark.parametrize("name", SHAPES)
def test_volume_area_distance_and_normals(name):
    shape, volume, area = SHAPES[name]
    low, high = shape.bounds()
    unit = samples(8192, len(low))
    inside = shape.distance(low + (high - low) * unit) < 0
    assert float(inside.double().mean() * (high - low).prod()) == pytest.approx(volume, rel=0.02)

    points, piece = shape.surface(unit)
    if area is not None:  # what is kept of the surfaces of all solids
        assert len(points) / len(unit) * shape.area == pytest.approx(area, rel=0.02)
    assert float(shape.distance(points).abs().max()) < 1e-12
    assert {*piece.tolist()} <= {*range(len(shape.names))}
    normals, step = shape.normals(points), 1e-4
    torch.testing.assert_close(normals.norm(dim=1), torch.ones(len(points), dtype=torch.float64))
    out, into = shape.distance(points + step * normals), shape.distance(points - step * normals)
    away = (out > 0) & (into < 0)  # all but those next to an edge or a corner
    assert float(away.double().mean()) > 0.99
    torch.testing.assert_close(out[away], torch.full_like(out[away], step), rtol=1e-6, atol=0)


def test_distances_are_exact_outside_corners_and_differentiable_on_the_surface():
    box = Box([0.0, 0.0], [1.0, 1.0])
    points = torch.tensor([[4.0, 5.0], [0.5, 0.25], [0.5, 1.0]], requires_grad=True)
    found = box.distance(points)
    torch.testing.assert_close(found.detach(), torch.tensor([5.0, -0.25, 0.0]))
    (slope,) = torch.autograd.grad(found.sum(), points)
    torch.testing.assert_close(slope, torch.tensor([[0.6, 0.8], [0.0, -1.0], [0.0, 1.0]]))
    torch.testing.assert_close(L_SHAPE.distance(torch.tensor([[1.5, 1.5], [0.5, 0.5]])), torch.tensor([0.5, -0.5]))


def test_pieces_have_names():
    channel = Box([0, 0], [4, 1], name="channel") - Ball([1, 0.5], 0.2, name="cylinder")
    unit = samples(512, 2)
    torch.testing.assert_close(channel.on(["x-"], unit)[:, 0], torch.zeros(len(channel.on(["x-"], unit))).double())
    around = channel.on(["cylinder"], unit)
    torch.testing.assert_close((around - torch.tensor([1, 0.5])).norm(dim=1), torch.full((len(around),), 0.2).double())
    walls = channel.on(["channel.y-", "y+"], unit)
    assert {*walls[:, 1].tolist()} == {0.0, 1.0}
    assert torch.equal(channel.normals(around)[0], -Ball([1, 0.5], 0.2).normals(around)[0])  # out of the flow
    with pytest.raises(InputError, match="unknown part of the boundary 'cilinder'; did you mean 'cylinder'"):
        channel.on(["cilinder"], unit)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Box([0, 0], [1, 0]), "low .* must be below high"),
        (lambda: Ball([0.0], 1.0), "2 or 3 numbers"),
        (lambda: Polygon([(0, 0), (1, 1)]), "three or more"),
        (lambda: Polygon([(0, 0), (1, 1), (2, 2)]), "no area"),
        (lambda: Extrusion(Box([0, 0, 0], [1, 1, 1]), 0, 1), "in the plane"),
        (lambda: Ball([0, 0], 1) | Box([0.0], [1.0]), "2 dimensions cannot be combined with one of 1"),
    ],
)
def test_shapes_that_are_none(make, message):
    with pytest.raises(InputError, match=message):
        make()


# ---- problems on shapes -------------------------------------------------------------------------------------------


def test_references_are_known_inside_only():
    known = problems.get("l_shape", resolution=20).solution()
    outside = (known.points()[:, 0] > 0) & (known.points()[:, 1] < 0)
    assert torch.equal(torch.tensor(known.values()[:, 0]).isnan(), torch.tensor(outside))
    problem = problems.get("annulus", a=3.0, resolution=64)
    robin = problem.soft_conditions()[1]
    b = 3 / (1 + 3 * math.log(2))  # of u = 1 − b log 2r, whose slope is −b/r
    points = robin.place(problem, samples(64, 2))
    r = points.norm(dim=1, keepdim=True)
    here = {"": 1 - b * (2 * r).log(), "x": -b * points[:, :1] / r**2, "y": -b * points[:, 1:] / r**2}
    assert float(robin.residuals(problem, here, robin.prepare(problem, points))["robin_u"].abs().max()) < 1e-12
    inside = torch.tensor(problem.solution().values()[:, 0]).isfinite()
    assert float(inside.double().mean()) == pytest.approx(0.75 * math.pi / 4, rel=0.02)


@pytest.mark.parametrize(("name", "steps", "error"), [("annulus", 12, 0.01), ("l_shape", 16, 0.05)])
def test_a_problem_on_a_shape_is_solved_and_reported(tmp_path, name, steps, error):
    config = {
        "kind": "pde",
        "problem": {"name": name, "parameters": {"resolution": 32}},
        "network": {"width": 10, "depth": 2},
        "points": {"interior": 200, "boundary": 100},
        "training": {
            "steps": steps,
            "stages": [{"optimizer": "gauss_newton", "dtype": "float64", "inner_iterations": 1}],
            "select": "last",
        },
        "steps_per_epoch": steps,
    }
    test = fit_config(config, tmp_path / "run").test
    assert test["nrmse"] < error < 0.2 < test["constant_nrmse"]
    if name == "annulus":
        assert "u: reference" in write_page([tmp_path / "run"], tmp_path / "page.html").read_text()


def test_every_piece_of_a_boundary_has_its_share_of_points():
    problem = problems.get("channel")
    wall = problem.soft_conditions()[1]
    plan = Collocation(domain=500, boundary=600)
    interior, ((_, points),) = draw(problem, [wall], plan, generator(0), torch.float64)
    around = (points - torch.tensor([0.8, 0.5])).norm(dim=1) < 0.2001
    length = 0.4 * math.pi
    assert float(around.double().mean()) == pytest.approx(length / (length + 5), abs=0.04)
    assert interior.shape == (500, 2)
    assert float(interior[:, 0].mean()) == pytest.approx(1.25, abs=0.1)
