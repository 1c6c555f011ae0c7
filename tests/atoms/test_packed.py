"""Frames in flat arrays: what is packed comes back, in memory, from a folder and from a cache."""

import pickle
import shutil

import numpy as np
import pytest
import torch

from dcnn.atoms import Batcher, Dataset, Structure, demo_dataset, load
from dcnn.atoms.config import DataConfig
from dcnn.atoms.data import write
from dcnn.atoms.data.packed import PackedFrames, pack
from dcnn.atoms.frames import load_frames
from dcnn.errors import InputError


def frames_of():
    rng, found = np.random.default_rng(0), []
    for n in range(7):
        size = 2 + n % 3
        found.append(
            Structure(
                rng.integers(1, 30, size),
                2.0 * np.argwhere(np.ones((2, 2, 2)))[:size] + 0.1 * rng.standard_normal((size, 3)),
                np.diag([5.0, 6.0, 7.0]) if n % 2 else None,
                [True, True, False] if n % 2 else None,
                energy=None if n == 3 else -float(n),
                forces=None if n == 4 else rng.standard_normal((size, 3)),
                stress=np.eye(3) * n if n % 2 else None,
                info={"config_type": "odd", "config_weight": 2.0} if n % 2 else {},
            )
        )
    return Dataset(found, "eV", "a.xyz")


def same(a, b):
    for name in ("z", "positions", "cell", "pbc", "energy", "forces", "stress"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        assert left is None or np.array_equal(left, right), name


@pytest.mark.parametrize("folder", [None, "x.dcnn"])
def test_packed_frames_are_the_frames(folder, tmp_path):
    data = frames_of()
    packed = pack(data, tmp_path / folder if folder else None)
    assert len(packed) == 7
    for copy in (packed, pickle.loads(pickle.dumps(packed))):
        for number, frame in enumerate(data):
            same(copy[number], frame)
            assert copy[number].info.get("config_type") == frame.info.get("config_type")
            assert copy[number].info["config_weight"] == frame.info.get("config_weight", 1.0)
    assert packed.sizes.tolist() == [len(frame) for frame in data]
    some = packed.dataset().to_units("kcal/mol")[[5, 2]]
    same(some[1], data.to_units("kcal/mol")[2])
    assert some.where(1) == ("a.xyz, frame 2" if folder is None else f"{tmp_path / folder}, frame 2")


def test_batches_are_the_same_from_objects_memory_and_files(tmp_path):
    data = frames_of()
    write(data, tmp_path / "x.dcnn")
    sources = [data, pack(data).dataset(), load(tmp_path / "x.dcnn", require="any", check=False)]
    batches = [Batcher(source, 4.0)([6, 3, 0, 4]) for source in sources]
    for batch in batches[1:]:
        for name, value in vars(batches[0]).items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(getattr(batch, name), value, rtol=0, atol=0, equal_nan=True)
    assert batches[0].energy.isnan().tolist() == [False, True, False, False]


def test_pages_are_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr("dcnn.atoms.data.packed.HELD", 1)  # after every reading
    packed = pack(frames_of(), tmp_path / "x.dcnn")
    for number, frame in enumerate(frames_of()):
        same(packed[number], frame)


def test_a_damaged_folder_is_refused(tmp_path):
    write(frames_of(), tmp_path / "x.dcnn")
    with (tmp_path / "x.dcnn" / "forces").open("ab") as file:
        file.write(b"1")
    with pytest.raises(InputError, match=r"x.dcnn/forces: \d+ bytes, its layout says \d+; convert it anew"):
        load(tmp_path / "x.dcnn", require=())
    (tmp_path / "x.dcnn" / "layout.json").write_text("{}")
    with pytest.raises(InputError, match="not a readable layout of packed frames"):
        load(tmp_path / "x.dcnn", require=())


def test_numbers_that_lead_nowhere_are_refused(tmp_path):
    write(frames_of(), tmp_path / "x.dcnn")
    sound = (tmp_path / "x.dcnn" / "end").read_bytes()
    ends = np.frombuffer(sound, "<i8").copy()
    ends[0] = ends[-1] + 1  # the second frame would have less than no atoms
    (tmp_path / "x.dcnn" / "end").write_bytes(ends.tobytes())
    with pytest.raises(InputError, match="its columns do not fit together"):
        load(tmp_path / "x.dcnn")
    (tmp_path / "x.dcnn" / "end").write_bytes(sound)
    layout = tmp_path / "x.dcnn" / "layout.json"
    layout.write_text(layout.read_text().replace('"units"', '"unit"'))
    with pytest.raises(InputError, match=r"layout.json: .*units"):
        load(tmp_path / "x.dcnn")


def test_labels_that_are_asked_for_are_looked_for(tmp_path):
    write(frames_of(), tmp_path / "x.dcnn")
    with pytest.raises(InputError, match=r"x.dcnn, frame 3: no energy"):
        load(tmp_path / "x.dcnn")
    with pytest.raises(InputError, match="under our own names"):
        load(tmp_path / "x.dcnn", energy_key="REF_energy")
    with pytest.raises(InputError, match="leave units out"):
        load(tmp_path / "x.dcnn", units="Hartree", require=())


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A file that is taken for a large one, and what reads it."""
    monkeypatch.setattr("dcnn.atoms.frames.LARGE", 0)
    write(demo_dataset()[:30], tmp_path / "a.xyz")
    return DataConfig(path=str(tmp_path / "a.xyz"), cache=str(tmp_path / "cache"))


def test_a_large_file_is_read_once(large, tmp_path, monkeypatch):
    first = load_frames(large.path, large)
    assert isinstance(first._frames, PackedFrames)
    assert first.files == (large.path,)
    assert first.where(3) == f"{large.path}, frame 3"
    same(first[7], load(large.path)[7])

    def again(*_, **__):
        raise AssertionError("read again")

    with monkeypatch.context() as patch:
        patch.setattr("dcnn.atoms.frames.load", again)
        same(load_frames(large.path, large)[7], first[7])
    write(demo_dataset()[:29], tmp_path / "a.xyz")
    assert len(load_frames(large.path, large)) == 29, "another file has another cache"
    other = large.model_copy(update={"units": "kcal/mol"})
    assert load_frames(large.path, other).units.energy == "kcal/mol"


def test_a_cache_of_another_file_is_refused(large, tmp_path):
    load_frames(large.path, large)
    (first,) = (tmp_path / "cache").glob("*.dcnn")
    shutil.rmtree(tmp_path / "cache")
    write(demo_dataset()[5:30], tmp_path / "a.xyz")
    load_frames(large.path, large)
    (second,) = (tmp_path / "cache").glob("*.dcnn")
    second.rename(first)
    write(demo_dataset()[:30], tmp_path / "a.xyz")
    with pytest.raises(InputError, match="a cache of other files, or of other options; delete it"):
        load_frames(large.path, large)


def test_bad_geometry_and_an_interruption_leave_no_cache(large, tmp_path):
    bad = [*demo_dataset().to_units("eV")[:3], Structure([1, 1], np.zeros((2, 3)), energy=0.0, forces=np.zeros((2, 3)))]
    write(Dataset(bad, "eV"), tmp_path / "a.xyz")
    with pytest.raises(InputError, match=r"a.xyz, frame 3: atoms 0 and 1 are 0 Å apart"):
        load_frames(large.path, large)
    assert not [file for file in (tmp_path / "cache").iterdir() if file.is_dir()]
