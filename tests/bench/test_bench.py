"""Benchmarks: the same work on both sides, honest statistics, memory that is really counted, one command."""

import json
import re
import sys

import ase.io
import pytest
import torch
from ase.build import bulk
from ase.calculators.emt import EMT
from typer.testing import CliRunner

from dcnn.atoms import build, collate, demo_dataset
from dcnn.atoms.models import PAPER
from dcnn.bench import memory, plain_networks, timing, to_error
from dcnn.bench.pair import build_pair
from dcnn.bench.pde_steps import compare_pde
from dcnn.bench.plain_networks import check_same
from dcnn.bench.potential_steps import compare_atoms
from dcnn.bench.steps import training_step
from dcnn.bench.timing import StepRatio, interleaved
from dcnn.cli.bench import app
from dcnn.errors import DcnnError, InputError
from dcnn.train import compiling

FEW = {"num_domain": 30, "num_boundary": 10, "num_initial": 20, "width": 8, "resolution": 16}


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    """Few points, and the number of threads of the other tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("dcnn.bench.pde_steps.build_pair", lambda name, activation: small(name, activation))
    monkeypatch.setattr("dcnn.bench.pde_steps.peak_memory_mb", lambda side, *_, **__: 7.0 if side == "deepxde" else 3.0)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


def small(name="advection", activation="tanh"):
    return build_pair(name, activation, **FEW)


def test_steps_take_turns_and_warm_up_does_not_count(monkeypatch):
    ticks, order = iter(range(1000)), []
    monkeypatch.setitem(timing.CLOCKS, "wall", lambda: next(ticks))
    found = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert order == [*"a" * timing.STEPS, *"b" * timing.STEPS] * (2 + timing.WARM_UP)
    assert found == dict.fromkeys("ab", (1e3 / timing.STEPS,) * 2)


def test_the_ratio_is_that_of_each_round():
    """A machine that is ten times slower in one round changes no ratio."""
    row = StepRatio("n", "p", (1.0, 10.0, 2.0), (3.0, 30.0, 6.0), {"step": "eager"}).to_dict()
    assert (row["ours_ms"], row["peer_ms"], row["ratio"]) == (2.0, 6.0, 3.0)
    assert row["ratio_quartiles"] == [3.0, 3.0]
    assert (row["rounds"], row["step"]) == (3, "eager")


@pytest.mark.parametrize("kind", ["eager", "traced"])
def test_both_sides_make_the_same_updates(kind):
    pair = small()
    step = training_step(pair.task, [pair.batch], kind)
    for _ in range(5):
        step()
        pair.their_step()
    for ours, theirs in zip(pair.network.parameters(), pair.model.net.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_flux_slip_can_be_that_of_the_scripts():
    from dcnn.bench.deepxde_setups import energy_flux_x_as_published

    assert build_pair("compressible", flux_x=energy_flux_x_as_published, **FEW).gradient_difference() < 1e-4


def test_a_step_that_cannot_be_made_says_so(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler")

    pair = small()
    monkeypatch.setattr(compiling, "machine_code", broken)
    with pytest.raises(DcnnError, match="compiled step could not be made"):
        training_step(pair.task, [pair.batch], "compiled")
    pair.network.norm = torch.nn.Dropout(0.5)
    with pytest.raises(DcnnError, match="there is no traced step"):
        training_step(pair.task, [pair.batch], "traced")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_is_what_a_step_takes():
    held = memory.growth_mb(lambda: torch.ones(10 * 2**20).sum())  # 40 MB, freed again
    assert 39 < held < 60
    assert memory.growth_mb(lambda: torch.ones(1000).sum()) < 5


def test_memory_is_measured_in_a_process_of_its_own(monkeypatch):
    calls = []

    class Done:
        stdout = 'Warning of DeepXDE\n{"peak_mb": 12.5}\n'

    monkeypatch.setattr(memory.subprocess, "run", lambda command, **_: calls.append(command) or Done)
    monkeypatch.setattr(sys, "platform", "linux")
    assert memory.peak_memory_mb("deepxde", 2, problem={"name": "heat"}) == 12.5
    assert calls[0][-3:] == ["deepxde", "2", '{"problem": {"name": "heat"}}']
    monkeypatch.setattr(sys, "platform", "win32")
    assert memory.peak_memory_mb("deepxde", 2, problem={"name": "heat"}) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("side", "what"),
    [
        ("deepxde", {"problem": {"name": "advection"}}),
        ("eager", {"problem": {"name": "advection"}}),
        ("plain", {"potential": {"network": "schnet", "batch_size": 2}}),
    ],
)
def test_what_that_process_runs(monkeypatch, side, what):
    monkeypatch.setattr("dcnn.bench.pair.build_pair", small)
    assert 0 <= memory.growth_mb(memory._step(side, **what)) < 200


def test_lines_of_problems(capsys):
    (line,) = compare_pde(["diffusion_reaction"], step="traced", rounds=3, threads=1)
    row = line.to_dict()
    assert row["peer"].startswith("DeepXDE ")
    assert row["gradient_difference"] < 1e-5
    assert (row["ours_peak_mb"], row["peer_peak_mb"], row["points"], row["rounds"]) == (3.0, 7.0, 60, 3)


def test_lines_of_networks():
    seen = []
    (line,) = compare_atoms(["schnet"], rounds=3, threads=1, batch_size=2, watch=lambda *n: seen.append(n))
    row = line.to_dict()
    assert (row["name"], row["peer"], row["step"], row["batch_size"]) == ("schnet", "eager step", "traced", 2)
    assert row["ours_ms"] > 0
    assert seen == [(1, 1)]


@pytest.mark.parametrize("cutoff", [3.0, 6.0])
@pytest.mark.parametrize("name", PAPER)
def test_networks_written_as_published_are_ours(name, cutoff):
    """Also where the batch lists pairs beyond the cutoff."""
    torch.manual_seed(0)
    network, batch = build(name, normalization=False, cutoff=cutoff), collate(demo_dataset()[:3], 6.5, torch.float32)
    assert check_same("plain", name, network, batch) < 1e-8
    if name == "schnet":
        check_same("pyg", name, network, batch)


def test_another_network_is_not_timed(monkeypatch, caplog):
    """It is named; the lines of the others stay."""
    monkeypatch.setitem(plain_networks.FORMULAS, "schnet", lambda *of: 1.01 * plain_networks.schnet(*of))
    options = {"rounds": 2, "threads": 1, "batch_size": 2, "against": "plain"}
    (line,) = compare_atoms(["schnet", "cgcnn"], "eager", **options)
    assert line.name == "cgcnn"
    assert re.search(r"schnet is left out: .*plain is not the same network: .* differ by 0\.01", caplog.text)
    with pytest.raises(DcnnError, match="no network could be measured"):
        compare_atoms(["schnet"], "eager", **options)


def test_a_step_beside_the_published_way():
    options = {"rounds": 2, "threads": 1, "batch_size": 2, "against": "plain"}
    (line,) = compare_atoms(["schnet"], "eager", **options)
    row = line.to_dict()
    assert (row["peer"], row["preset"], row["network"]) == ("published way", "small", "schnet")
    assert row["gflop"] > 0
    assert row["product_share"] > 0


@pytest.mark.parametrize(
    ("name", "against", "message"),
    [
        ("tensornet", "plain", "--against plain: tensornet is not among the networks of the paper"),
        ("cgcnn", "pyg", "--against pyg: PyTorch Geometric's SchNet is measured here, not cgcnn"),
        ("schnet", "plane", "unknown peer 'plane'; did you mean 'plain'"),
    ],
)
def test_peers_that_are_not_there(name, against, message):
    with pytest.raises(InputError, match=message):
        compare_atoms([name], "eager", rounds=2, threads=1, batch_size=2, against=against)


def test_crystals_of_several_sizes(tmp_path):
    crystals = [bulk("Cu").repeat((1, 1, 2 + number % 3)) for number in range(22)]
    for number, crystal in enumerate(crystals):
        crystal.rattle(0.05, seed=number)
        crystal.calc = EMT()
        crystal.get_forces()
    ase.io.write(tmp_path / "cu.xyz", crystals)
    options = {"rounds": 2, "threads": 1, "batch_size": 2, "data": str(tmp_path / "cu.xyz"), "cutoff": 3.0}
    (line,) = compare_atoms(["schnet"], **options)
    assert line.to_dict()["data"] == str(tmp_path / "cu.xyz")


def test_the_command_prints_a_table_and_writes_json(tmp_path):
    common = ["--step", "eager", "--rounds", "2", "--threads", "1"]
    shown = CliRunner().invoke(app, ["pde", "--problems", "advection", *common, "-o", str(tmp_path / "b.json")])
    assert shown.exit_code == 0, shown.output
    assert "advection" in shown.stdout
    assert "ours MB" in shown.stdout
    (row,) = json.loads((tmp_path / "b.json").read_text())["results"]
    assert row["name"] == "advection"
    printed = CliRunner().invoke(app, ["pde", "--problems", "advection", *common, "--no-memory", "--json"])
    (row,) = json.loads(printed.stdout)["results"]
    assert "ours_peak_mb" not in row
    potential = CliRunner().invoke(
        app, ["atoms", "--models", "schnet", "--step", "traced", "--rounds", "2", "--threads", "1", "--json"]
    )
    assert json.loads(potential.stdout)["results"][0]["name"] == "schnet"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pde", "--problems", "advektion"], "did you mean 'advection'"),
        (["pde", "--step", "trace"], "did you mean 'traced'"),
        (["pde", "--clock", "sun"], "wall or cpu"),
        (["pde", "--activation", "tanhh", "--problems", "advection"], "unknown activation of DeepXDE"),
        (["atoms", "--models", "schnett"], "did you mean 'schnet'"),
        (["atoms", "--step", "trace"], "did you mean 'traced'"),
    ],
)
def test_mistakes_are_told(arguments, message):
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, InputError)
    assert message in str(found.exception)


# ---- time to accuracy -----------------------------------------------------------------------------------------------


def test_ours_is_stopped_at_the_error_of_the_script(monkeypatch, capsys):
    found = to_error.time_to_error(iterations=1, minutes=2.0)
    assert 0.3 < found.error < 3  # after one step of Adam
    assert capsys.readouterr().out == ""
    row = found.to_dict()
    assert (row["name"], row["error"]) == ("burgers", found.error)
    assert row["ratio"] == pytest.approx(found.peer_s / found.ours_s)
    monkeypatch.setattr(to_error, "time_to_error", lambda: found)
    shown = CliRunner().invoke(app, ["pde", "--to-error", "--json"])
    assert json.loads(shown.stdout)["results"] == [row]


def test_an_error_that_is_not_reached_is_said(monkeypatch):
    monkeypatch.setattr(to_error, "_deepxde", lambda *_: (1e-9, 1.0))
    with pytest.raises(DcnnError, match=r"not below 1e-09, DeepXDE's error, within 0.001 CPU minutes"):
        to_error.time_to_error(minutes=0.001)


def test_what_a_step_waits_for_its_batch():
    small = ["model.overrides.features=8", "model.overrides.layers=1"]
    data = ["demo", "data.train=20", "data.validation=5", "data.test=5", "training.step=eager", *small]
    result = CliRunner().invoke(app, ["data", *data, "--workers", "0,1", "--steps", "3", "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["results"]
    assert [(row["workers"], row["frames"]) for row in rows] == [(0, 20), (1, 20)]
    for row in rows:
        assert 0 < row["waiting_share"] < 1
        assert row["waiting_ms"] / (row["waiting_ms"] + row["step_ms"]) == pytest.approx(row["waiting_share"])
        assert row["peak_mb"] > 0
    with pytest.raises(InputError, match="numbers separated by commas"):
        CliRunner().invoke(app, ["data", "demo", "--workers", "many"], catch_exceptions=False)
