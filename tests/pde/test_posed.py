"""Problems are posed right: what the form of the network can hold, data that identify parameters, mistakes named."""

import sys
import textwrap
import warnings

import numpy as np
import pytest
import torch

from dcnn.errors import InputError
from dcnn.pde import Dirichlet, Hard, Initial, Neumann, Periodic, Problem, Sampled, Solution, pdebench, problems
from dcnn.pde.ansatz import check_ansatz, misfits
from dcnn.pde.network import PdeNetwork
from dcnn.pde.points import draw
from dcnn.pde.problem import Collocation
from dcnn.pde.problems.allen_cahn import AllenCahn
from dcnn.pde.problems.burgers import Burgers
from dcnn.pde.problems.heat import Heat
from dcnn.pde.solution_errors import errors


class Plain(Problem):
    """A problem that mistakes can be put into."""

    coordinates, fields = ("x", "t"), ("u",)
    domain = {"x": (0.0, 1.0), "t": (0.0, 1.0)}
    parameters = {"alpha": 0.1}

    def residuals(self, u):
        return {"heat": u.t - self.alpha * u.xx}

    def conditions(self):
        return [Initial(u=0.0), Dirichlet(u=0.0)]


def points_of(problem, condition, count=256, sampler="sobol"):
    random = torch.Generator().manual_seed(0)
    plan = Collocation(boundary=count, initial=count, distribution=sampler)
    return draw(problem, [condition], plan, random, torch.float64)[1][0][1]


# ---- the form of the network ------------------------------------------------------------------------------------


class WoundBurgers(Burgers):
    periodic = {"x": 2.0}


class KinkedAllenCahn(AllenCahn):
    @property
    def lift(self):
        return self.profile


def formed(problem):
    torch.manual_seed(0)
    embedded = bool(problem.periodic or problem.reflecting)
    network = PdeNetwork(
        problem, width=8, depth=2, modes=4 if embedded else 0, hard=bool(problem.hard_constraints()), scale_fields=True
    )
    return network, embedded


