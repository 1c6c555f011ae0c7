"""One process trains in a folder; what a killed one leaves behind is no hindrance, and no disk is filled in silence."""

import errno
import multiprocessing
import os
import resource
import socket
import sys
import threading

import pytest
from line_task import Line, config, differences, hold_lock, run_in

import dcnn.cli
from dcnn.errors import InputError
from dcnn.results import fit_config, resume_run
from dcnn.train import checkpoint
from dcnn.train.run import Run

TINY = ["network.width=8", "network.depth=1", "points.interior=32", "steps_per_epoch=2", "--no-page"]


def values(**training):
    network, points = {"width": 8, "depth": 1}, {"interior": 32}
    given = {"kind": "pde", "recipe": "paper", "problem": {"name": "heat"}, "network": network, "points": points}
    return {**given, "steps_per_epoch": 2, "training": {"steps": 4, "accelerator": "cpu", **training}}


def test_a_second_run_in_a_folder_is_refused_by_name(tmp_path):
    fit_config(values(), tmp_path / "a")
    (tmp_path / "a" / "result.json").unlink()
    who = f"process {os.getpid()} on {socket.gethostname()} trains there"
    with Run(tmp_path / "a").locked():
        for begin in (lambda: fit_config(values(), tmp_path / "a"), lambda: resume_run(tmp_path / "a")):
            with pytest.raises(InputError, match=who):
                begin()
    assert resume_run(tmp_path / "a").status == "finished", "the lock has gone with its block"


def test_the_lock_of_a_killed_process_is_stale(tmp_path):
    here, there = multiprocessing.Pipe()
    holder = multiprocessing.get_context("spawn").Process(target=hold_lock, args=(tmp_path / "a", there))
    holder.start()
    assert here.recv() == "held"
    with pytest.raises(InputError, match=f"process {holder.pid} on"):
        fit_config(values(), tmp_path / "a")
    holder.kill()
    holder.join()
    assert (tmp_path / "a" / ".lock").exists()
    assert fit_config(values(), tmp_path / "a").status == "finished"


def test_of_many_that_create_a_run_at_once_one_wins(tmp_path):
    won, lost, start = [], [], threading.Barrier(8)

    def create(seed):
        start.wait()
        try:
            Run.create(tmp_path / "a", config(epochs=seed + 1))
            won.append(seed)
        except InputError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=create, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    assert Run(tmp_path / "a").config_values()["training"]["epochs"] == won[0] + 1
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["config.yaml"]
    assert all("--resume" in message for message in lost)


def test_metrics_are_appended_and_a_torn_row_goes(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "a", config())
    for epoch in (1, 2, 3):
        run.append({"epoch": epoch, "loss": 1.0 / epoch})
    read = []
    monkeypatch.setattr(Run, "metrics", lambda self: read.append(self))
    run.append({"epoch": 4, "loss": 0.1})
    monkeypatch.undo()
    assert read == [], "not read anew for each row"
    with run.metrics_file.open("a") as file:
        file.write("5,0.0")  # killed while writing
    assert [row["epoch"] for row in Run(tmp_path / "a").metrics()] == [1, 2, 3, 4]
    again = Run(tmp_path / "a")
    again.forget_after(3)  # killed between row 4 and its checkpoint
    again.append({"epoch": 4, "loss": 0.2})
    assert [row["loss"] for row in again.metrics()][2:] == [pytest.approx(1 / 3), 0.2]


@pytest.mark.parametrize("call", [3, 5])
def test_a_kill_between_row_and_checkpoint_leaves_no_epoch_twice(tmp_path, monkeypatch, call):
    run_in(tmp_path / "whole", config(), Line())
    written, usual = [], checkpoint.save

    def save(path, state):
        written.append(path)
        if len(written) == call:
            raise SystemError("killed")
        usual(path, state)

    monkeypatch.setattr(checkpoint, "save", save)
    with pytest.raises(SystemError):
        run_in(tmp_path / "a", config(), Line())
    monkeypatch.undo()
    run_in(tmp_path / "a", config(), Line(), resume=True)
    assert differences(tmp_path / "whole", tmp_path / "a") == []


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["dcnn", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        dcnn.cli.main()
    return stopped.value.code, capsys.readouterr().err


def test_a_full_disk_is_one_line_and_costs_no_checkpoint(tmp_path, monkeypatch, capsys):
    """Files may not grow beyond 4 kB from the third epoch on: what fails then is a checkpoint."""
    usual, epochs = Run.append, []

    def append(self, row):
        usual(self, row)
        epochs.append(row["epoch"])
        if len(epochs) == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setattr(Run, "append", append)
    try:
        code, said = command(monkeypatch, capsys, "train", "heat", *TINY, "training.steps=40", "-o", tmp_path / "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    monkeypatch.undo()
    last = tmp_path / "a" / "checkpoints" / "last.ckpt"
    assert (code, said) == (1, f"dcnn: {last}: {os.strerror(errno.EFBIG)}\n")
    assert checkpoint.load(last)["progress"]["epoch"] == 2
    assert not list(tmp_path.rglob("*.partial*"))
    assert resume_run(tmp_path / "a").status == "finished"


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    code, said = command(monkeypatch, capsys, "train", "heat", *TINY, "training.steps=4", "-o", tmp_path / "file" / "a")
    assert (code, said) == (1, f"dcnn: {tmp_path / 'file' / 'a'}: {os.strerror(errno.ENOTDIR)}\n")
    fit_config(values(), tmp_path / "b")
    (tmp_path / "b" / "result.json").unlink()

    def refuse(self, *given, **named):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.write_text", refuse)
        patched.setattr("pathlib.Path.write_bytes", refuse)
        code, said = command(patched, capsys, "train", "--resume", tmp_path / "b", "--no-page")
    assert (code, said.count("\n"), os.strerror(errno.EROFS) in said) == (1, 1, True)
    assert not list(tmp_path.rglob("*.partial*"))
