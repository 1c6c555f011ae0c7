"""What residuals and conditions may say: flux form, comparisons, Robin, normals, integrals, interfaces."""

import math

import pytest
import torch

from dcnn.errors import InputError
from dcnn.pde import Dirichlet, General, Initial, Integral, Problem, Robin, geometry
from dcnn.pde.build import build_pde
from dcnn.pde.config import PdeConfig
from dcnn.train.gauss_newton import jacobian
from dcnn.train.settings import validated


class Square(Problem):
    coordinates, fields = ("x", "y"), ("u",)
    domain = {"x": (0.0, 1.0), "y": (0.0, 2.0)}
    parameters = {"k": 2.0}

    def residuals(self, u):
        return {"f": u.xx + u.yy}

    def conditions(self):
        return [Dirichlet(u=0.0)]


def partials_of(function, points, names):
    """{"": u, "x": …} up to order 3 by nested autograd, read when they are asked for."""
    columns = dict(zip(names, (c.clone().requires_grad_() for c in points.unbind(1)), strict=True))

    class Lazy(dict):
        def __missing__(self, letters):
            value = function(**columns)
            for c in letters:
                (value,) = torch.autograd.grad(value.sum(), columns[c], create_graph=True)
            self[letters] = value[:, None]
            return self[letters]

    return Lazy(), columns


def wave(x, y):
    return torch.sin(2 * x) * torch.exp(0.5 * y) + 1.5


@pytest.mark.parametrize(
    "expression",
    [
        lambda self, u, x, y: ((1 + x**2 * torch.sin(y)) * u.x).x,
        lambda self, u, x, y: (self.k * u.x).x + (torch.tensor(2.0) * u * u.y).y,
        lambda self, u, x, y: (torch.exp(-x) / u * u.xy).y - 2 * (torch.sqrt(u) * torch.tanh(x * y)).xy,
        lambda self, u, x, y: (3 - torch.where(x > 0.5, u**2, torch.cos(u)) * torch.log(u)).x,
        lambda self, u, x, y: (1 / (1 + u.x**2) ** 0.5 * u.x).x + abs(u) * (u >= 0),
    ],
)
def test_products_can_be_differentiated(expression):
    class Flux(Square):
        def residuals(self, u, x, y):
            return {"f": expression(self, u, x, y)}

    problem = Flux()
    points = problem.stretch(torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    assert problem.wanted[0] == ""
    partials, columns = partials_of(wave, points, "xy")
    found = problem.evaluate({w: partials[w] for w in problem.wanted}, points)["f"]

    class Traced:  # the same by automatic differentiation of the whole expression
        def __init__(self, value):
            self.value = value

        def __getattr__(self, letters):
            value = self.value
            for c in letters:
                (value,) = torch.autograd.grad(value.sum(), columns[c], create_graph=True, allow_unused=True)
            return Traced(value)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return Traced(func(*(a.value if isinstance(a, Traced) else a for a in args), **(kwargs or {})))

    for name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "pow", "neg", "abs", "gt", "ge"):
        operator = f"__{name}__"

        def method(self, *other, operator=operator):
            plain = [o.value if isinstance(o, Traced) else o for o in other]
            out = getattr(self.value, operator)(*plain)
            return out if out.dtype == torch.bool else Traced(out)

        setattr(Traced, operator, method)
    expected = expression(problem, Traced(wave(**columns)), Traced(columns["x"]), Traced(columns["y"])).value
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-10, atol=1e-10)


def test_a_tensor_of_unknown_origin_is_not_differentiated():
    class Flux(Square):
        def residuals(self, u, x):
            return {"f": (torch.erf(x) * u.x).x}

    with pytest.raises(InputError, match=r"how it depends on x is not known.* Write it with coordinates"):
        _ = Flux().wanted


def test_comparisons_of_fields():
    class Freezing(Square):
        def residuals(self, u):
            return {"f": torch.where(u > 0, u.xx, 2 * u.yy) + (u <= 0) * u.x}

    partials = {"": torch.tensor([[1.0], [-1.0]]), **{w: torch.tensor([[3.0], [5.0]]) for w in ("xx", "yy", "x")}}
    assert sorted(Freezing().wanted) == ["", "x", "xx", "yy"]
    assert Freezing().evaluate(partials, torch.zeros(2, 2))["f"].tolist() == [3.0, 15.0]


HOLE = geometry.Box([0, 0], [2, 2]) - geometry.Ball([1, 1], 0.5, name="hole")


class Plate(Problem):
    """u = x² − y² with everything that is true of it."""

    coordinates, fields, shape = ("x", "y"), ("u",), HOLE

    def residuals(self, u):
        return {"laplace": u.xx + u.yy}

    def conditions(self):
        def given_off(x, y):  # 2 u + ∂u/∂n on the circle, whose outward normal points to its centre
            return 2 * (x**2 - y**2) - 4 * ((x - 1) * x - (y - 1) * y)

        return [
            Dirichlet(u=lambda x, y: x**2 - y**2, on=("x", "y-")),
            Robin(u=given_off, a=2.0, on="hole"),
            General(lambda u, x, y, normal: normal.slope(u) + 2 * y * normal.y, on="y+", name="top"),
            Integral(lambda u, x: u + x, equals=4 - math.pi / 4, points=4096, name="mass"),
        ]


