"""Traced and compiled steps: values, gradients and runs of the usual one; what they do where there is no graph."""

import json
import logging
import os
import re
import sys
import time
from dataclasses import replace

import pytest
import torch
from lightning.fabric import Fabric
from torch import nn
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx

from dcnn import activations, atoms
from dcnn.atoms.neighbours import half_pairs
from dcnn.atoms.task import AtomsTask
from dcnn.losses import Fixed, Term, term_values, weighting
from dcnn.pde.build import build_pde
from dcnn.results import parse as validate
from dcnn.scaling import LabelScale
from dcnn.train import compiling, graphs
from dcnn.train.console import Console
from dcnn.train.flatten import flattened, rebuilt
from dcnn.train.graphs import GRAPHS, TOLERANCE, Graph, GraphStep, _difference, graph_step
from dcnn.train.loop import train
from dcnn.train.run import Run
from dcnn.train.step import Residuals

LOG = logging.getLogger("test_graphs")
PDES = {
    "reverse mode": {"problem": {"name": "advection", "fidelity": "scripts"}},
    "jets of first order": {"problem": {"name": "compressible", "fidelity": "scripts"}},
    "jets of second order": {
        "problem": {"name": "allen_cahn"},
        "network": {"hard": True, "activation": "integrated_silu"},
    },
    "waves": {"problem": {"name": "burgers"}, "network": {"scale_inputs": True, "residual": True, "adaptive": True}},
    "unknown": {"problem": {"name": "heat", "trainable": ["alpha"], "parameters": {"measured": 9}}},
}


def pde(name="reverse mode", network=None, **training):
    values = {
        "kind": "pde",
        "points": {"interior": 40, "boundary": 12, "initial": 20, "resample_every": 1},
        **PDES[name],
        "training": {"epochs": 3, **training},
        "steps_per_epoch": 4,
    }
    values["network"] = {"width": 8, "depth": 3, **values.get("network", {}), **(network or {})}
    torch.manual_seed(0)
    config = validate(values)
    return build_pde(config), config


def demo(count=12):
    return list(atoms.demo_dataset()[:count])


#: Networks that are traced in a second.
TINY = {
    "schnet": {"blocks": 1},
    "cgcnn": {"convolutions": 1},
    "dimenet_plus_plus": {"blocks": 1},
    "forcenet": {"blocks": 1},
    "gemnet": {"blocks": 1},
}


def fragments(count=12):
    """Frames of six to nine atoms: no two batches have the same number of pairs."""
    kept = [slice(9 - number % 4) for number in range(count)]
    return [
        replace(frame, z=frame.z[some], positions=frame.positions[some], forces=frame.forces[some])
        for frame, some in zip(demo(count), kept, strict=True)
    ]


def potential(name, frames=None, batch_size=3, overrides=None, normalization=False, **options):
    torch.manual_seed(0)
    frames = demo() if frames is None else frames
    terms = (Term("energy"), Term("forces", 10.0))
    network = atoms.build(name, normalization=normalization, **(overrides or {}))
    return AtomsTask(
        network,
        LabelScale.fit(frames, references="elements", unit="force_rms"),
        dict.fromkeys(("train", "validation", "test"), frames),
        terms,
        Fixed(terms),
        batch_size=batch_size,
        energy_per_atom=True,
        energy_unit_eV=1.0,
        **options,
    )


def usual(task, batch, step=0):
    """Values and gradients by ordinary autograd."""
    task.network.zero_grad()
    values = term_values(task.terms, task.residuals(task.network, batch))
    sum(term.weight_at(step) * values[term.name] for term in task.terms if term.name in values).backward()
    return values, [p.grad for p in task.network.parameters()]


def assert_the_same(task, step, batch, number=0):
    values, gradients = usual(task, batch, number)
    task.network.zero_grad()
    found = step(batch, number)
    for name, value in values.items():
        torch.testing.assert_close(found[name], value.detach(), rtol=1e-5, atol=1e-7)
    total = torch.cat([g.flatten() for g in gradients if g is not None]).norm()
    for p, expected in zip(task.network.parameters(), gradients, strict=True):
        assert (p.grad is None) == (expected is None)
        if expected is not None:
            assert p.grad.stride() == p.stride()
            assert (p.grad - expected).norm() <= 1e-5 * total


