"""The task of a PDE: residuals against autograd, points, causal weights, windows of time, honest errors."""

import itertools
import math

import numpy as np
import pytest
import torch

from dcnn.errors import InputError
from dcnn.pde import Hard, problems
from dcnn.pde.build import build_pde
from dcnn.pde.solution_errors import errors, nrmse, predict, thinned
from dcnn.pde.term_scales import term_units
from dcnn.pde.windows import Continued, Windows
from dcnn.results import parse as validate

SMALL = {"interior": 64, "boundary": 16, "initial": 16}


def task(name="advection", points=None, network=None, loss=None, problem=None, dtype=torch.float64, **top):
    config = {
        "kind": "pde",
        "problem": {"name": name, **(problem or {})},
        "network": {"width": 8, "depth": 2, **(network or {})},
        "points": {**SMALL, **(points or {})},
        "loss": loss or {},
        "training": {"steps": 1},
        **top,
    }
    torch.manual_seed(0)
    found = build_pde(validate(config))
    found.cast(dtype)
    return found


def batch_of(found, epoch=0):
    return next(iter(found.batches(epoch)))


def by_name(found):
    return found.residuals(found.network, batch_of(found))


def test_residuals_are_those_of_nested_autograd():
    found = task()
    residuals, groups = by_name(found), batch_of(found).groups
    x = groups[0].located.points.clone().requires_grad_()
    (slope,) = torch.autograd.grad(found.network(x).sum(), x)
    torch.testing.assert_close(residuals["advection"], slope[:, 1] + 0.1 * slope[:, 0])
    initial = groups[1].located.points[:16]
    expected = found.network(initial)[:, 0] - found.problem.profile(initial[:, 0])
    torch.testing.assert_close(residuals["initial_u"], expected)
    low, high = groups[1].located.points[16:].chunk(2)
    torch.testing.assert_close(residuals["periodic_u"], (found.network(low) - found.network(high))[:, 0])


@pytest.mark.parametrize("name", problems.NAMES)
def test_every_problem_has_finite_terms_and_gradients(name):
    options = {"parameters": {"resolution": 8}} if "resolution" in problems.get(name).options else {}
    found = task(name, problem=options, loss={"scale_terms": True}, network={"scale_inputs": True})
    residuals = by_name(found)
    assert set(residuals) == {term.name for term in found.terms}
    loss = sum(term.weight * term.value(residuals[term.name]) for term in found.terms)
    loss.backward()
    for parameter in found.network.parameters():
        assert torch.isfinite(parameter.grad).all()


@pytest.mark.parametrize("name", ["advection", "compressible", "diffusion_reaction"])
def test_the_set_ups_of_the_scripts_can_be_evaluated(name):
    found = task(name, problem={"fidelity": "scripts", "parameters": {"resolution": 32}})
    residuals = by_name(found)
    assert "f" in residuals
    assert all(torch.isfinite(r).all() for r in residuals.values())
    assert found.collocation.shared
    assert len(residuals["f"]) >= SMALL["interior"] + SMALL["boundary"]  # also taken on the boundary


def test_terms_of_weight_zero_are_not_computed():
    found = task(loss={"weights": {"periodic_u": 0.0, "initial": 5.0}})
    assert set(by_name(found)) == {"advection", "initial_u"}
    assert {term.name: term.weight for term in found.terms}["initial_u"] == 5.0
    data_only = task(loss={"weights": {"residual": 0.0}})
    assert set(by_name(data_only)) == {"initial_u", "periodic_u"}
    assert all(group.interior == 0 for group in batch_of(data_only).groups)


def test_conditions_that_hold_by_construction_are_no_terms():
    assert [t.name for t in task(network={"modes": 2}).terms] == ["advection", "initial_u"]
    assert [t.name for t in task(network={"modes": 2, "hard": True}).terms] == ["advection"]


def test_scaled_terms_have_the_units_of_their_fields():
    problem = problems.get("compressible")
    units = term_units(problem, problem.soft_conditions())
    assert units["initial_rho"] == pytest.approx(problem.scales()["rho"][1])
    # ρ_t + ρ v_x + v ρ_x with independent normal fields, T/2 = 1/2 and L/2 = 1
    (rho, a), (v, b) = (problem.scales()[field] for field in ("rho", "v"))
    expected = math.sqrt((2 * a) ** 2 + (rho**2 + a**2) * b**2 + (v**2 + b**2) * a**2)
    assert units["mass"] == pytest.approx(expected, rel=0.05)