def exact(x, y):
    return x**2 - y**2


def test_every_condition_holds_for_the_exact_solution():
    problem = Plate()
    assert problem.domain == {"x": (0.0, 2.0), "y": (0.0, 2.0)}
    unit = torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(400, dtype=torch.float64)
    for condition in problem.soft_conditions():
        points = condition.place(problem, unit)
        partials, _ = partials_of(exact, points, "xy")
        here = {w: partials[w].detach() for w in ("", *condition.wanted(problem))}
        for name, residual in condition.residuals(problem, here, condition.prepare(problem, points)).items():
            assert float(residual.abs().max()) < (4e-3 if name == "mass" else 1e-12), name


def test_a_problem_with_a_shape_is_trained_inside_it_and_linearised():
    config = {"problem": {"name": "object:Plate"}, "points": {"interior": 100, "boundary": 40}, "network": {"width": 6}}
    config |= {"training": {"steps": 1}, "kind": "pde"}
    task = build_pde(validated(PdeConfig, config), problem=Plate())
    task.cast(torch.float64)
    batch = next(iter(task.batches(0)))
    assert batch.interior.shape == (100, 2)
    assert float(HOLE.distance(batch.interior).max()) < 0
    rows = {p.condition.name: p.rows for g in batch.groups for p in g.placed}
    assert {name: r.stop - r.start for name, r in rows.items() if name != "mass"} == {
        "dirichlet": 40, "robin": 40, "top": 40,
    }  # fmt: skip
    found, residuals = task.linearise(task.network, batch), task.residuals(task.network, batch)
    weights = [p for p in task.network.parameters() if p.requires_grad]
    assert len(residuals["mass"]) == 1
    for name, r in residuals.items():
        torch.testing.assert_close(found[name][1], jacobian(r, weights), rtol=1e-9, atol=1e-11)


def test_an_integral_at_several_times_is_gauss_quadrature():
    class Kept(Problem):
        coordinates, fields, domain = ("x", "t"), ("u",), {"x": (0.0, 2.0), "t": (0.0, 1.0)}

        def residuals(self, u):
            return {"f": u.t}

        def conditions(self):
            kept = Integral(lambda u, x: x * u.x, lambda t: (1 + t) * 16 / 3, points=4, times=3, name="kept")
            return [Initial(u=0.0), kept]

    problem = Kept()
    condition = problem.soft_conditions()[1]
    points = condition.place(problem, torch.zeros(1, 2, dtype=torch.float64))
    assert points.shape == (12, 2)
    partials, _ = partials_of(lambda x, t: x**2 * (1 + t), points, "xt")
    here = {w: partials[w].detach() for w in ("", "x")}
    residual = condition.residuals(problem, here, condition.prepare(problem, points))["kept"]
    assert residual.shape == (3,)
    assert float(residual.abs().max()) < 1e-12


def test_an_interface_is_the_surface_of_a_shape_within_the_domain():
    left = geometry.Box([-1, -1], [0.5, 3])
    jump = General(lambda u, w, normal: 2 * normal.slope(u) - normal.slope(w), on=left, name="flux")

    class Layers(Square):
        fields = ("u", "w")

        def residuals(self, u, w, x):
            return {"f": torch.where(x < 0.5, u.xx + u.yy, w.xx + w.yy)}

        def conditions(self):
            return [Dirichlet(u=0.0, w=0.0), jump]

    problem = Layers()
    unit = torch.quasirandom.SobolEngine(2, scramble=True, seed=0).draw(200, dtype=torch.float64)
    points = jump.place(problem, unit)
    assert len(points) > 20
    assert {*points[:, 0].tolist()} == {0.5}
    assert 0 < float(points[:, 1].min()) < float(points[:, 1].max()) < 2
    here = {w: torch.ones(len(points), 2, dtype=torch.float64) for w in jump.wanted(problem)}
    assert torch.equal(jump.residuals(problem, here, jump.prepare(problem, points))["flux"], torch.ones(len(points)))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (lambda: Dirichlet(u=0.0, on="hale"), "dirichlet condition: unknown part of the boundary 'hale'"),
        (lambda: General(lambda u, q: u), "unknown argument 'q'"),
        (lambda: General(lambda u: u.z), "'z' is not a coordinate"),
        (lambda: General(lambda normal: normal.t), "the normal has no 't'"),
        (lambda: General(lambda u: 1.0), "must be one number a point, found float"),
        (lambda: Robin(u=0.0, a=math.nan), "not finite"),
    ],
)
def test_mistakes_in_conditions_are_named(condition, message):
    class Wrong(Plate):
        def conditions(self):
            return [condition()]

    with pytest.raises(InputError, match=message):
        Wrong().check()