@pytest.mark.parametrize("name", [*PDES, "schnet", "dimenet_plus_plus"])
def test_one_graph_serves_all_batches(name):
    task = pde(name)[0] if name in PDES else potential(name, overrides=TINY[name])
    step = GraphStep(Residuals(task), task.terms, LOG)
    for batch in task.batches(0):
        assert_the_same(task, step, batch)
    assert len(step.graphs) == 1
    assert not step.failed


@pytest.mark.parametrize("name", ["schnet", "gemnet"])
def test_indices_are_inputs_and_not_constants(name):
    task = potential(name, overrides=TINY[name])
    task.network.cutoff = 1.4  # chains: the pairs depend on the order of the atoms
    step = GraphStep(Residuals(task), task.terms, LOG)
    line = torch.tensor([[1.2 * i + 0.1 * i % 2, 0.3 * (i % 3), 0.1 * i] for i in range(5)])
    lists = []
    for order in ([0, 1, 2, 3, 4], [0, 3, 1, 4, 2], [2, 0, 4, 1, 3]):
        chain = atoms.batch(z=[6, 1, 8, 6, 7], positions=line[order], cutoff=1.4)
        chain.energy, chain.forces = torch.zeros(1, dtype=torch.float64), torch.zeros(5, 3)
        assert_the_same(task, step, chain)
        lists.append((chain.pair_i.tolist(), chain.pair_j.tolist()))
    assert len({str(pairs) for pairs in lists}) == 3
    assert len(step.graphs) == 1
    assert not step.failed


SLOW = ("dimenet_plus_plus", "gemnet")  # thousands of operations to trace


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in TINY])
def test_one_graph_serves_batches_of_any_size(name, caplog):
    task = potential(name, fragments(24), overrides=TINY[name])
    step = graph_step("traced", Residuals(task), task.terms, task.weighting, LOG)
    sizes = set()
    with caplog.at_level(logging.INFO, logger=LOG.name):
        for batch in task.batches(0):
            assert_the_same(task, step, batch)
            sizes.add(len(batch.pair_i))
    assert len(sizes) > 3
    assert (step.made, step.failed) == (1, False)
    assert re.search(r"graph for batches of any size.* in 2 of them", caplog.text)  # checked with two batches


def test_a_graph_of_any_size_is_not_given_what_it_was_not_traced_for():
    """Sizes (atoms, 3, pairs, slots) when it was traced."""
    graph = Graph(None, (20, 3, 90, 16), any_size=True)
    assert graph.serves((21, 3, 80, 16))
    assert graph.serves((20, 3, 20, 16))
    assert not graph.serves((1, 3, 90, 16))
    by_chance = Graph(None, (90, 3, 90, 16), any_size=True)
    assert by_chance.serves((91, 3, 91, 16))
    assert not by_chance.serves((91, 3, 80, 16))


def test_what_cannot_be_traced_with_any_size_keeps_the_graph_of_one_size(monkeypatch, caplog):
    trace = graphs._traced

    def only_one_size(*inputs):
        if inputs[-1]:
            raise AssertionError("this size is data")
        return trace(*inputs)

    monkeypatch.setattr(graphs, "_traced", only_one_size)
    task = potential("schnet", [*demo(2), *fragments(6)], batch_size=1, overrides=TINY["schnet"])
    step = GraphStep(Residuals(task), task.terms, LOG)
    for number in (0, 1, 3, 4, 5, 0):
        assert_the_same(task, step, task._batchers["train"]([number]))
    assert "not possible, going on without (this size is data)" in caplog.text
    assert [graph.any_size for graph in step.graphs.values()] == [False]
    assert not step.failed


def test_batches_that_are_rare_get_no_graph():
    task = potential("schnet", overrides=TINY["schnet"])
    step = graph_step("traced", Residuals(task), task.terms, task.weighting, LOG)
    for _ in range(3):  # epochs, each with a smaller batch at its end
        for number in range(30):
            step(task._batchers["train"]([0, 1] if number < 29 else [0]), 0)
    assert step.missed.most_common(1)[0][1] == 3
    assert len(step.graphs) == step.made == 1