def test_fixed_points_are_prepared_once_and_new_ones_come_when_asked_for():
    fixed = task(steps_per_epoch=3)
    assert len({id(points) for epoch in (0, 1) for points in fixed.batches(epoch)}) == 1
    moving = task(points={"resample_every": 2}, steps_per_epoch=4)
    first, again = ([b.interior for b in moving.batches(0)] for _ in range(2))
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[1], first[2])
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = task(points={"resample_every": 2}, steps_per_epoch=4, seed=1)
    assert not torch.equal(first[0], batch_of(other).interior)


def test_processes_share_the_interior_points():
    found = task()
    whole = batch_of(found).interior
    parts = [next(iter(found.batches(0, rank, 2))).interior for rank in range(2)]
    assert torch.equal(torch.stack(parts, 1).flatten(0, 1), whole)


def test_adaptive_points_go_where_the_residual_is_large():
    found = task("heat", points={"adaptive": True, "resample_every": 1, "interior": 200})
    found.problem.evaluate = lambda partials, points, everywhere: {"heat": torch.where(points[:, 0] < 0.1, 100.0, 0.01)}
    first, second = (batch_of(found, epoch).interior[:, 0] for epoch in (0, 1))
    assert (first < 0.1).double().mean() < 0.2
    assert (second < 0.1).double().mean() > 0.3


def test_points_of_a_fast_start_are_even_in_logarithmic_time():
    found = task("allen_cahn", points={"interior": 4096}, network={"transient": 0.01})
    t = batch_of(found).interior[:, 1]
    share = torch.log1p(t / 0.01) / math.log(101)
    torch.testing.assert_close(share.sort().values, torch.linspace(0, 1, 4096, dtype=torch.float64), atol=2e-3, rtol=0)
    assert found._fresh(1).interior[:, 1].mean() == pytest.approx(0.5, abs=0.02)  # the judgement stays uniform


def test_equations_are_taken_from_the_time_on_that_hard_constraints_begin_at(monkeypatch):
    def constraints(begin):
        return lambda self: {"u": Hard(lambda t: torch.relu(t - max(begin, 0)), self.profile, ("initial_u",), begin)}

    slow = {"problem": {"parameters": {"alpha": 1e-4}}}  # so that the lift is close to the solution for a while
    heat = type(problems.get("heat"))
    monkeypatch.setattr(heat, "hard_constraints", constraints(0.05))
    assert batch_of(task("heat", **slow)).interior[:, 1].min() < 0.05  # without them the start is yet to be learnt
    times = batch_of(task("heat", **slow, network={"hard": True})).interior[:, 1]
    assert 0.05 < times.min() < 0.1
    assert 0.95 < times.max() < 1
    monkeypatch.setattr(heat, "hard_constraints", constraints(-0.5))
    found = task("heat", **slow, network={"hard": True})
    with pytest.raises(InputError, match=r"hard constraints begin at t = -0.5, but t is 0 to 1"):
        batch_of(found)


def test_causal_weights_fall_with_the_losses_before():
    found = task(points={"causal": 3.0, "interior": 100}, loss={"weights": {"advection": 2.0}})
    plain = found._residuals(found.problem, found.network, batch_of(found))["advection"]
    weighted = by_name(found)["advection"]
    times = batch_of(found).interior[:, 1]
    assert torch.equal(times, times.sort().values)
    size, before = 4, 0.0  # 100 points in 32 slices: the first 25 hold 4 each
    for k in range(25):
        rows = slice(k * size, (k + 1) * size)
        torch.testing.assert_close(weighted[rows], plain[rows] * math.exp(-0.5 * 3.0 * before))
        before += float(2.0 * plain[rows].detach().square().mean())


def test_points_of_the_judgement_are_fresh():
    found = task(points={"sampler": "uniform"})
    trained, validated, tested = batch_of(found).interior, found._fresh(0).interior, found._fresh(1).interior
    for a, b in ((trained, validated), (trained, tested), (validated, tested)):
        assert torch.cdist(a, b).min() > 0


# ---- windows of time ----


def marching(name="advection", windows=3, **options):
    return task(name, points={"time_windows": windows}, network={"scale_inputs": True, "modes": 2}, **options)


def test_each_window_answers_for_its_own_time():
    found = marching().network
    for k, network in enumerate(found.networks):
        torch.nn.init.zeros_(network.head.weight)
        torch.nn.init.constant_(network.head.bias, float(k))
    t = torch.tensor([1.9, 0.1, 0.7, 0.0, 2.0, 1.4], dtype=torch.float64)
    x = torch.stack([torch.rand(6, dtype=torch.float64), t], 1)
    assert found(x)[:, 0].tolist() == [2, 0, 1, 0, 2, 2]
    assert found.partials(found.at(x, ["x"]))[""][:, 0].tolist() == [2, 0, 1, 0, 2, 2]


