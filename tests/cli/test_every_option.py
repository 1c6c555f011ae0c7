"""Every option of a command changes something: what it asks for, what it prints, or what it writes.

A command is added by an entry of COMMANDS: arguments that work, for every other parameter the arguments that change
it, and a function that puts recorders in the place of what takes long and returns them.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import ase
import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from dcnn import comparing
from dcnn.auditing import Audit
from dcnn.cli import (
    audit,
    bench,
    compare,
    evaluate,
    export,
    ipi,
    lammps,
    md,
    predict,
    replay,
    report,
    reproduce,
    select,
    solve,
    sweep,
    train,
)
from dcnn.results.metrics import ENERGY, FORCES
from dcnn.train.run import Result


def _record_grid(module, monkeypatch, asked):
    """Cells are not trained; their errors depend on recipe and seed."""

    def run(cells, folder, on, jobs, watch):
        asked.append(([cell.name for cell in cells], str(folder), on, jobs))
        return [
            {**cell.labels, "data": "frames", "model": cell.labels.get("model", "schnet"), "folder": "", "seed": seed,
             "status": "finished", "test": {FORCES: len(cell.config.recipe) + seed + 0.1 * n * seed, ENERGY: 1.0}}
            for n, cell in enumerate(cells)
            for seed in [cell.labels["seed"]]
        ]  # fmt: skip

    def write_rows_page(rows, path, title, **more):
        asked.append((title, more.get("note")))
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(title)
        return Path(path)

    monkeypatch.setattr(module.engine, "run", run)
    monkeypatch.setattr(module, "write_rows_page", write_rows_page)


def _compare(monkeypatch, asked):
    _record_grid(comparing, monkeypatch, asked)


def _reproduce(monkeypatch, asked):
    _record_grid(reproduce, monkeypatch, asked)
    monkeypatch.setattr(reproduce, "estimate", lambda cells: [])
    Path("lmdb").mkdir(exist_ok=True)
    Path("lmdb/data.0000.lmdb").write_bytes(b"")
    (Path("data/oxides")).mkdir(parents=True, exist_ok=True)
    Path("data/oxides/tio2_xsf.tar.gz").write_bytes(b"")


def _sweep(monkeypatch, asked):
    def run_search(plan, folder, samples, on, jobs, watch):
        asked.append((plan, folder, samples, on, jobs))
        row = {"trial": "trial-0", "folder": "", "status": "finished", "score": 1.0, "budget_percent": 100.0}
        return [{**row, "sample": {"seed": 1}}]

    monkeypatch.setattr(sweep, "run_search", run_search)


def _bench(monkeypatch, asked):
    from dcnn.bench import pde_steps, potential_steps
    from dcnn.bench.timing import StepRatio

    def measured(*given):
        asked.append(given[:-1])  # the last one shows the progress
        more = {"step": "eager", "threads": 1}
        return [StepRatio("a", "peer", (1.0, 2.0, 3.0), (2.0, 3.0, 4.0), more)]

    monkeypatch.setattr(pde_steps, "compare_pde", measured)
    monkeypatch.setattr(potential_steps, "compare_atoms", measured)


def _report(monkeypatch, asked):
    def write_page(*given, **named):
        asked.append((given, named))
        Path(given[1]).write_text("page")
        return Path(given[1])

    monkeypatch.setattr(report, "write_page", write_page)


def _solve(monkeypatch, asked):
    """The real one: half a second."""


def _noted(asked, answer, name=""):
    """A function that writes its arguments down and gives this answer."""

    def called(*given, **named):
        kinds = str | int | float | Path | None
        every = [*given, *named.values()]
        plain = [
            v for v in every if isinstance(v, kinds) or (isinstance(v, list) and all(isinstance(w, str) for w in v))
        ]
        asked.append((name, plain, list(named)))
        return answer

    return called


def _train(monkeypatch, asked):
    result = Result(Path("runs/a"), {"status": "finished", "test": {}})

    def fit_config(config, output, console):
        asked.append((config.to_dict(), output))
        return result

    monkeypatch.setattr(train, "fit_config", fit_config)
    monkeypatch.setattr(train, "_committee", lambda *given: asked.append(given[1:3]))
    monkeypatch.setattr(train, "resume_run", _noted(asked, result, "resume"))
    monkeypatch.setattr(train, "write_run_page", _noted(asked, "page", "page"))


def _bench_data(monkeypatch, asked):
    row = dict.fromkeys(("cpu_seconds_before_first_step", "step_ms", "waiting_ms", "waiting_share", "peak_mb"), 1.0)
    Path("other").mkdir(exist_ok=True)

    def measured(values, workers, steps, show):
        asked.append((repr(values), workers, steps))
        return [{"workers": 0, **row}]

    monkeypatch.setattr("dcnn.bench.data_steps.measure_data", measured)


def _opened(module):
    """A run folder that is only asked for."""

    def record(monkeypatch, asked):
        replayed = {"message": "", "again": "", "terms": {}, "layer": None, "parameter": None}
        task = SimpleNamespace(count=lambda split: 5)
        answers = {"evaluate": _noted(asked, {"frames": 3}, "evaluate"), "replay": lambda: replayed, "task": task}
        run = SimpleNamespace(open=_noted(asked, SimpleNamespace(**answers), "open"))
        monkeypatch.setattr(module, "TrainedRun", run)

    return record


def _audit(monkeypatch, asked):
    sound = Audit(())
    task = SimpleNamespace(network=None, audit=lambda network: sound, raw_label_findings=list)
    monkeypatch.setattr(audit, "open_or_build", _noted(asked, task))


class _Frames(list):
    def to_units(self, *units, **named):
        return self


def _potential(module):
    """A potential that is only asked for, on one molecule of water."""

    def record(monkeypatch, asked):
        frames = _Frames([SimpleNamespace(to_ase=lambda: ase.Atoms("OH2"), energy=1.0, forces=None)])
        potential = SimpleNamespace(predict=lambda frames, shown: frames, outside=lambda *given: [])
        loaded = SimpleNamespace(load=_noted(asked, potential, "potential"))
        monkeypatch.setattr(module.atoms, "Potential", loaded)
        monkeypatch.setattr(module.atoms, "Calculator", _noted(asked, None, "calculator"))
        monkeypatch.setattr(module.atoms, "load", _noted(asked, frames, "load"))
        monkeypatch.setattr(module.atoms, "write", _noted(asked, None, "write"))
        if module is md:
            done = {"steps": 2, "timestep_fs": 1.0, "ms_per_step": 1.0, "temperature_K": 1.0, "temperature_std_K": 0.0}
            result = SimpleNamespace(**done, drift_meV_atom_ps=None, to_dict=lambda: done)

            def simulate(atoms, steps, *, progress, **settings):
                asked.append((steps, settings))
                return result

            monkeypatch.setattr(md, "simulate", simulate)
            monkeypatch.setattr(md.torch, "set_num_threads", _noted(asked, None, "threads"))
        if module is export:
            monkeypatch.setattr(export, "export_potential", _noted(asked, {"network": "schnet", "cutoff_A": 6.0}))
        if module is not predict:
            monkeypatch.setattr(module, "own_test_frames", _noted(asked, frames, "own"))

    return record


def _lammps(monkeypatch, asked):
    monkeypatch.setattr(lammps, "open_lammps", _noted(asked, None, "open"))
    monkeypatch.setattr(lammps, "run_script", _noted(asked, None, "run"))
    monkeypatch.setattr(lammps, "read_text", lambda path, *more: str(path))


def _ipi(monkeypatch, asked):
    _potential(ipi)(monkeypatch, asked)
    client = SimpleNamespace(run=lambda *given, **named: None)
    monkeypatch.setattr(ipi, "SocketClient", lambda **given: asked.append(given) or client)


def _select(monkeypatch, asked):
    class Pool(list):
        def __getitem__(self, numbers):
            return self

        def to_units(self, **units):
            return self

    monkeypatch.setattr(select.atoms, "Potential", SimpleNamespace(load=_noted(asked, None, "potential")))
    monkeypatch.setattr(select.atoms, "load", _noted(asked, Pool([1]), "load"))
    monkeypatch.setattr(select.atoms, "write", _noted(asked, None, "write"))
    monkeypatch.setattr(select, "select_frames", _noted(asked, ([0], None), "select"))


LEARNING_RATE = "training.stages.0.learning_rate=loguniform(1e-4,1e-2)"
COMMANDS = {
    "compare": (
        compare.compare,
        _compare,
        ["demo"],
        {
            "target": ["--recipes", "best", "heat"],
            "overrides": ["data.train=7"],
            "recipes": ["--recipes", "best"],
            "model": ["--model", "gemnet"],
            "epochs": ["--epochs", "2"],
            "minutes": ["--minutes", "2"],
            "seeds": ["--seeds", "2"],
            "reference": ["--reference", "best"],
            "paired": ["--paired"],
            "jobs": ["--jobs", "1"],
            "on": ["--on", "ray"],
            "output": ["-o", "elsewhere"],
            "as_json": ["--json"],
        },
    ),
    "reproduce": (
        reproduce.reproduce,
        _reproduce,
        ["table2", "--scale", "small"],
        {
            "name": ["table1", "--scale", "smoke"],
            "scale": ["--scale", "smoke"],
            "models": ["--models", "schnet"],
            "molecules": None,  # table2 has none; tests/paper
            "recipes": ["--recipes", "best"],
            "seeds": ["--seeds", "1"],
            "fidelity": ["--fidelity", "scripts"],
            "minutes": ["--minutes", "7"],
            "steps": None,  # below
            "jobs": ["--jobs", "1"],
            "data": ["--data", "lmdb"],
            "output": ["-o", "elsewhere"],
            "cells": ["--cells", "shared-cells"],
            "on": ["--on", "ray"],
            "yes": None,  # below
            "as_json": ["--json"],
        },
    ),
    "sweep": (
        sweep.sweep,
        _sweep,
        ["demo", LEARNING_RATE],
        {
            "target": ["heat"],
            "pairs": ["data.train=7"],
            "samples": ["--samples", "3"],
            "recipe": ["--recipe", "paper"],
            "model": ["--model", "gemnet"],
            "epochs": ["--epochs", "3"],
            "minutes": ["--minutes", "3"],
            "seed": ["--seed", "3"],
            "on": ["--on", "ray"],
            "jobs": ["--jobs", "3"],
            "output": ["-o", "elsewhere"],
            "as_json": ["--json"],
        },
    ),
    "bench pde": (
        bench.pde,
        _bench,
        [],
        {
            "problems": ["--problems", "advection"],
            "activation": ["--activation", "irelu"],
            "step": ["--step", "eager"],
            "rounds": ["--rounds", "3"],
            "threads": ["--threads", "1"],
            "clock": ["--clock", "cpu"],
            "memory": ["--no-memory"],
            "to_error": None,  # tests/bench/test_bench.py
            "output": ["-o", "bench.json"],
            "as_json": ["--json"],
        },
    ),
    "bench atoms": (
        bench.atoms,
        _bench,
        [],
        {
            "models": ["--models", "schnet"],
            "preset": ["--preset", "paper"],
            "step": ["--step", "traced"],
            "against": ["--against", "plain"],
            "memory": ["--memory"],
            "batch_size": ["--batch-size", "3"],
            "data": ["--data", "other.xyz"],
            "cutoff": ["--cutoff", "4"],
            "rounds": ["--rounds", "3"],
            "threads": ["--threads", "1"],
            "clock": ["--clock", "cpu"],
            "output": ["-o", "bench.json"],
            "as_json": ["--json"],
        },
    ),
    "bench data": (
        bench.data,
        _bench_data,
        [],
        {
            "file": ["other"],
            "overrides": ["demo", "data.train=7"],
            "workers": ["--workers", "2"],
            "steps": ["--steps", "3"],
            "model": ["--model", "cgcnn"],
            "output": ["-o", "bench.json"],
            "as_json": ["--json"],
        },
    ),
    "report": (
        report.report,
        _report,
        ["runs/a"],
        {
            "runs": ["runs/b"],
            "output": ["-o", "other.html"],
            "title": ["--title", "mine"],
            "reference": ["--reference", "best"],
            "trust": ["--trust"],
            "as_json": ["--json"],
        },
    ),
    "solve": (
        solve.solve,
        _solve,
        ["heat", "-o", "heat.hdf5", "resolution=32"],
        {
            "problem": ["wave", "-o", "heat.hdf5", "resolution=32"],
            "output": ["-o", "other.hdf5"],
            "settings": ["alpha=0.7"],
            "samples": None,  # heat has one solution
            "seed": None,
            "resolution": None,
            "as_json": ["--json"],
        },
    ),
}
COMMANDS |= {
    "train": (
        train.train,
        _train,
        ["demo"],
        {
            "target": ["heat"],
            "overrides": ["data.train=7"],
            "recipe": ["--recipe", "paper"],
            "model": ["--model", "gemnet"],
            "seed": ["--seed", "3"],
            "output": ["-o", "elsewhere"],
            "resume": ["--resume", "runs/a", "training.epochs=9"],
            "start_from": None,  # tests/atoms/test_fine_tuning.py
            "freeze": None,
            "committee": ["--committee", "2"],
            "page": ["--no-page"],
            "as_json": ["--json"],
        },
    ),
    "evaluate": (
        evaluate.evaluate,
        _opened(evaluate),
        ["runs/a"],
        {
            "run": ["runs/b"],
            "data": ["--data", "x.npz"],
            "trust": ["--trust"],
            "as_json": ["--json"],
            "labels": ["--labels", "md17"],
            "units": ["--units", "Hartree"],
            "force_sign": ["--force-sign", "-1"],
            "energy_key": ["--energy-key", "E"],
            "forces_key": ["--forces-key", "F"],
            "stress_key": ["--stress-key", "S"],
            "virial_key": ["--virial-key", "V"],
        },
    ),
    "replay": (
        replay.replay,
        _opened(replay),
        ["runs/a"],
        {"run": ["runs/b"], "trust": ["--trust"], "as_json": ["--json"]},
    ),
    "audit": (
        audit.audit,
        _audit,
        ["demo"],
        {
            "target": ["heat"],
            "overrides": ["data.train=7"],
            "recipe": ["--recipe", "paper"],
            "model": ["--model", "gemnet"],
            "trust": ["--trust"],
            "as_json": ["--json"],
        },
    ),
    "predict": (
        predict.predict,
        _potential(predict),
        ["runs/a", "x.xyz", "-o", "y.xyz"],
        {
            "run": ["runs/b", "x.xyz", "-o", "y.xyz"],
            "structures": ["runs/a", "z.xyz", "-o", "y.xyz"],
            "output": ["-o", "z.npz"],
            "units": ["--units", "kcal/mol,Ang"],
            "trust": None,  # tests/cli/test_predict_fields.py
            "as_json": ["--json"],
        },
    ),
    "md": (
        md.md,
        _potential(md),
        ["runs/a", "--steps", "2"],
        {
            "run": ["runs/b", "--steps", "2"],
            "steps": ["--steps", "3"],
            "temperature": ["--temperature", "10"],
            "ensemble": ["--ensemble", "nvt"],
            "pressure": None,  # only with --ensemble npt
            "timestep": ["--timestep", "1"],
            "structure": ["--structure", "x.xyz"],
            "output": ["-o", "path.traj"],
            "every": ["--every", "5"],
            "equilibrate": ["--equilibrate", "5"],
            "friction": ["--friction", "0.1"],
            "skin": ["--skin", "0.5"],
            "dtype": ["--dtype", "float32"],
            "outside": ["--outside", "warn"],
            "stop_uncertainty": ["--stop-uncertainty", "0.5"],
            "last_frame": ["--last-frame", "last.xyz"],
            "replicas": None,  # tests/atoms/test_replicas.py
            "seed": ["--seed", "3"],
            "threads": ["--threads", "2"],
            "as_json": ["--json"],
        },
    ),
    "lammps": (
        lammps.lammps,
        _lammps,
        ["runs/a", "in.a", "--elements", "C,H"],
        {
            "run": ["runs/b", "in.a", "--elements", "C,H"],
            "script": ["runs/a", "in.b", "--elements", "C,H"],
            "elements": ["--elements", "C,O"],
            "dtype": ["--dtype", "float32"],
            "outside": ["--outside", "warn"],
            "log": ["--log", "other.log"],
        },
    ),
    "ipi": (
        ipi.ipi,
        _ipi,
        ["runs/a"],
        {
            "run": ["runs/b"],
            "structure": ["--structure", "x.xyz"],
            "unix": ["--unix", "name"],
            "host": ["--host", "other"],
            "port": ["--port", "7"],
            "outside": ["--outside", "warn"],
        },
    ),
    "select": (
        select.select,
        _select,
        ["runs/a", "pool.xyz", "-o", "y.xyz"],
        {
            "paths": ["runs/b", "pool.xyz", "-o", "y.xyz"],
            "output": ["-o", "z.npz"],
            "count": ["-n", "3"],
            "by": ["--by", "farthest"],
            "known": ["--known", "k.xyz"],
            "units": ["--units", "kcal/mol,Ang"],
            "as_json": ["--json"],
        },
    ),
    "export": (
        export.export,
        _potential(export),
        ["runs/a", "-o", "a.pt2"],
        {
            "run": ["runs/b", "-o", "a.pt2"],
            "output": ["-o", "b.pt2"],
            "structure": ["--structure", "x.xyz"],
            "aot": ["--aot"],
            "dtype": ["--dtype", "float64"],
            "to": None,  # tests/atoms/test_programs.py
            "as_json": ["--json"],
        },
    ),
}
FULL = {
    "name",
    "problem",
    "run",
    "structures",
    "resume",
    "paths",
    "script",
}  # what is given first: the whole line is another one
CASES = [(name, parameter) for name, (*_, options) in COMMANDS.items() for parameter in options]


def app_of(function):
    app = typer.Typer(add_completion=False)
    app.command()(function)
    return app


def observe(name, arguments, tmp_path, monkeypatch):
    """What the command asked for, printed and left behind."""
    folder = tmp_path / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    function, record, *_ = COMMANDS[name]
    asked = []
    record(monkeypatch, asked)
    result = CliRunner().invoke(app_of(function), arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    files = {str(p.relative_to(folder)): hash(p.read_bytes()) for p in folder.rglob("*") if p.is_file()}
    return asked, result.stdout, files


@pytest.mark.parametrize(("name", "parameter"), CASES)
def test_every_option_changes_something(name, parameter, tmp_path, monkeypatch):
    _, _, usual, options = COMMANDS[name]
    changed = options[parameter]
    if changed is None:
        pytest.skip("this command line cannot have it; it has a test of its own")
    if parameter == "target":
        arguments = [*changed, *usual[1:]]
    else:
        arguments = changed if parameter in FULL else [*usual, *changed]
    first = observe(name, usual, tmp_path, monkeypatch)
    assert observe(name, arguments, tmp_path, monkeypatch) != first


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_else_changes(name, tmp_path, monkeypatch):
    first, second = (observe(name, COMMANDS[name][2], tmp_path, monkeypatch) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_left_out(name):
    function, _, _, options = COMMANDS[name]
    assert {parameter.name for parameter in get_command(app_of(function)).params} - {"help"} == set(options)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("compare", ["demo", "--minutes", "0"], r"training\.minutes"),
        ("compare", ["demo", "--epochs", "0"], r"training\.epochs"),
        ("compare", ["demo", "--minutes", "1", "training.epochs=3"], "give one budget"),
        ("compare", ["demo", "--minutes", "1", "--epochs", "3"], "give one budget"),
        ("compare", ["demo", "--seeds", "0"], "at least one recipe and one seed"),
        ("compare", ["demo", "--recipes", "best", "--reference", "original"], "not among the recipes"),
        ("compare", ["demo", "--seeds", "1", "--paired"], "one seed has no spread"),
        ("compare", ["heat", "--model", "schnet"], "unknown key"),
        ("md", ["runs/a", "--steps", "9", "--pressure", "1"], "only --ensemble npt holds a pressure"),
        (
            "md",
            ["runs/a", "--steps", "9", "--replicas", "2", "--equilibrate", "5"],
            "--equilibrate would change nothing",
        ),
        (
            "md",
            ["runs/a", "--steps", "9", "--replicas", "2", "--outside", "warn"],
            "--outside warn would change nothing",
        ),
        ("sweep", ["demo", LEARNING_RATE, "--minutes", "0"], r"training\.minutes"),
        ("sweep", ["demo", LEARNING_RATE, "--minutes", "1", "training.steps=4"], "give one budget"),
        ("reproduce", ["table1", "--data", "data"], "takes the frames of the package"),
        ("reproduce", ["table3", "--data", "data", "--scale", "small"], "takes dcnn's own solvers"),
        ("reproduce", ["table1", "--yes"], "--yes is for --scale paper"),
        ("reproduce", ["table2", "--molecules", "ethanol"], "has no molecules"),
        ("reproduce", ["table3", "--models", "schnet"], "is a PDE"),
        ("reproduce", ["table1", "--minutes", "0"], r"training\.minutes"),
        ("reproduce", ["table3", "--scale", "small", "--steps", "9"], "--steps 9: for --scale long"),
        ("reproduce", ["table3", "--scale", "long", "--minutes", "1"], "goes by steps; leave --minutes out"),
        ("train", ["demo", "training.minutes=0"], r"training\.minutes"),
        ("train", ["demo", "training.minutes=1", "training.epochs=3"], "only one of them can be meant"),
        ("train", ["demo", "seed=1", "seed=2"], "only one of them can be meant"),
        ("train", ["c.yaml", "--recipe", "paper"], "states its own recipe"),
        ("solve", ["heat", "-o", "a.hdf5", "sample=3"], "sample=3: .* give --samples and --seed"),
        ("solve", ["advection", "-o", "a.hdf5", "seed=5"], "seed=5: .* give --samples and --seed"),
        ("solve", ["heat", "-o", "a.hdf5", "--resolution", "8", "resolution=9"], "not both"),
    ],
)
def test_what_would_be_ignored_is_refused(name, arguments, message, tmp_path, monkeypatch):
    with pytest.raises(Exception, match=message):
        observe(name, arguments, tmp_path, monkeypatch)


def test_options_that_stand_alone(tmp_path, monkeypatch):
    """--yes and --steps are of one scale; --samples, --seed and --resolution make other files; npt has a pressure."""
    npt = ["runs/a", "--steps", "2", "--ensemble", "npt"]
    assert observe("md", npt, tmp_path, monkeypatch) != observe("md", [*npt, "--pressure", "1"], tmp_path, monkeypatch)
    with pytest.raises(Exception, match="start with --yes"):
        observe("reproduce", ["table3", "--scale", "paper"], tmp_path, monkeypatch)
    asked, _, _ = observe("reproduce", ["table3", "--scale", "paper", "--yes"], tmp_path, monkeypatch)
    assert len(asked[0][0]) == 4
    long = ["table3", "--scale", "long"]
    usual, fewer = (observe("reproduce", [*long, *more], tmp_path, monkeypatch) for more in ([], ["--steps", "9"]))
    assert usual != fewer
    line = ["advection", "-o", "a.hdf5"]
    changes = ([], ["--samples", "2"], ["--seed", "3"], ["--resolution", "64"])
    seen = []
    for more in changes:
        size = [] if "--resolution" in more else ["--resolution", "32"]
        observe("solve", [*line, *more, *size], tmp_path, monkeypatch)
        seen.append((tmp_path / "work" / "a.hdf5").read_bytes())
    assert len(set(seen)) == 4