@pytest.mark.filterwarnings("ignore")  # of torch in its own compiler
@pytest.mark.parametrize("name", ["reverse mode", *(pytest.param(n, marks=pytest.mark.slow) for n in TINY)])
def test_a_real_compiler_gives_the_same_step_and_so_does_its_file_on_disk(monkeypatch, tmp_path, name):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    found = []
    for _ in range(2):
        torch._dynamo.reset()
        counters.clear()
        task = pde(name, network={"depth": 1})[0] if name in PDES else potential(name, overrides=TINY[name])
        step = GraphStep(Residuals(task), task.terms, LOG, compiled=True)
        first, second, *_ = task.batches(0)
        assert_the_same(task, step, first)
        assert_the_same(task, step, second)
        assert step.compiled
        assert step.graphs
        found.append([p.grad for p in task.network.parameters()])
        hits = counters["aot_autograd"]["autograd_cache_hit"]
    assert hits == 1
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True) if a is not None)


def test_weights_of_terms_may_change_with_the_step():
    task, _ = pde()
    task.terms = tuple(Term(t.name, weight=lambda step, k=k: (k + 1.0) * step) for k, t in enumerate(task.terms))
    step = GraphStep(Residuals(task), task.terms, LOG)
    batch = next(iter(task.batches(0)))
    for number in (1, 5):
        assert_the_same(task, step, batch, number)
    assert len(step.graphs) == 1


def test_many_shapes_go_on_without_graphs(caplog):
    task = potential("schnet")
    step = GraphStep(Residuals(task), task.terms, LOG)
    with caplog.at_level(logging.INFO, logger=LOG.name):
        for size in range(1, GRAPHS + 3):
            assert_the_same(task, step, task._batchers["train"](range(size)))
    assert caplog.text.count("other batches get none") == 1
    assert len(step.graphs) == GRAPHS