def test_partials_of_windows_are_those_of_autograd():
    network = marching("compressible").network
    x = network.problem.stretch(torch.rand(40, 2, dtype=torch.float64)).requires_grad_()
    (slope,) = torch.autograd.grad(network(x)[:, 1].sum(), x)
    found = network.partials(network.at(x.detach(), ["x", "t"]))
    torch.testing.assert_close(found["x"][:, 1], slope[:, 0])
    torch.testing.assert_close(found["t"][:, 1], slope[:, 1])


def test_a_window_starts_from_the_end_and_the_weights_of_the_one_before():
    found = marching()
    network = found.network
    torch.nn.init.ones_(network.networks[0].head.bias)
    found.begin(1)
    assert torch.equal(network.networks[2].head.bias, network.networks[0].head.bias)
    assert {k for k in range(3) for p in network.networks[k].parameters() if p.requires_grad} == {1}
    group = batch_of(found).groups[1]
    assert isinstance(group.placed[0].condition, Continued)
    start = group.located.points
    assert start[:, 1].unique().tolist() == pytest.approx([2 / 3])
    torch.testing.assert_close(group.placed[0].prepared["u"], network.networks[0](start)[:, 0].detach())
    interior = batch_of(found).interior[:, 1]
    assert interior.min() >= 2 / 3
    assert interior.max() <= 4 / 3
    torch.testing.assert_close(
        by_name(found)["initial_u"], (network.networks[1](start) - network.networks[0](start))[:, 0]
    )


def test_hard_constraints_hold_in_the_first_window_and_shape_the_others():
    found = task(points={"time_windows": 3}, network={"hard": True, "modes": 2})
    x = torch.rand(9, 2, dtype=torch.float64)
    x[:, 1] = 0.0
    torch.testing.assert_close(found.network(x)[:, 0], found.problem.profile(x[:, 0]))
    assert set(by_name(found)) == {"advection"}
    found.begin(1)
    assert set(by_name(found)) == {"advection", "initial_u"}
    x[:, 1] = 1.0
    second = found.network.networks[1]
    expected = found.problem.profile(x[:, 0]) + 1.0 * second.hidden(second.embedding(x))[:, 0]
    torch.testing.assert_close(second(x)[:, 0], expected)


def test_windows_may_grow_with_time():
    network = Windows(problems.get("advection"), 3, transient=0.1)
    ratio = [(b + 0.1) / (a + 0.1) for a, b in itertools.pairwise(network.edges)]
    assert ratio == pytest.approx([ratio[0]] * 3)
    assert (network.edges[0], network.edges[-1]) == (0.0, pytest.approx(2.0))


def test_windows_carry_initial_derivatives_on():
    found = task("wave", points={"time_windows": 2})
    found.begin(1)
    prepared = next(p for g in batch_of(found).groups for p in g.placed if p.condition.name == "initial").prepared
    assert set(prepared) == {"u", "u_t"}
    assert prepared["u_t"].abs().max() > 0


@pytest.mark.parametrize(
    ("name", "network", "message"),
    [
        ("poisson", {}, "no coordinate t"),
        ("advection", {"batch_norm": True}, "network.batch_norm cannot be combined"),
    ],
)
def test_what_windows_cannot_do_is_said(name, network, message):
    with pytest.raises(InputError, match=message):
        Windows(problems.get(name), 2, **network)


# ---- honest errors ----


def test_nrmse_is_the_mean_over_times_of_relative_errors():
    truth = np.array([[[3.0, 1.0], [4.0, 1.0]]])  # (fields, x, t)
    found = truth + np.array([[[5.0, 0.5], [0.0, 0.5]]])
    assert nrmse(found, truth, timed=True).tolist() == pytest.approx([(1.0 + 0.5) / 2])
    assert nrmse(found, truth, timed=False).tolist() == pytest.approx([math.sqrt(25.5 / 27)])