@pytest.mark.parametrize("name", problems.NAMES)
def test_no_problem_here_is_out_of_reach_of_its_network(name):
    options = {"resolution": 128} if name == "compressible" else {}
    problem = problems.get(name, **options)
    network, embedded = formed(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_ansatz(network, embedded, problem.reference())


def test_periodic_inputs_that_fix_a_slope_are_warned_of():
    network, embedded = formed(WoundBurgers())
    with pytest.warns(UserWarning, match="cannot follow the known solution of 'u' along 'x'"):
        check_ansatz(network, embedded, network.problem.reference())
    assert not misfits(formed(Burgers())[0].double(), False, Burgers().solution())


def test_a_lift_with_a_kink_at_the_seam_is_refused():
    network, embedded = formed(KinkedAllenCahn())
    with pytest.raises(InputError, match=r"periodic_u_x is not trained .* random network misses it by 4"):
        check_ansatz(network, embedded, None)


def test_allen_cahn_starts_from_its_profile_and_stays_periodic():
    network, _ = formed(AllenCahn())
    network.double()
    ends = torch.tensor([[-1.0, 0.3], [1.0, 0.3]], dtype=torch.float64)
    found = network.partials(network.at(ends, ["x"]))
    torch.testing.assert_close(found["x"][0], found["x"][1], atol=1e-9, rtol=0)
    start = torch.tensor([[0.3, 0.0], [-0.8, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(network(start)[:, 0], AllenCahn().profile(start[:, 0]), atol=1e-8, rtol=0)


def test_a_factor_that_does_not_vanish_is_refused():
    class Loose(Plain):
        def hard_constraints(self):
            return {"u": Hard(factor=lambda t: 1 + t, lift=lambda x: 0 * x, satisfies=("initial_u",))}

    network, _ = formed(Loose())
    with pytest.raises(InputError, match="initial_u is not trained because"):
        check_ansatz(network, False, None)


def test_compressible_flow_that_leaves_is_not_periodic():
    assert problems.get("compressible").periodic == {"x": 2.0}
    leaving = problems.get("compressible", boundary="outgoing")
    assert leaving.periodic == {}
    assert {c.name for c in leaving.soft_conditions(embedded=True)} == {"initial", "outgoing"}


# ---- points -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["sobol", "latin_hypercube", "hammersley", "uniform"])
def test_every_wall_is_sampled_from_end_to_end(sampler):
    problem = problems.get("poisson")
    points = points_of(problem, Dirichlet(u=0.0), 256, sampler)
    for axis in (0, 1):
        for end in (0.0, 1.0):
            along = points[points[:, axis] == end][:, 1 - axis]
            counts = torch.histc(along, 4, 0.0, 1.0)
            assert counts.min() >= 8, f"quarters of wall {axis}={end} have {counts.tolist()} points"


def test_walls_of_a_tiny_box_have_normals():
    class Tiny(Plain):
        domain = {"x": (0.0, 1e-6), "t": (0.0, 1e-9)}

    condition = Neumann(u=0.0)
    points = points_of(Tiny(), condition, 8).float()
    normal = condition.prepare(Tiny(), points)["normal"]
    assert normal[:, 0].abs().tolist() == [1.0] * 8
    assert Initial(u=0.0).pick(Tiny(), points).shape[0] == 0


# ---- references ---------------------------------------------------------------------------------------------------

FLAT = """
    import numpy as np
    from dcnn.pde import Initial, Problem, Solution

    class Flat(Problem):
        name, coordinates, fields, expensive = "flat", ("x", "t"), ("u",), True
        domain = {"x": (0.0, LENGTH), "t": (0.0, 1.0)}

        def residuals(self, u):
            return {"still": u.t}

        def conditions(self):
            return [Initial(u=VALUE)]

        def solve(self):
            return Solution({"x": np.linspace(0, LENGTH, 3), "t": np.zeros(1)}, {"u": np.full((3, 1), VALUE)})
"""


def test_an_edited_problem_has_a_reference_of_its_own(tmp_path, monkeypatch):
    """Also if it was edited within a second, while Python keeps bytecode."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "flat.py"
    found = []
    for value, length in (("1.0", "1.0"), ("2.0", "1.0"), ("2.0", "3.0")):
        path.write_text(textwrap.dedent(FLAT).replace("VALUE", value).replace("LENGTH", length))
        solution = problems.load_file(path).solution()
        found.append((solution.fields["u"].max(), solution.grid["x"].max()))
    assert found == [(1.0, 1.0), (2.0, 1.0), (2.0, 3.0)]
    assert problems.load_file(path).solution().fields["u"].max() == 2.0
    assert len(list((tmp_path / "dcnn/references").iterdir())) == 3


def test_a_subclass_written_at_a_prompt_has_a_reference_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Burgers(resolution=8).solution().fields["u"].max() > 0.5

    class Halved(Burgers):
        def solve(self):
            whole = super().solve()
            return Solution(whole.grid, {"u": whole.fields["u"] / 2})

    assert Halved(resolution=8).solution().fields["u"].max() < 0.5
    made: dict = {"Halved": Halved}
    exec("class Still(Halved):\n    def solve(self):\n        return None", made)  # its text is nowhere
    assert made["Still"](resolution=8).reference() is None


@pytest.mark.parametrize("name", ["heat", "burgers", "diffusion_reaction"])
def test_a_file_of_another_problem_is_refused(tmp_path, name):
    from dcnn.pde.file_solution import solution_in_file

    made = problems.get(name, resolution=8)
    key = next(iter(made.parameters))
    pdebench.write(tmp_path / "a.hdf5", [made.solution()], {key: 2 * made.parameters[key]})
    with pytest.raises(InputError, match=f"{key} = .* in the file, .* in the problem"):
        solution_in_file(made, tmp_path / "a.hdf5")
    pdebench.write(tmp_path / "b.hdf5", [made.solution()], made.parameters)
    assert solution_in_file(made, tmp_path / "b.hdf5").shape == made.solution().shape


def test_seed_and_sample_are_different_numbers():
    starts = [problems.get("diffusion_reaction", resolution=8, seed=a, sample=b).start() for a, b in ((0, 1), (1, 0))]
    assert not np.allclose(starts[0].fields["u"], starts[1].fields["u"])


# ---- ordinary equations ---------------------------------------------------------------------------------------------


class Decay(Problem):
    coordinates, fields, domain = ("t",), ("a", "b"), {"t": (0.0, 2.0)}

    def residuals(self, a, b):
        return {"a": a.t - b, "b": b.t + a}

    def conditions(self):
        return [Initial(a=0.0, b=1.0)]

    def solve(self):
        t = np.linspace(0, 2, 50)
        return Solution({"t": t}, {"a": np.sin(t), "b": np.cos(t)})


def test_errors_of_an_ordinary_equation_are_those_of_whole_curves():
    network = PdeNetwork(Decay(), width=4, depth=1).double()
    torch.nn.init.zeros_(network.head.weight)
    found = errors(network, Decay().solution())
    assert found["nrmse"] == pytest.approx(1.0)
    assert found["nrmse_domain"] == pytest.approx(1.0)


# ---- learnt parameters ----------------------------------------------------------------------------------------------


def test_a_parameter_without_data_is_refused():
    with pytest.raises(InputError, match="alpha is to be learnt, but there are no data"):
        Plain(trainable="alpha").check_posed()
    Plain(trainable="alpha").with_data([[0.5, 0.5]], u=[0.2]).check_posed()
    problems.get("heat", trainable="alpha", measured=5).check_posed()


def test_a_class_may_say_what_is_learnt():
    class Inverse(Plain):
        trainable = "alpha"

    assert list(Inverse().unknowns) == ["alpha"]
    assert list(Inverse(trainable=()).unknowns) == []
    assert Inverse(alpha=0.3).settled().alpha == pytest.approx(0.3)


def test_the_measured_heat_is_that_of_the_true_conductivity():
    exact = Heat()
    [seen] = [c for c in Heat(alpha=0.2, measured=200, noise=0.0).conditions() if isinstance(c, Sampled)]
    x, t = seen.points.T.numpy()
    decay = np.exp(-0.05 * exact.profile.wave_numbers()[:, None] ** 2 * t)
    expected = [exact.profile.evolve([a], decay[:, [i]])[0, 0] for i, a in enumerate(x)]
    np.testing.assert_allclose(seen.data["u"].numpy(), expected, atol=1e-12)


# ---- mistakes -------------------------------------------------------------------------------------------------------


def residual(function):
    return type("Wrong", (Plain,), {"residuals": function})


def condition(function):
    return type("Wrong", (Plain,), {"conditions": function})


NAN = float("nan")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: condition(lambda self: [])(), "no conditions: every constant may be a solution"),
        (lambda: residual(lambda self, u: {"f": torch.zeros(3)})(), "must be one number a point, found .3,. for 5"),
        (lambda: residual(lambda self, u, x: {"f": u.t - NAN * x})(), r"residual 'f' is not finite at \{'x'"),
        (lambda: condition(lambda self: [Sampled([[0.5, 2.0]], u=[1.0])])(), "1 of 1 points lie outside the domain"),
        (lambda: condition(lambda self: [Sampled([[0.5]], u=[1.0])])(), "points with 1 columns, coordinates are x, t"),
        (lambda: condition(lambda self: [Sampled([[0.5, 0.5]], u=[[1.0, 2.0]])])(), "need 1 values, found .1, 2."),
        (lambda: condition(lambda self: [Sampled([[0.5, NAN]], u=[1.0])])(), "points: 1 values are not finite"),
        (lambda: condition(lambda self: [Sampled([["a", "b"]], u=[1.0])])(), "not an array of numbers"),
        (lambda: condition(lambda self: [Initial(u=lambda x: x * NAN)])(), "'u': 4 values are not finite"),
        (lambda: condition(lambda self: [Initial(u=lambda x: x[:2])])(), r"one number a point, found \(2,\)"),
        (lambda: condition(lambda self: [Periodic("z")])(), "periodic condition along 'z'"),
    ],
)
def test_mistakes_of_a_statement_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make().check_posed()


@pytest.mark.parametrize(
    ("grid", "values", "message"),
    [
        ({"x": np.zeros((2, 2))}, np.zeros(4), "axis 'x' must be a list of finite numbers"),
        ({"x": np.array([0.0, NAN])}, np.zeros(2), "axis 'x' must be"),
        ({"x": np.zeros(3)}, np.zeros(4), "field 'u' has shape"),
    ],
)
def test_solutions_of_the_wrong_shape_are_named(grid, values, message):
    with pytest.raises(InputError, match=message):
        Solution(grid, {"u": values})


def test_a_solution_that_is_not_finite_is_refused():
    class Undefined(Plain):
        def solve(self):
            return Solution({"x": np.zeros(2), "t": np.zeros(1)}, {"u": np.array([[1.0], [NAN]])})

    with pytest.raises(InputError, match="1 values of 'u' are not finite"):
        Undefined().reference()


def test_messages_name_the_line_of_the_user(tmp_path):
    path = tmp_path / "own.py"
    text = textwrap.dedent(FLAT).replace("VALUE", "1.0").replace("LENGTH", "1.0")
    path.write_text(text.replace("return [Initial(u=1.0)]", "return [Initial(u=lambda x: x @ x.nothing)]"))
    with pytest.raises(InputError, match=r"own.py: conditions, line \d+ \(return \[Initial\(u=lambda x: x @ x.nothing"):
        problems.load_file(path)


def test_a_problem_knows_its_text(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(textwrap.dedent(FLAT).replace("VALUE", "1.0").replace("LENGTH", "1.0"))
    assert problems.load_file(path).source() == path.read_text()
    assert "class Heat(Problem)" in (problems.get("heat").source() or "")


def test_a_file_is_evaluated_with_the_network_that_was_trained(tmp_path):
    from dcnn.pde.build import build_pde
    from dcnn.results import as_config

    torch.manual_seed(0)
    task = build_pde(as_config({"problem": {"name": "advection", "parameters": {"resolution": 32}}}))
    pdebench.write(tmp_path / "a.hdf5", [task.reference], {"beta": 0.1})
    before = task.evaluate(task.network, "test")["nrmse"]
    assert task.evaluate_file(task.network, tmp_path / "a.hdf5")["nrmse"] == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize("name", ["lotka_volterra", "lorenz"])
def test_references_of_ordinary_equations_solve_them(name):
    problem = problems.get(name, resolution=3001)
    known = problem.solution()
    t = known.grid["t"]
    slopes = problem.slopes(*known.fields.values())
    for values, slope in zip(known.fields.values(), slopes, strict=True):
        inside = slice(5, -5)
        central = (values[2:] - values[:-2]) / (t[2] - t[0])
        assert np.abs(central - slope[1:-1])[inside].max() < 1e-3 * np.abs(slope).max()
    network, _ = formed(problem)
    start = network.double()(torch.zeros(1, 1, dtype=torch.float64))[0].tolist()
    assert start == [problem.parameters[f"{field}0"] for field in problem.fields]
    late = torch.linspace(*problem.domain["t"], 11)[1:]
    assert float((problem.hard_constraints()["x"].factor(late) - 1).abs().max()) < 0.4  # networks of one size