def test_a_shape_gets_a_graph_when_it_comes_back():
    task = potential("schnet")
    step = graph_step("traced", Residuals(task), task.terms, task.weighting, LOG)
    made = []
    for size in (1, 2, 1, 2, 3, 1, 1):
        assert_the_same(task, step, task._batchers["train"](range(size)))
        made.append(len(step.graphs))
    assert made == [0, 0, 0, 0, 0, 1, 1]


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    """An empty cache folder, and a compiler that returns the graph itself."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "machine_code", lambda graph, *_: graph)
    return tmp_path


def test_the_folder_is_the_users_unless_another_is_given(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for given in ("", "/tmp/torchinductor_someone"):  # the second is what torch itself sets
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", given)
        assert compiling.folder() == tmp_path / "dcnn" / "compiled"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/somewhere")
    assert str(compiling.folder()) == "/somewhere"


@pytest.mark.parametrize(("left", "compiled"), [(1e5, True), (1.0, False), (None, False)])
def test_auto_is_compiled_where_it_pays(no_compiler, caplog, left, compiled):
    task, _ = pde()
    given = None if left is None else lambda: left
    with caplog.at_level(logging.INFO, logger=LOG.name):
        step = graph_step("auto", Residuals(task), task.terms, task.weighting, LOG, after=0, left=given)
        assert_the_same(task, step, next(iter(task.batches(0))))
    assert step.compiled == compiled
    assert (left is None) == ("compiling would take" not in caplog.text)
    assert step.seconds > 0


def until_it_has_ended(step):
    while step.awaited is not None and step.awaited.process.is_alive():
        time.sleep(0.01)


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems compile in the process that trains")


@on_linux
def test_another_process_compiles_while_steps_are_traced(no_compiler, monkeypatch, caplog):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    task, _ = pde()
    batch = next(iter(task.batches(0)))
    with caplog.at_level(logging.INFO, logger=LOG.name):
        for known in (False, True):  # what is on disk is loaded at once
            left = {"left": lambda: 1e5, "background": True}
            step = graph_step("auto", Residuals(task), task.terms, task.weighting, LOG, after=0, **left)
            assert_the_same(task, step, batch)
            assert step.compiled == known
            until_it_has_ended(step)
            assert_the_same(task, step, batch)
            assert step.compiled
            assert step.awaited is None
    assert caplog.text.count("another process compiles") == 1


@on_linux
def test_a_newer_graph_is_not_replaced_by_what_was_compiled_meanwhile(no_compiler, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    task, _ = pde()
    batch = next(iter(task.batches(0)))
    left = {"left": lambda: 1e5, "background": True}
    step = graph_step("auto", Residuals(task), task.terms, task.weighting, LOG, after=0, **left)
    step(batch, 0)
    ((kind, graph),) = step.graphs.items()
    newer = step.graphs[kind] = replace(graph, evaluate=lambda *inputs: graph.evaluate(*inputs))
    until_it_has_ended(step)
    assert_the_same(task, step, batch)
    assert step.graphs[kind] is newer


@on_linux
def test_a_process_that_cannot_compile_leaves_traced_steps(no_compiler, monkeypatch, caplog):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(compiling, "machine_code", lambda *_: os._exit(3))
    task, _ = pde()
    batch = next(iter(task.batches(0)))
    left = {"left": lambda: 1e5, "background": True}
    step = graph_step("auto", Residuals(task), task.terms, task.weighting, LOG, after=0, **left)
    for _ in range(2):
        assert_the_same(task, step, batch)
        until_it_has_ended(step)
    assert_the_same(task, step, batch)
    assert not step.compiled
    assert "compiling failed, going on with traced steps" in caplog.text


@on_linux
def test_a_stage_that_ends_ends_the_process_that_compiles(no_compiler, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(compiling, "machine_code", lambda *_: time.sleep(1000))
    task, _ = pde()
    left = {"left": lambda: 1e5, "background": True}
    step = graph_step("auto", Residuals(task), task.terms, task.weighting, LOG, after=0, **left)
    step(next(iter(task.batches(0))), 0)
    process = step.awaited.process
    assert process.is_alive()
    step.close()
    assert not process.is_alive()


def test_what_was_compiled_before_is_expected_to_take_less(no_compiler):
    task, _ = pde()
    batch = next(iter(task.batches(0)))
    seconds = []
    for kind in ("traced", "compiled", "traced"):
        step = graph_step(kind, Residuals(task), task.terms, task.weighting, LOG, after=0)
        step(batch, 0)
        tensors, _ = flattened(batch, step.parts)
        inputs = ([*step.trained.values(), *step.residuals.buffers()], tensors, torch.ones(len(step.names)))
        seconds.append(compiling.expected_seconds(graphs._traced(step._usual(batch), *inputs, False), inputs))
    (record,) = (no_compiler / "made").glob("*.json")
    operations = json.loads(record.read_text())["operations"]
    record.write_text(json.dumps({"operations": operations, "seconds": 100.0}))
    assert compiling.expected_seconds(graphs._traced(step._usual(batch), *inputs, False), inputs) == pytest.approx(20.0)
    assert seconds[0] == pytest.approx(compiling.SECONDS_AN_OPERATION * operations)
    record.write_text("half of a fi")  # two runs may write at once
    assert compiling.expected_seconds(graphs._traced(step._usual(batch), *inputs, False), inputs) == pytest.approx(
        compiling.SECONDS_TO_LOAD * seconds[0]
    )


@pytest.mark.parametrize("trouble", ["No working C++ compiler found", "its numbers differ from the usual ones"])
def test_trouble_is_logged_and_the_step_is_a_traced_one(monkeypatch, tmp_path, caplog, trouble):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # nothing is noted about graphs that are not compiled

    def broken(graph, *_):
        if "compiler" in trouble:
            raise RuntimeError(f"{trouble}\nand more")
        return lambda *inputs: tuple(2 * t for t in graph(*inputs))

    monkeypatch.setattr(compiling, "machine_code", broken)
    task, _ = pde()
    step = GraphStep(Residuals(task), task.terms, LOG, compiled=True)
    for batch in task.batches(0):
        assert_the_same(task, step, batch)
    assert step.graphs
    assert not step.compiled
    assert [r.levelname for r in caplog.records if f"traced one ({trouble})" in r.message] == ["WARNING"]
    assert not list(tmp_path.glob("made/*"))


def test_wrong_code_is_compiled_again_with_other_options(monkeypatch, tmp_path):
    """The next run begins with the options that were right."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    tried = []

    def wrong_at_first(graph, _, options):
        tried.append(options)
        factor = 2 if options is compiling.OPTIONS[0] else 1
        return lambda *inputs: tuple(factor * t for t in graph(*inputs))

    monkeypatch.setattr(compiling, "machine_code", wrong_at_first)
    for expected in (list(compiling.OPTIONS), [compiling.OPTIONS[1]]):
        task, _ = pde()
        step = GraphStep(Residuals(task), task.terms, LOG, compiled=True)
        for batch in task.batches(0):
            assert_the_same(task, step, batch)
        assert step.compiled
        assert step.graphs
        assert tried == expected
        tried.clear()


