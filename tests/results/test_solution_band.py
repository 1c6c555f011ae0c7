"""Several solutions as one, with a band."""

import numpy as np
import pytest
import torch
from torch import nn

from dcnn.errors import InputError
from dcnn.results import SolutionBand
from dcnn.results.solution_function import SolutionFunction


def plane(slope, fields=("u",), coordinates=("x", "t")):
    net = nn.Linear(2, len(fields), bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[slope, 1.0]] * len(fields)))
    return SolutionFunction(net, coordinates, fields)


def test_mean_and_spread_of_values_and_derivatives():
    band = SolutionBand([plane(s) for s in (1.0, 2.0, 6.0)])
    x = np.array([0.0, 2.0])
    np.testing.assert_allclose(band(x=x, t=1.0).mean, 3 * x + 1)
    np.testing.assert_allclose(band(x=x, t=1.0).spread, np.sqrt(7) * x)
    np.testing.assert_allclose(band.partials("x", x=x, t=1.0).mean, [3.0, 3.0])
    two = SolutionBand([plane(s, ("u", "v")) for s in (1.0, 3.0)])([[1.0, 0.0]])
    assert {name: float(value[0]) for name, value in two.mean.items()} == {"u": 2.0, "v": 2.0}
    np.testing.assert_allclose(two.spread["v"], [np.sqrt(2)])


def test_what_makes_no_band_is_refused():
    with pytest.raises(InputError, match="two solutions or more, found 1"):
        SolutionBand([plane(1.0)])
    with pytest.raises(InputError, match=r"of u in x, t and of u in x, y are not of one problem"):
        SolutionBand([plane(1.0), plane(1.0, coordinates=("x", "y"))])