def test_a_constant_network_scores_as_the_constant_predictor_and_is_called_collapsed():
    found = task("compressible", problem={"parameters": {"resolution": 32}}, network={"scale_fields": True})
    means = torch.tensor([found.reference.fields[f].mean() for f in found.problem.fields])
    offset, unit = (torch.tensor([s[i] for s in found.problem.scales().values()]) for i in (0, 1))
    torch.nn.init.zeros_(found.network.head.weight)
    found.network.head.bias.data = ((means - offset) / unit).double()
    result = found.evaluate(found.network, "test")
    assert result["nrmse"] == pytest.approx(result["constant_nrmse"], rel=1e-6)
    assert result["collapsed"] is True
    assert result["residual_rms_mass"] == 0.0  # the trap: a constant solves the equations
    assert {"nrmse_rho", "nrmse_v", "nrmse_p", "mse", "nrmse_domain", "terms"} <= result.keys()
    assert set(result["terms"]) == {term.name for term in found.terms}


def test_a_live_network_is_not_called_collapsed():
    found = task()
    assert found.evaluate(found.network, "test")["collapsed"] is False


def test_the_exact_solution_has_no_error():
    found = task("advection", network={"hard": True})
    profile, beta = found.problem.profile, found.problem.beta
    found.network.forward = lambda x: profile(x[:, :1] - beta * x[:, 1:])
    assert errors(found.network, found.reference)["nrmse"] < 1e-12
    assert errors(found.network, found.reference, coarse=True)["nrmse_domain"] < 1e-12


def test_validation_looks_at_part_of_the_grid_at_all_times():
    reference = problems.get("advection").reference()
    part = thinned(reference, 20_000)
    assert part.shape[1] == reference.shape[1]
    assert 10_000 < math.prod(part.shape) < 40_000
    assert errors(task().network, reference, coarse=True).keys() == errors(task().network, reference).keys()


def test_many_points_are_predicted_in_parts(monkeypatch):
    monkeypatch.setattr("dcnn.pde.solution_errors.CHUNK", 10)
    network, points = task().network, np.random.default_rng(0).random((33, 2))
    expected = network(torch.as_tensor(points)).detach().numpy()
    np.testing.assert_allclose(predict(network, points), expected, rtol=1e-13)


def test_a_regularised_problem_is_judged_by_the_true_one():
    problem = {"parameters": {"resolution": 32}, "regularise": {"eta": 0.5}}
    found = task("compressible", problem=problem)
    assert found.problem.eta == 0.5
    assert found.truth.eta == 1e-8
    fresh = found._fresh(1)
    true = found._residuals(found.truth, found.network, fresh)["momentum"]
    expected = math.sqrt(float(true.detach().square().mean()))
    assert found.evaluate(found.network, "test")["residual_rms_momentum"] == pytest.approx(expected)
    assert not torch.allclose(true, found._residuals(found.problem, found.network, fresh)["momentum"])


def test_learnt_parameters_are_reported_and_stored():
    found = task("heat", problem={"trainable": ["alpha"], "parameters": {"alpha": 0.1, "measured": 20}})
    found.problem.unknowns["alpha"].data.fill_(0.3)
    assert found.evaluate(found.network, "validation")["parameter_alpha"] == pytest.approx(0.3)
    assert found.state()["parameters"]["alpha"] == pytest.approx(0.3)


def test_a_learnt_parameter_is_judged_by_the_solution_for_the_value_found():
    settings = {"alpha": 0.3, "measured": 4, "resolution": 16}
    found = task("heat", problem={"parameters": settings, "trainable": ["alpha"]})
    with torch.no_grad():
        found.problem.unknowns["alpha"].fill_(0.05)
    expected = problems.get("heat", alpha=0.05, resolution=16).solution()
    np.testing.assert_allclose(found.reference.fields["u"], expected.fields["u"], atol=1e-8)
    judged = found.evaluate(found.network, "test")
    assert judged["mse"] == pytest.approx(errors(found.network, expected)["mse"])


def test_a_misspelt_weight_is_named():
    with pytest.raises(InputError, match=r"unknown term in loss.weights 'inital_u'; did you mean 'initial_u'"):
        task(loss={"weights": {"inital_u": 2.0}})


def test_points_that_are_learnt_by_heart_become_more(caplog):
    found = task("poisson", points={"interior": 8, "grow": True}, network={"hard": True}, steps_per_epoch=1)
    list(found.batches(1))
    assert found.grown == 1
    optimizer = torch.optim.LBFGS(found.network.parameters(), max_iter=300, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = by_name(found)["poisson"].square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    [more] = found.batches(1)
    assert (found.grown, len(more.interior)) == (2, 16)
    assert "the loss on fresh points is" in caplog.text
    twin = task("poisson", points={"interior": 8, "grow": True}, network={"hard": True}, steps_per_epoch=1)
    twin.load_state(found.state())
    assert len(batch_of(twin).interior) == 16
