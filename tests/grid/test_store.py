"""Folders behind URLs: what goes up, in which order, and what comes down."""

import pytest

from dcnn.errors import InputError
from dcnn.grid import engine
from dcnn.grid.store import Store, local_copy, paced


def test_the_local_engine_copies_to_a_url_and_goes_on_from_it(heat):
    (cell,) = heat(3)
    runs = engine.run([cell], "memory://grid/a", jobs=1)
    store = Store("memory://grid/a")
    assert store.names_with("result.json") == {cell.name}
    assert store.read(cell.name, "metrics.csv").startswith("epoch,")
    assert store.read(cell.name, "missing") == ""
    page = local_copy("memory://grid/a") / "page.html"
    page.write_text("page")
    assert engine.publish("memory://grid/a", page) == ["memory://grid/a/page.html"]
    with pytest.raises(InputError, match="memory of one process"):
        engine.run(heat(4), "memory://grid/a", on="ray")
    (local_copy("memory://grid/a") / cell.name / "result.json").unlink()
    assert engine.run([cell], "memory://grid/a", jobs=1) == runs  # from the store: nothing is trained


def test_files_go_up_when_they_changed_and_closing_ones_last(tmp_path, monkeypatch):
    run, store, order = tmp_path / "run", Store(f"file://{tmp_path}/store"), []
    write = store._write
    monkeypatch.setattr(
        store, "_write", lambda path, content: (order.append(path.split("/")[-1]), write(path, content))
    )
    (run / "checkpoints").mkdir(parents=True)
    for name in ("result.json", "checkpoints/last.ckpt", "checkpoints/best.ckpt", "metrics.csv", "x.partial.csv"):
        (run / name).write_text(name)
    store.up(run, "a")
    assert sorted(order[:2]) == ["best.ckpt", "metrics.csv"]
    assert order[2:] == ["last.ckpt", "result.json"]
    (run / "metrics.csv").write_text("more rows")
    store.up(run, "a")
    assert order[4:] == ["metrics.csv"]
    store.down("a", tmp_path / "copy")
    assert (tmp_path / "copy" / "metrics.csv").read_text() == "more rows"
    assert (tmp_path / "copy" / "checkpoints" / "last.ckpt").read_text() == "checkpoints/last.ckpt"
    store.down("never-begun", tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []


def test_an_unknown_protocol_is_refused():
    with pytest.raises(InputError, match=r"nosuch://bucket: .*nosuch"):
        Store("nosuch://bucket")


def test_paced_actions_are_not_repeated_at_once():
    done = []
    act = paced(lambda: done.append(1))
    act()
    act()
    assert done == [1]