def test_a_graph_that_differs_is_not_used(monkeypatch, caplog):
    traced = graphs._traced
    monkeypatch.setattr(graphs, "_traced", lambda *a: _Twice(traced(*a)))
    task, _ = pde()
    step = GraphStep(Residuals(task), task.terms, LOG)
    for batch in task.batches(0):
        assert_the_same(task, step, batch)
    assert not step.graphs
    assert [r.levelname for r in caplog.records if "it differs from the usual one" in r.message] == ["WARNING"]


class _Twice(nn.Module):
    """A graph whose numbers are wrong."""

    def __init__(self, traced):
        super().__init__()
        self.traced, self.graph = traced, traced.graph

    def forward(self, *inputs):
        return tuple(2 * t for t in self.traced(*inputs))


@pytest.mark.parametrize(
    ("network", "weights", "reason"),
    [
        (nn.Linear(1, 1), "uncertainty", "depend on their values"),
        (nn.BatchNorm1d(3, momentum=None), "fixed", "statistics"),
        (nn.InstanceNorm1d(3, track_running_stats=True), "fixed", "statistics"),
        (nn.Dropout(), "fixed", "dropout"),
    ],
)
def test_what_has_no_graph_says_why(caplog, network, weights, reason):
    terms = (Term("a"), Term("b"))
    with caplog.at_level(logging.INFO, logger=LOG.name):
        assert graph_step("traced", network, terms, weighting.get(weights, terms), LOG) is None
    assert reason in caplog.text


def with_batch_norm(name):
    if name == "pde":
        return pde(network={"batch_norm": True})[0]
    return potential(name, overrides=TINY[name], normalization=True)


@pytest.mark.parametrize("name", ["cgcnn", "forcenet", "pde"])
def test_batch_statistics_are_those_of_the_usual_step(name):
    task, twin = with_batch_norm(name), with_batch_norm(name)
    for each in (task, twin):
        each.cast(torch.float64)
        each.network.train()
    step = GraphStep(Residuals(task), task.terms, LOG, after=1)
    for batch in list(task.batches(0))[:4]:
        values, gradients = usual(twin, batch)
        found = step(batch, 0)
        for term, value in values.items():
            torch.testing.assert_close(found[term], value.detach(), rtol=1e-10, atol=1e-12)
        for p, expected in zip(task.network.parameters(), gradients, strict=True):
            torch.testing.assert_close(p.grad, expected, rtol=1e-8, atol=1e-10)
        for mine, right in zip(task.network.buffers(), twin.network.buffers(), strict=True):
            torch.testing.assert_close(mine, right, rtol=1e-10, atol=1e-12)
    assert step.made == 1
    assert step.graphs
    assert not step.failed


def test_statistics_that_differ_are_seen():
    right = [torch.ones(2), torch.ones(2), torch.tensor([1.0, 2.0]), torch.tensor(7)]
    wrong = [*right[:2], torch.tensor([1.0, 2.1]), right[3]]
    assert _difference(right, right, 1) == 0
    assert _difference(wrong, right, 1) > TOLERANCE[torch.float32]
    assert _difference([*right[:3], torch.tensor(8)], right, 1) > TOLERANCE[torch.float32]


def test_a_dead_network_has_a_graph_too():
    """Its gradient is rounding error, of which no digit agrees."""
    right = [torch.tensor([0.25, 0.0]), torch.tensor([5.5e-9, 0.0]), None]
    assert _difference([right[0], torch.tensor([4.0e-9, 1e-9]), None], right, 2) < TOLERANCE[torch.float32]
    wrong = [right[0], torch.tensor([1e-6, 0.0]), None]
    assert _difference(wrong, right, 2) > TOLERANCE[torch.float32]


def test_a_batch_is_taken_apart_and_put_together():
    task = potential("gemnet")
    batch = next(iter(task.batches(0)))
    _ = batch.neighbourhoods
    tensors, key = flattened(batch, ("neighbourhoods",))
    twin = rebuilt(batch, ("neighbourhoods",), [t.clone() for t in tensors])
    again, same = flattened(twin, ("neighbourhoods",))
    assert key == same
    assert all(a is not b and torch.equal(a, b) for a, b in zip(tensors, again, strict=True))
    assert twin.n_systems == batch.n_systems
    assert flattened(task._batchers["train"]([0]))[1] != flattened(batch)[1]


