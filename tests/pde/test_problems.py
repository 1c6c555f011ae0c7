"""Problems: their equations hold on known solutions, their conditions on exact values, and mistakes are explained."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dcnn.errors import InputError
from dcnn.pde import Collocation, Dirichlet, Field, Initial, Neumann, Outgoing, Periodic, Problem, Sampled, problems
from dcnn.pde.cache import cached
from dcnn.pde.named_field import Recorder, call_by_name, canonical
from dcnn.pde.points import draw
from dcnn.pde.solution import Solution

PAPER = ("advection", "compressible", "diffusion_reaction")


def partials_of(function, points, wanted, coordinates=("x", "t")):
    """Partial derivatives (N, fields) of a function of named coordinates, by nested automatic differentiation."""
    columns = {c: points[:, i].clone().requires_grad_() for i, c in enumerate(coordinates)}
    outputs = function(**columns)
    found = {}
    for letters in wanted:
        values = []
        for value in outputs:
            for letter in letters:
                total = value.sum() + 0 * columns[letter].sum()
                (value,) = torch.autograd.grad(total, columns[letter], create_graph=True)
            values.append(value.detach())
        found[letters] = torch.stack(values, 1)
    return found


def unit_points(problem, n=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, len(problem.coordinates), generator=generator, dtype=torch.float64)


EXACT = {
    "advection": lambda p: lambda x, t: [p.profile(x - p.beta * t)],
    "heat": lambda p: (
        lambda x, t: [
            torch.exp(-p.alpha * torch.pi**2 * t) * torch.sin(torch.pi * x)
            + 0.5 * torch.exp(-p.alpha * 9 * torch.pi**2 * t) * torch.sin(3 * torch.pi * x)
        ]
    ),
    "wave": lambda p: (
        lambda x, t: [
            torch.cos(p.c * torch.pi * t) * torch.sin(torch.pi * x)
            + 0.5 * torch.cos(4 * p.c * torch.pi * t) * torch.sin(4 * torch.pi * x)
        ]
    ),
    "poisson": lambda p: lambda x, y: [p.series(x, y)],
}


@pytest.mark.parametrize("name", EXACT)
def test_residuals_and_conditions_vanish_on_the_exact_solution(name):
    problem = problems.get(name)
    exact, points = EXACT[name](problem), problem.stretch(unit_points(problem))
    for residual in problem.evaluate(partials_of(exact, points, problem.wanted, problem.coordinates), points).values():
        assert residual.abs().max() < 1e-10
    for condition in problem.soft_conditions():
        points = condition.place(problem, unit_points(problem))
        partials = partials_of(exact, points, condition.wanted(problem), problem.coordinates)
        residuals = condition.residuals(problem, partials, condition.prepare(problem, points))
        assert set(residuals) == set(condition.terms(problem))
        for residual in residuals.values():
            assert residual.abs().max() < 1e-10


@pytest.mark.parametrize(("name", "sample"), [(n, s) for n in EXACT for s in (0, 3)])
def test_closed_references_equal_the_exact_solution(name, sample):
    problem = problems.get(name, sample=sample, resolution=32)
    known = problem.solution()
    if name in ("heat", "wave") and sample:
        start = torch.tensor(known.at("t", slice(0, 1)).values()[:, 0])
        assert torch.allclose(start, problem.profile(torch.tensor(known.grid["x"])))
        return
    columns = torch.tensor(known.points()).unbind(1)
    (value,) = EXACT[name](problem)(*columns)
    np.testing.assert_allclose(value.numpy(), known.values()[:, 0], atol=1e-12)


def on_grid(known, wanted, cut):
    """Partial derivatives of a gridded solution by central differences, away from the edges of the grid."""
    axes = list(known.grid)
    found = {}
    for letters in wanted:
        columns = []
        for values in known.fields.values():
            for letter in letters:
                values = np.gradient(values, known.grid[letter], axis=axes.index(letter))
            columns.append(values[cut].ravel())
        found[letters] = torch.tensor(np.stack(columns, 1))
    return found


@pytest.mark.parametrize(
    ("name", "given", "until"),
    [
        ("compressible", {"resolution": 256, "eta": 0.02, "sample": 4}, 0.02),
        ("diffusion_reaction", {"resolution": 48, "initial": "smooth"}, 0.5),
        ("burgers", {"nu": 0.05}, 0.2),
        ("allen_cahn", {"sample": 1}, 0.2),
    ],
)
def test_solvers_solve_the_equations_that_the_residuals_state(name, given, until):
    """What is left of each equation on the computed solution is small against its time derivative."""
    problem = problems.get(name, **given)
    problem.domain = {**problem.domain, "t": (0.0, until)}  # frames so close that central differences are good
    known = problem.solve()
    partials = on_grid(known, problem.wanted, tuple(slice(3, -3) for _ in known.grid))
    points = torch.zeros(len(partials[""]), len(problem.coordinates), dtype=torch.float64)
    for (term, residual), column in zip(problem.evaluate(partials, points).items(), partials["t"].T, strict=True):
        scale = column.norm() * (known.fields["rho"].mean() if term == "momentum" else 1.0)
        assert residual.norm() < 0.01 * scale, term


def test_cavity_reference_satisfies_continuity_and_lid():
    problem = problems.get("navier_stokes", resolution=32)
    known = problem.solution()
    cut = (slice(3, -3), slice(3, -3))
    divergence = on_grid(known, ("x", "y"), cut)
    assert (divergence["x"][:, 0] + divergence["y"][:, 1]).abs().max() < 1e-10
    assert known.fields["u"][5, -1] == 1.0
    assert set(known.fields) == {"u", "v"}


# ---- the statement of a problem -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fidelity", "wanted", "terms"),
    [
        ("advection", "text", "t x", "advection initial_u periodic_u"),
        ("advection", "scripts", "t x", "f ic bc"),
        ("compressible", "text", "t x xx", "mass momentum energy initial_rho initial_v initial_p periodic_rho "
         "periodic_v periodic_p"),
        ("compressible", "scripts", "t x", "f ic_data_d ic_data_v ic_data_p bc_D bc_V bc_P"),
        ("diffusion_reaction", "text", "t xx yy", "activator inhibitor initial_u initial_v neumann_u neumann_v"),
        ("diffusion_reaction", "scripts", "t xx yy", "f bc ic_data_u ic_data_v bc_data_u bc_data_v"),
        ("burgers", "text", "t x xx", "burgers initial_u dirichlet_u"),
        ("allen_cahn", "text", "t xx", "allen_cahn initial_u periodic_u periodic_u_x"),
        ("heat", "text", "t xx", "heat initial_u dirichlet_u"),
        ("wave", "text", "tt xx", "wave initial_u initial_u_t dirichlet_u"),
        ("poisson", "text", "xx yy", "poisson dirichlet_u"),
        ("navier_stokes", "text", "x xx y yy", "mass momentum_x momentum_y lid_u lid_v wall_u wall_v pressure_p"),
    ],
)  # fmt: skip
def test_every_problem_states_its_partials_and_terms(name, fidelity, wanted, terms):
    small = {"resolution": 16} if name in ("compressible", "diffusion_reaction") else {}
    problem = problems.get(name, fidelity=fidelity, **small)
    problem.check()
    assert problem.wanted[0] == ""
    assert sorted(problem.wanted[1:]) == wanted.split()
    conditions = [term for c in problem.soft_conditions() for term in c.terms(problem)]
    assert [*problem.equations, *conditions] == terms.split()
    assert set(problem.scales()) == set(problem.fields)


NOT_HARD = ("diffusion_reaction", "navier_stokes", "l_shape", "annulus", "channel")


@pytest.mark.parametrize("name", [n for n in problems.NAMES if n not in NOT_HARD])
def test_hard_constraints_meet_the_conditions_they_name(name):
    problem = problems.get(name)
    hard = problem.hard_constraints()

    def transformed(**columns):
        found = []
        for i, field in enumerate(problem.fields):
            network = sum(torch.sin((i + 1) * c + 0.3) for c in columns.values())
            lift, factor = (call_by_name(f, columns, "test") for f in (hard[field].lift, hard[field].factor))
            found.append(lift + factor * network)
        return found

    satisfied = {term for h in hard.values() for term in h.satisfies}
    seen = set()
    for condition in problem.soft_conditions():
        points = condition.place(problem, unit_points(problem))
        partials = partials_of(transformed, points, condition.wanted(problem), problem.coordinates)
        residuals = condition.residuals(problem, partials, condition.prepare(problem, points))
        for term in satisfied & set(residuals):
            kinked = name == "allen_cahn"  # its kink is a sum of 2,048 cosines
            assert residuals[term].abs().max() < (1e-4 if kinked else 1e-12)
            seen.add(term)
    assert seen == satisfied
    left = {term for c in problem.soft_conditions(hard=True) for term in c.terms(problem)}
    assert not left & satisfied


def test_periodic_conditions_fall_away_with_periodic_inputs():
    problem = problems.get("allen_cahn")
    assert [c.name for c in problem.soft_conditions(embedded=True)] == ["initial"]
    assert problem.periodic["x"] == problem.domain["x"][1] - problem.domain["x"][0]


def test_a_trainable_parameter_is_a_tensor_that_residuals_differentiate():
    problem = problems.get("advection", trainable="beta", beta=0.3)
    partials = {"": torch.ones(4, 1), "t": torch.ones(4, 1), "x": 2 * torch.ones(4, 1)}
    residual = problem.evaluate(partials, torch.zeros(4, 2))["advection"]
    (gradient,) = torch.autograd.grad(residual.sum(), problem.unknowns["beta"])
    assert gradient == 8.0
    assert list(problem.unknowns) == ["beta"]
    assert problem.solution().shape == (1024, 201)  # the reference is that of the stated value
    twin = copy.deepcopy(problem)
    assert twin.unknowns["beta"] is not problem.unknowns["beta"]
    assert twin.with_settings(beta=0.7).parameters == {"beta": 0.7}


def test_samples_and_seeds_differ_and_repeat():
    profile = {key: problems.get("advection", **dict(zip(("sample", "seed"), key, strict=True))).profile
               for key in ((0, 0), (1, 0), (0, 1))}  # fmt: skip
    assert len(set(profile.values())) == 3
    assert problems.get("advection").profile == profile[0, 0]
    flow = problems.get("compressible", sample=7).profiles
    x = np.linspace(-1, 1, 1000)
    assert 1 <= flow["rho"](x).min() < flow["rho"](x).max() <= 20
    assert 10 <= flow["p"](x).min() < flow["p"](x).max() <= 200


def test_noise_is_pdebenchs_and_smooth_data_do_not_flow_out():
    start = problems.get("diffusion_reaction", sample=3).start()
    rng = np.random.default_rng(3)
    for field in "uv":
        assert np.array_equal(start.fields[field][..., 0].T.ravel(), rng.standard_normal(128 * 128))
    smooth = problems.get("diffusion_reaction", initial="smooth").start().fields["u"][..., 0]
    assert abs(smooth.std() - 1) < 1e-12
    assert np.abs(smooth[1] - smooth[0]).max() < 0.3 * np.abs(np.diff(smooth, axis=0)).max()
    with pytest.raises(InputError, match="did you mean 'smooth'"):
        problems.get("diffusion_reaction", initial="smoth").conditions()


# ---- as the scripts pose them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAPER)
def test_scripts_share_seven_thousand_points(name):
    problem = problems.get(name, fidelity="scripts")
    assert problem.collocation == Collocation(1000, 1000, 5000, "hammersley", shared=True)


def test_scripts_advection_moves_test_data_at_twice_the_speed():
    published = problems.get("advection", fidelity="scripts")
    right = problems.get("advection", beta=0.2)
    assert np.array_equal(published.solution().fields["u"], right.solution().fields["u"])
    assert len(published.soft_conditions()[0].points) == 1024


def test_scripts_energy_flux_is_the_sum_over_all_pairs():
    """The O(N) form against the N × N product that the scripts differentiate."""
    problem = problems.get("compressible", fidelity="scripts", resolution=16)
    points = torch.rand(6, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, dtype=torch.float64)
    values = 2 + torch.sin(points @ weights)
    rho, v, p = values.T

    def along(quantity, column):
        return torch.autograd.grad(quantity.sum(), points, retain_graph=True)[0][:, column]

    energy = p / (problem.gamma - 1) + 0.5 * rho * v**2
    pairs = v[None, :] * (energy[:, None] + p[None, :])
    expected = along(rho, 1) + along(rho * v, 0) + rho * (along(v, 1) + v * along(v, 0)) - along(p, 0)
    expected = expected + along(energy, 1) + along(pairs, 0)
    partials = {"": values, "x": torch.stack([along(f, 0) for f in (rho, v, p)], 1)}
    partials["t"] = torch.stack([along(f, 1) for f in (rho, v, p)], 1)
    collocation = {k: f[2:] for k, f in partials.items()}  # four of the six rows, the sums run over all
    got = problem.evaluate(collocation, points[2:], everywhere=values)["f"]
    assert problem.needs_everywhere
    torch.testing.assert_close(got, expected[2:], rtol=1e-12, atol=1e-12)


def test_scripts_compressible_mixes_domains_and_conditions():
    problem = problems.get("compressible", fidelity="scripts", resolution=16)
    conditions = problem.soft_conditions()
    assert problem.domain["x"] == (0.0, 1.0)
    assert conditions[0].points[:, 0].min() < -0.9
    assert all(c.targets(problem) == [("rho", 0, "")] for c in conditions[3:])


def test_scripts_diffusion_reaction_exchanges_axes_and_keeps_one_corner():
    problem = problems.get("diffusion_reaction", fidelity="scripts", resolution=16)
    right = problems.get("diffusion_reaction", resolution=16)
    bc, ic_u, _, data_u, data_v = problem.soft_conditions()
    assert np.array_equal(problem.solution().fields["u"], right.solution().fields["u"].swapaxes(0, 1))
    assert np.array_equal(ic_u.data["u"].numpy(), right.start().fields["u"].ravel())
    assert bc.keys == ("u",)
    assert len(data_u.points) == int(0.3 * 16)
    assert np.array_equal(data_v.points[:, 0], np.full(4, ic_u.points[0, 0]))  # all at the first x
    assert right.soft_conditions()[1].keys == ("u", "v")


def test_conditions_pick_their_points_as_deepxde_does():
    problem = problems.get("diffusion_reaction", fidelity="scripts", resolution=16)
    inside, wall, corner = [0.2, 0.1, 1.0], [1.0, 0.5, 2.0], [-1.0, 1.0, 3.0]
    points = torch.tensor([inside, wall, corner], dtype=torch.float64)
    bc, ic_u, *_ = problem.soft_conditions()
    assert bc.pick(problem, points).tolist() == [wall, corner]
    normal = bc.prepare(problem, points[1:])["normal"]
    torch.testing.assert_close(normal, torch.tensor([[1, 0, 0], [-(0.5**0.5), 0.5**0.5, 0]], dtype=torch.float64))
    assert len(ic_u.pick(problem, points)) == 256
    flow = problems.get("compressible", fidelity="scripts", resolution=16)
    both = torch.tensor([[0.0, 0.3], [0.5, 0.3], [1.0, 0.6]], dtype=torch.float64)
    ends = flow.soft_conditions()[3].pick(flow, both)
    assert ends.tolist() == [[0.0, 0.3], [1.0, 0.6], [1.0, 0.3], [0.0, 0.6]]
    initial = problems.get("heat").soft_conditions()[0]
    assert initial.pick(problems.get("heat"), torch.tensor([[0.5, 0.0], [0.5, 0.1]])).tolist() == [[0.5, 0.0]]


# ---- conditions one by one ------------------------------------------------------------------------------------


class Plain(Problem):
    coordinates = ("x", "t")
    domain = {"x": (0.0, 2.0), "t": (1.0, 3.0)}
    fields = ("a", "b")

    def residuals(self, a, b):
        return {"one": a.t + b * a.xt, "two": 1 / b - a / 2 + (2 - a) + torch.stack([a, b], 1).sum(1) - -a}


def polynomial(x, t):
    return [x**2 * t + 1, 3 * x + t**2]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Initial(a=lambda x: x), {"initial_a": lambda x, t: x**2 + 1 - x}),
        (Initial(b_t=0.0), {"initial_b_t": lambda x, t: 2 + 0 * x}),
        (Dirichlet(a=1.0, on="x-"), {"dirichlet_a": lambda x, t: 0 * t}),
        (Dirichlet(b=lambda t: t, on="x+", term="lid"), {"lid": lambda x, t: 6 + t**2 - t}),
        (Neumann(a=0.5, on="x+"), {"neumann_a": lambda x, t: 4 * t - 0.5}),
        (Neumann(b=0.0, on="x-"), {"neumann_b": lambda x, t: -3 + 0 * t}),
        (Outgoing("a", "b", on="x+"), {"outgoing_a": lambda x, t: 4 * t, "outgoing_b": lambda x, t: 3 + 0 * t}),
        (Outgoing("a", on="x+", speed=2.0), {"outgoing_a": lambda x, t: 4 + 8 * t}),
        (Sampled([[1.0, 2.0], [0.0, 3.0]], a=[0.0, 5.0]), {"data_a": lambda x, t: x**2 * t + 1 - 2.5 * (t - 2) * 2}),
    ],
)  # fmt: skip
def test_condition_residuals_by_hand(condition, expected):
    problem = Plain()
    points = condition.place(problem, unit_points(problem, 8))
    partials = partials_of(polynomial, points, condition.wanted(problem), problem.coordinates)
    residuals = condition.residuals(problem, partials, condition.prepare(problem, points))
    assert set(residuals) == set(expected) == set(condition.terms(problem))
    for term, function in expected.items():
        torch.testing.assert_close(residuals[term], function(*points.unbind(1)).expand(len(points)))


def test_periodic_compares_both_ends_up_to_a_derivative():
    problem, condition = Plain(), Periodic("x", derivatives=1, fields=("a",))
    points = condition.place(problem, unit_points(problem, 5))
    assert points[:5, 0].unique().tolist() == [0.0]
    assert points[5:, 0].unique().tolist() == [2.0]
    assert torch.equal(points[:5, 1], points[5:, 1])
    partials = partials_of(polynomial, points, condition.wanted(problem), problem.coordinates)
    residuals = condition.residuals(problem, partials, condition.prepare(problem, points))
    torch.testing.assert_close(residuals["periodic_a"], -4 * points[:5, 1])
    torch.testing.assert_close(residuals["periodic_a_x"], -4 * points[:5, 1])


def test_faces_share_the_points_equally():
    problem = problems.get("poisson")
    _, [(_, points)] = draw(
        problem, [Dirichlet(u=0.0)], Collocation(boundary=12), torch.Generator().manual_seed(0), torch.float64
    )
    on = {(axis, end): int((points[:, axis] == end).sum()) for axis in (0, 1) for end in (0.0, 1.0)}
    assert on == dict.fromkeys(on, 3)


# ---- fields ---------------------------------------------------------------------------------------------------


def test_field_arithmetic_is_that_of_its_value():
    points = torch.tensor([[0.5, 2.0], [1.5, 1.0]], dtype=torch.float64)
    found = Plain().evaluate(partials_of(polynomial, points, ("", "t", "xt")), points)
    x, t = points.unbind(1)
    a, b = polynomial(x, t)
    torch.testing.assert_close(found["one"], x**2 + b * 2 * x)
    torch.testing.assert_close(found["two"], 1 / b - a / 2 + 2 - a + a + b + a)


def test_field_functions_order_and_names():
    u = Field("u", 0, {"": torch.tensor([[4.0]]), "xt": torch.tensor([[7.0]])}, ("x", "t"))
    assert torch.sqrt(u) == 2
    assert u.tx == 7
    assert canonical("tx", ("x", "t")) == "xt"
    assert repr(u) == "Field(u)"
    assert 3 + u == 7
    assert u - u.xt == -3
    assert 8 / u == 2
    assert u**2 == 16
    assert not hasattr(u, "_hidden")
    recorder = Recorder(1)
    assert recorder["xx"].shape == (3, 1)
    assert list(recorder) == ["xx"]


# ---- mistakes -------------------------------------------------------------------------------------------------

GOOD = """
import torch
from dcnn.pde import Dirichlet, Initial, Periodic, Problem

