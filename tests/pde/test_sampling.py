"""Points: what every way of spreading them promises."""

import pytest
import torch

from dcnn.errors import InputError
from dcnn.pde.sampling import SAMPLERS, generator, unit_points, where_large


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_points_fill_the_unit_cube(sampler, d):
    points = unit_points(sampler, 4096, d, generator(0))
    assert points.shape == (4096, d)
    assert points.dtype == torch.float64
    assert points.min() >= 0
    assert points.max() < 1
    torch.testing.assert_close(points.mean(0), torch.full((d,), 0.5, dtype=torch.float64), atol=0.02, rtol=0)
    torch.testing.assert_close(points.var(0), torch.full((d,), 1 / 12, dtype=torch.float64), atol=0.003, rtol=0)


@pytest.mark.parametrize("sampler", ["uniform", "latin_hypercube", "sobol"])
def test_streams_are_reproducible_and_differ(sampler):
    first, again, other = (unit_points(sampler, 8, 2, generator(*key)) for key in ((1, 2), (1, 2), (1, 3)))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("sampler", ["latin_hypercube", "sobol"])
def test_every_slice_of_every_axis_has_one_point(sampler):
    points = unit_points(sampler, 64, 3, generator(0))
    for column in (points * 64).floor().T:
        assert sorted(column.tolist()) == list(range(64))


def test_hammersley_mirrors_digits():
    points = unit_points("hammersley", 6, 3, generator(0))
    assert points[:, 1].tolist() == [0, 1 / 2, 1 / 4, 3 / 4, 1 / 8, 5 / 8]
    torch.testing.assert_close(points[:, 2], torch.tensor([0, 1 / 3, 2 / 3, 1 / 9, 4 / 9, 7 / 9], dtype=torch.float64))


def test_a_grid_never_has_more_points_than_asked_for():
    assert len(unit_points("grid", 1000, 3, generator(0))) == 1000
    assert len(unit_points("grid", 1001, 3, generator(0))) == 1000


def test_points_are_drawn_where_the_residual_is_large():
    candidates = torch.linspace(0, 1, 2000, dtype=torch.float64)[:, None]
    size = torch.where(candidates[:, 0] < 0.1, 9.0, 0.0)
    chosen = where_large(candidates, size, 100, generator(0), floor=0.0)
    assert chosen.max() < 0.1
    assert len(chosen.unique(dim=0)) == 100
    mixed = where_large(candidates, size, 500, generator(0), floor=1.0)
    share = float((mixed < 0.1).double().mean())
    assert 0.25 < share <= 0.4  # all 200 of the large ones at most; ten in eleven parts of the density at first


def test_an_unknown_sampler_is_named():
    with pytest.raises(InputError, match="unknown sampler 'sobl'; did you mean 'sobol'"):
        unit_points("sobl", 4, 2, generator(0))