def run_in(folder, task, config, resume=False):
    run = Run(folder) if resume else Run.create(folder, config)
    return train(Fabric(accelerator="cpu", devices=1), task, config, run, Console(), resume)


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_a_traced_run_is_the_usual_run_and_resumes(tmp_path, optimizer):
    stages = [{"optimizer": optimizer, "learning_rate": 0.01, "inner_iterations": 2, "dtype": "float64"}]
    settings = {"stages": stages, "ema": 0.9}
    expected = run_in(tmp_path / "usual", *pde(**settings))
    found = run_in(tmp_path / "traced", *pde(**settings, step="traced"))
    assert found.test["loss"] == pytest.approx(expected.test["loss"], rel=1e-6)
    assert "traced step: graph for batches of one size" in (tmp_path / "traced" / "log.txt").read_text()

    task, config = pde(**settings, step="traced")
    evaluate, calls = task.evaluate, []

    def stopping(network, split):
        calls.append(split)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return evaluate(network, split)

    task.evaluate = stopping
    with pytest.raises(KeyboardInterrupt):
        run_in(tmp_path / "parts", task, config)
    again = run_in(tmp_path / "parts", *pde(**settings, step="traced"), resume=True)
    assert again.test["loss"] == pytest.approx(found.test["loss"], rel=1e-12)


def test_tanh_in_a_trace_has_all_its_derivatives():
    x, tanh = torch.linspace(-6, 6, 31, dtype=torch.float64), activations.get("tanh")
    traced = make_fx(lambda t: tanh.derivatives(t, 4))(x)
    torch.testing.assert_close(traced(x), tuple(tanh.derivatives(x, 4)), rtol=1e-12, atol=1e-13)

    def slope_of_third(t):
        t = t.detach().requires_grad_()
        return torch.autograd.grad(tanh.derivatives(t, 3)[3].sum(), t)[0]

    torch.testing.assert_close(make_fx(slope_of_third)(x)(x), tanh.derivative(x, 4), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("stretch", "shared"), [(1.0, True), (1.7, False)])
def test_batches_of_a_small_molecule_have_one_shape(stretch, shared):
    """Although atoms move in and out of the cutoff; of a stretched one only half of the pairs are within it."""
    frames = [replace(f, positions=f.positions * (1.6 + 0.1 * k) * stretch) for k, f in enumerate(demo(6))]
    task = potential("schnet", frames, one_shape=True, batch_size=2)
    assert len({len(half_pairs(frame.positions, 6.0)) for frame in frames}) > 1
    batches = list(task.batches(0))
    assert (len({len(batch.pair_i) for batch in batches}) == 1) == shared
    plain = potential("schnet", frames, batch_size=2)
    for ours, theirs in zip(batches, plain.batches(0), strict=True):
        for name, residual in plain.residuals(plain.network, theirs).items():
            torch.testing.assert_close(task.residuals(task.network, ours)[name], residual, rtol=1e-5, atol=1e-6)


def test_a_graph_that_cannot_take_a_batch_gives_way_to_the_usual_step(caplog):
    """A size may have been a constant by chance: the run goes on, with the right gradients."""
    residuals = nn.Linear(3, 1).double()
    residuals.forward = lambda batch: {"value": nn.functional.linear(batch, residuals.weight, residuals.bias)}
    log = logging.getLogger("refusing graph")
    step = GraphStep(residuals, [Term("value")], log)
    step(torch.ones(4, 3, dtype=torch.float64), 0)

    def refuse(*_):
        raise RuntimeError("The expanded size of the tensor (8) must match the existing size (9)")

    step.graphs = {kind: replace(graph, evaluate=refuse) for kind, graph in step.graphs.items()}
    assert step.graphs
    with caplog.at_level(logging.WARNING, logger="refusing graph"):
        values = step(2 * torch.ones(4, 3, dtype=torch.float64), 1)
    assert "going on without" in caplog.text
    expected = (2 * residuals.weight.sum() + residuals.bias).square()
    torch.testing.assert_close(values["value"], expected.detach()[0])
    assert residuals.weight.grad is not None
