"""Problems on shapes against finite elements."""

import numpy as np
import pytest
import torch

from dcnn.pde import problems
from dcnn.results import TrainedRun, fit_config


def mesh_of(problem, h):
    """Triangles of the domain of a problem: a grid, rings around the cylinder of the channel, Delaunay."""
    skfem = pytest.importorskip("skfem")
    from scipy.spatial import Delaunay

    (left, right), (low, high) = problem.domain.values()
    x, y = (np.linspace(a, b, round((b - a) / h) + 1) for a, b in ((left, right), (low, high)))
    points = np.stack([c.ravel() for c in np.meshgrid(x, y)], 1)
    if problem.name == "channel":
        centre, radius = np.array([0.8, 0.5]), 0.2
        angle = 2 * np.pi * np.arange(40) / 40
        circle = np.stack([np.cos(angle), np.sin(angle)], 1)
        points = points[np.linalg.norm(points - centre, axis=1) > radius + 1.6 * h]
        points = np.concatenate([points, *(centre + r * circle for r in (radius, radius + 0.6 * h, radius + 1.2 * h))])
    triangles = Delaunay(points).simplices
    middle = torch.as_tensor(points[triangles].mean(1))
    kept = triangles[problem.inside(middle).numpy()]
    used, numbers = np.unique(kept, return_inverse=True)
    return skfem.MeshTri(np.ascontiguousarray(points[used].T), np.ascontiguousarray(numbers.reshape(kept.shape).T))


def stokes(problem, h=0.05):
    """The mesh, and bases and values of velocity (Taylor and Hood's elements) and pressure."""
    import skfem
    from skfem.helpers import ddot, div, grad

    mesh = mesh_of(problem, h)
    flow = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementTriP2()), intorder=4)
    pressure = flow.with_element(skfem.ElementTriP1())
    A = skfem.BilinearForm(lambda u, v, w: ddot(grad(u), grad(v))).assemble(flow)
    B = skfem.BilinearForm(lambda u, q, w: -div(u) * q).assemble(flow, pressure)
    K = skfem.bmat([[A, B.T], [B, None]], "csr")
    held = flow.get_dofs(mesh.facets_satisfying(lambda x: x[0] < 2.5 - 1e-9, boundaries_only=True)).all()  # no outflow
    inflow = flow.get_dofs(mesh.facets_satisfying(lambda x: x[0] < 1e-9, boundaries_only=True)).all(["u^1"])
    start = np.zeros(K.shape[0])
    start[inflow] = 4 * flow.doflocs[1, inflow] * (1 - flow.doflocs[1, inflow])
    found = skfem.solve(*skfem.condense(K, np.zeros(K.shape[0]), x=start, D=held))
    return mesh, flow, pressure, found[: flow.N], found[flow.N :]


def test_finite_elements_meet_what_the_channel_states():
    problem = problems.get("channel")
    mesh, flow, pressure, velocity, p = stokes(problem)
    assert velocity[flow.nodal_dofs[0]].max() > 1.3  # what flows in passes the gaps
    slopes = flow.interpolate(velocity).grad  # (fields, axes, triangles, nodes)
    columns = {axis: [pressure.project(slopes[i, n]) for i in (0, 1)] for n, axis in enumerate(("x", "y"))}
    unit = torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(300, dtype=torch.float64)
    for condition in problem.soft_conditions():
        points = condition.place(problem, 0.02 + 0.96 * unit)
        if condition.name == "wall":  # a circle is no polygon: moved to the nearest corner of the mesh
            corners = torch.as_tensor(mesh.p[:, mesh.boundary_nodes()].T)
            points = corners[torch.cdist(points, corners).argmin(1)]
        where = np.clip(points.numpy().T, 1e-9, np.array([[2.5], [1.0]]) - 1e-9)
        at, plain = flow.probes(where), pressure.probes(where)
        values = [*(at @ velocity).reshape(2, -1), plain @ p]
        here = {"": torch.as_tensor(np.stack(values, 1))}
        for axis, found in columns.items():
            here[axis] = torch.as_tensor(np.stack([*(plain @ c for c in found), 0 * values[2]], 1))
        for name, residual in condition.residuals(problem, here, condition.prepare(problem, points)).items():
            assert float(residual.square().mean().sqrt()) < 0.05, name


def test_the_solution_on_an_l_is_that_of_finite_elements():
    problem = problems.get("l_shape")
    mesh = mesh_of(problem, 0.05)
    import skfem
    from skfem.models.poisson import laplace

    basis = skfem.Basis(mesh, skfem.ElementTriP2())
    (walls,) = problem.soft_conditions()
    x, y = torch.as_tensor(basis.doflocs)
    start, edge = np.zeros(basis.N), basis.get_dofs().all()
    start[edge] = walls.prepare(problem, torch.stack([x, y], 1)[edge])["u"].numpy()
    found = skfem.solve(*skfem.condense(laplace.assemble(basis), x=start, D=edge))
    exact = problem.exact(*basis.doflocs)
    assert np.linalg.norm(found - exact) < 5e-3 * np.linalg.norm(exact)  # the corner's slope is infinite


@pytest.mark.slow
def test_a_network_finds_the_flow_of_finite_elements(tmp_path):
    mesh, flow, _, velocity, _ = stokes(problems.get("channel"))
    expected = np.stack([velocity[flow.nodal_dofs[i]] for i in (0, 1)], 1)
    fit_config({"kind": "pde", "problem": {"name": "channel"}, "training": {"steps": 150}}, tmp_path / "run")
    solution = TrainedRun.open(tmp_path / "run").solution(mesh.p.T)
    found = np.stack([solution["u"], solution["v"]], 1)
    assert np.linalg.norm(found - expected) < 0.05 * np.linalg.norm(expected)
