"""PDEBench files: read as they are, written as they are, and refused with one clear message."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from dcnn.errors import InputError
from dcnn.pde import Solution, pdebench, problems

SHARED = Path(__file__).parents[3] / "shared/data/pde"
rng = np.random.default_rng(0)


def flat(path: Path, names=("tensor",), shape=(3, 5, 8), **attributes) -> Path:
    """A file as PDEBench publishes its 1-D data: one time more than the data have."""
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = rng.normal(size=shape).astype("float32")
        file["x-coordinate"] = np.linspace(0, 1, shape[2], dtype="float32")
        file["t-coordinate"] = np.arange(shape[1] + 1, dtype="float32")
        file.attrs.update(attributes)
    return path


def test_reads_one_field(tmp_path):
    path = flat(tmp_path / "a.hdf5", beta=0.1)
    with pdebench.open(path) as samples, h5py.File(path) as file:
        assert len(samples) == 3
        assert samples.attributes["beta"] == 0.1
        assert samples[1].shape == (8, 5)
        assert list(samples[1].grid["t"]) == [0, 1, 2, 3, 4]
        np.testing.assert_array_equal(samples[-1].fields["u"], file["tensor"][2].T)
        assert [s.source[-8:] for s in samples] == ["sample 0", "sample 1", "sample 2"]
        assert len(samples[1:]) == 2


def test_reads_compressible_flow(tmp_path):
    path = flat(tmp_path / "a.hdf5", ("density", "Vx", "pressure"))
    with pdebench.open(path) as samples, h5py.File(path) as file:
        assert samples.fields == ("rho", "v", "p")
        np.testing.assert_array_equal(samples[2].fields["v"], file["Vx"][2].T)


def test_reads_the_regenerated_two_dimensional_sample():
    path = SHARED / "2D_diff-react_regen_seed0000_tstride5.h5"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    with pdebench.open(path) as samples, h5py.File(path) as file:
        known = samples[0]
        assert known.shape == (128, 128, 21)
        assert known.fields["v"][3, 100, 7] == file["0000/data"][7, 100, 3, 1]  # (t, y, x, field)
    problem = problems.get("diffusion_reaction", data=path)
    assert problem.solution().source.endswith("sample 0")
    ours, theirs = problems.get("diffusion_reaction").soft_conditions()[0], problem.soft_conditions()[0]
    for field in "uv":  # our sample 0 is PDEBench's
        np.testing.assert_allclose(ours.data[field], theirs.data[field], atol=3e-7)
    np.testing.assert_allclose(ours.points, theirs.points, atol=1e-6)


def solution(shape, names):
    axes = dict(zip("xyt" if len(shape) == 3 else "xt", (np.linspace(0, 1, n) for n in shape), strict=True))
    return Solution(axes, {name: rng.normal(size=shape) for name in names})


@pytest.mark.parametrize(
    ("shape", "names"), [((6, 4), ("u",)), ((6, 4), ("rho", "v", "p")), ((6, 5, 4), ("u", "v")), ((6, 5, 4), "abcd")]
)
def test_what_is_written_is_read_again(tmp_path, shape, names):
    known = [solution(shape, names) for _ in range(3)]
    pdebench.write(tmp_path / "a.hdf5", known, {"beta": 2.0})
    with pdebench.open(tmp_path / "a.hdf5", names if len(shape) == 3 else ()) as samples:
        assert len(samples) == 3
        for a, b in zip(samples, known, strict=True):
            assert list(a.fields) == list(b.fields)
            for field in a.fields:
                np.testing.assert_allclose(a.fields[field], b.fields[field], rtol=1e-6)
            for axis in a.grid:
                np.testing.assert_allclose(a.grid[axis], b.grid[axis], rtol=1e-6)


@pytest.mark.parametrize(
    ("axes", "names"), [("xy", ("u",)), ("xy", ("u", "v")), ("xt", ("u", "h")), ("t", ("a", "b")), ("x", ("u",))]
)
def test_steady_ordinary_and_coupled_solutions_are_read_again(tmp_path, axes, names):
    grid = {axis: np.linspace(0, 1, 4 + i) for i, axis in enumerate(axes)}
    known = Solution(grid, {name: rng.normal(size=[len(a) for a in grid.values()]) for name in names})
    pdebench.write(tmp_path / "a.hdf5", [known, known], {"Re": 100.0})
    with pdebench.open(tmp_path / "a.hdf5", (*names, "p")) as samples:
        assert (len(samples), samples.fields, samples.attributes["Re"]) == (2, names, 100.0)
        for name in names:
            np.testing.assert_array_equal(samples[1].fields[name], known.fields[name])


def test_a_problem_can_take_its_solution_from_a_file(tmp_path):
    made = problems.get("compressible", resolution=16)
    pdebench.write(tmp_path / "a.hdf5", [made.solution()] * 2, {"eta": 1e-8, "zeta": 1e-8})
    problem = problems.get("compressible", data=tmp_path / "a.hdf5", sample=1)
    np.testing.assert_allclose(problem.solution().fields["p"], made.solution().fields["p"], rtol=1e-6)
    assert problem.soft_conditions()[0].terms(problem) == ("initial_rho", "initial_v", "initial_p")
    assert problem.hard_constraints() == {}
    assert problem.scales()["p"][0] == pytest.approx(made.scales()["p"][0], rel=1e-3)
    assert problems.get("compressible", data=tmp_path / "a.hdf5", fidelity="scripts").solution().shape == (16, 101)
    path = flat(tmp_path / "b.hdf5", beta=0.4)
    assert len(problems.get("advection", data=path, beta=0.4, sample=2).soft_conditions()[0].points) == 8
    assert problems.get("advection", data=path, beta=0.4).hard_constraints() == {}
    assert problems.get("advection", data=path, beta=0.4, fidelity="scripts").solution().shape == (8, 5)


# ---- refused --------------------------------------------------------------------------------------------------


def text_file(path):
    path.write_text("not HDF5")


def other_layout(path):
    with h5py.File(path, "w") as file:
        file["velocity"] = np.zeros((2, 3))
        file.create_group("more")


def two_dimensional_tensor(path):
    flat(path, shape=(2, 3, 4))
    with h5py.File(path, "a") as file:
        del file["tensor"]
        file["tensor"] = np.zeros((2, 1, 8, 8))


def empty(path):
    h5py.File(path, "w").close()


def truncated(path):
    flat(path, shape=(20, 50, 80))
    path.write_bytes(path.read_bytes()[:-20000])


def lacking_an_axis(path):
    """The data are there, two of their axes are not."""
    with h5py.File(path, "w") as file:
        group = file.create_group("0000")
        group.create_dataset("data", data=np.ones((4, 4, 4, 2)))
        group["grid/x"] = np.zeros(4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "a.hdf5: no such file"),
        (text_file, "a.hdf5: not a readable HDF5 file, perhaps damaged or cut off"),
        (truncated, "a.hdf5: not a readable HDF5 file, perhaps damaged or cut off"),
        (other_layout, r"a.hdf5: not one of PDEBench's layouts .* Found: more/, velocity \(2, 3\)"),
        (two_dimensional_tensor, "a.hdf5: not one of PDEBench's layouts"),
        (empty, "Found: nothing"),
        (lacking_an_axis, "a.hdf5: 0000/grid/y is not a data set of this file"),
    ],
)
def test_unreadable_files(tmp_path, make, message):
    make(tmp_path / "a.hdf5")
    with pytest.raises(InputError, match=message), pdebench.open(tmp_path / "a.hdf5") as samples:
        samples[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_numbers_are_named(tmp_path, bad):
    path = flat(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        file["tensor"][1, 2, 3] = bad
    with pdebench.open(path) as samples:
        assert samples[0].shape == (8, 5)
        with pytest.raises(InputError, match=r"a.hdf5: sample 1, field 'u': 1 values are NaN or infinite"):
            samples[1]


def test_samples_and_fields_that_do_not_exist(tmp_path):
    path = flat(tmp_path / "a.hdf5", beta=0.4)
    with pdebench.open(path) as samples, pytest.raises(IndexError, match="sample 3 of 3"):
        samples[3]
    for given, message in [
        ({"sample": 9, "beta": 0.4}, "sample 9 asked for, the file has 3"),
        ({}, "beta = 0.4 in the file, 0.1 in the problem; set beta=0.4"),
    ]:
        with pytest.raises(InputError, match=message):
            problems.get("advection", data=path, **given).solution()
    with pytest.raises(InputError, match="holds u, but compressible has rho, v, p"):
        problems.get("compressible", data=flat(tmp_path / "b.hdf5")).solution()
    pdebench.write(tmp_path / "c.hdf5", [solution((4, 4, 2), "abc")], {})
    with pytest.raises(InputError, match="3 fields in the file, 2 expected: u, v"):
        problems.get("diffusion_reaction", data=tmp_path / "c.hdf5").solution()