class Mine(Problem):
    coordinates = ("x", "t")
    domain = {"x": (0, 1), "t": (0, 2)}
    fields = ("u",)
    parameters = {"k": 1.0}

    def residuals(self, u):
        return {"heat": u.t - self.k * u.xx}

    def conditions(self):
        return [Initial(u=lambda x: x), Dirichlet(u=0.0, on="x")]
"""


def write(tmp_path, old="", new=""):
    assert old in GOOD
    path = tmp_path / "mine.py"
    path.write_text(GOOD.replace(old, new, 1) if old else GOOD)
    return path


def test_a_file_is_a_problem(tmp_path):
    problem = problems.load_file(write(tmp_path), k=3)
    assert problem.parameters == {"k": 3.0}
    assert problem.wanted == ("", "t", "xx")
    assert problem.reference() is None
    assert problems.get(str(tmp_path / "mine.py")).equations == ("heat",)
    with pytest.raises(InputError, match="no known solution"):
        problem.solution()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("u.xx", "u.qq", r"mine.py: u.qq: 'q' is not a coordinate of this problem. Valid: x, t"),
        ("self, u)", "self, w)", r"mine.py: residuals: unknown argument 'w'. Valid: u, x, t, everywhere"),
        ("Dirichlet(u", "Dirichlet(w", r"mine.py: condition on 'w': no such field. Valid: u"),
        ("Initial(u", "Initial(u_y", r"mine.py: u.y: 'y' is not a coordinate"),
        ("lambda x", "lambda z", r"mine.py: initial condition on 'u': unknown argument 'z'. Valid: x, t"),
        ('on="x"', 'on="z"', r"mine.py: dirichlet condition on face 'z'. Valid: x, x-, x\+"),
        ("u=0.0, on", "on", r"mine.py: .*Dirichlet: no field given"),
        ('Dirichlet(u=0.0, on="x")', 'Periodic("z")', r"mine.py: periodic condition along 'z'. Valid: x, t"),
        ('Dirichlet(u=0.0, on="x")', 'Periodic("x", fields=("w",))', r"mine.py: condition on 'w'"),
        ("self.k", "self.kk", r"mine.py: residuals.*Mine has no 'kk'; parameters: k"),
        ("u.t - self.k", "v.t - self.k", r"mine.py: residuals, line 12 .*NameError: name 'v'"),
        ('"t": (0, 2)}', '"s": (0, 2)}', r"unknown coordinate in the domain of .*mine.py"),
        ("(0, 1)", "(1, 0)", r"mine.py: domain of 'x' must be \(low, high\), found \(1, 0\)"),
        ('fields = ("u",)', "fields = ()", r"mine.py: Mine states no fields"),
        ('fields = ("u",)', 'fields = ("x",)', r"mine.py: coordinates are single letters and differ"),
        ("def residuals", "def residual", r"mine.py: Mine has no method residuals\(self, u\)"),
        ('{"heat": u.t - self.k * u.xx}', "u.t", r"mine.py: residuals must return a dict"),
        ('{"heat": u.t - self.k * u.xx}', '{"heat": u.t.sum()}', r"residual 'heat' must be one number a point"),
        ('{"heat": u.t - self.k * u.xx}', '{"heat": 1.0}', r"residual 'heat' must be one number a point, found float"),
        ("Problem)", "object)", r"mine.py: defines no subclass of dcnn.pde.Problem"),
        ("lambda x: x", "lambda x: y", r"mine.py: conditions, line 15 .*NameError: name 'y'"),
        ("import torch", "import torhc", r"mine.py, line 2: ModuleNotFoundError"),
        ("import torch", "import torch)", r"mine.py, line 2: SyntaxError"),
    ],
)  # fmt: skip
def test_mistakes_in_a_file_are_named(tmp_path, old, new, message):
    with pytest.raises(InputError, match=message):
        problems.load_file(write(tmp_path, old, new))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: problems.get("advektion"), "unknown problem 'advektion'; did you mean 'advection'"),
        (lambda: problems.get("heat", fidelity="scripts"), "heat is not in the paper"),
        (lambda: problems.get("heat", fidelity="script"), "did you mean 'scripts'"),
        (lambda: problems.get("heat", alpa=1), "unknown parameter of heat 'alpa'; did you mean 'alpha'"),
        (lambda: problems.get("heat", alpha="hot"), "heat: parameter alpha must be a number, found 'hot'"),
        (lambda: problems.get("heat", trainable="beta"), "unknown trainable parameter of heat 'beta'"),
        (lambda: problems.get("heat", resolution=2).solve(), "heat: resolution must be a whole number"),
        (lambda: problems.get("heat").axis("y"), "unknown coordinate of heat 'y'"),
        (lambda: problems.load_file("nowhere.py"), "nowhere.py: no such problem file"),
        (lambda: Sampled([[0.0, 0.0]], u=[1.0, 2.0]), r"data condition on 'u': 1 points need 1 values, found \(2,\)"),
        (lambda: Sampled([[0.0, 0.0]], u=[np.nan]), "data condition on 'u': 1 values are not finite"),
    ],
)
def test_wrong_names_and_values(call, message):
    with pytest.raises(InputError, match=message):
        call()


# ---- cache ----------------------------------------------------------------------------------------------------


def test_expensive_references_are_computed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = Solution({"x": np.arange(3.0)}, {"u": np.ones(3)}, "counted")
    calls = []
    compute = lambda: calls.append(1) or known  # noqa: E731
    for _ in range(2):
        found = cached({"a": 1}, compute)
    assert len(calls) == 1
    assert np.array_equal(found.fields["u"], known.fields["u"])
    assert found.source == "counted"
    (stored,) = (tmp_path / "dcnn/references").glob("*.npz")
    stored.write_bytes(stored.read_bytes()[:100])  # damaged: computed again
    assert cached({"a": 1}, compute) is known
    assert cached({"a": 2}, lambda: None) is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")  # cannot be written to
    assert cached({"a": 3}, compute) is known


def test_a_solution_must_fit_its_grid():
    with pytest.raises(ValueError, match="field 'u' has shape"):
        Solution({"x": np.arange(3.0)}, {"u": np.ones(4)})
    assert SimpleNamespace(**Solution({"x": np.arange(2.0)}, {"u": np.ones(2)}).fields).u.sum() == 2


def test_the_factor_of_the_wave_leaves_a_network_of_one_size_for_all_times():
    problem = problems.get("wave")
    known = problem.solution().at("t", slice(1, None))
    x, t = torch.as_tensor(known.points()).unbind(1)
    hard = problem.hard_constraints()["u"]
    needed = (torch.as_tensor(known.values()[:, 0]) - hard.lift(x)) / hard.factor(x, t)
    assert float(needed.abs().max()) < 20  # with t² x(1 − x) it is 514
