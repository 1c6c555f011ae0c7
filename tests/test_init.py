"""init_ keeps value and input derivative through depth; Glorot and He do not, for IReLU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from dcnn.activations import NAMES, IReLU, Tanh, get, init_, moments
from dcnn.errors import InputError
from dcnn.surgery import denormalize


def mlp(activation: str, depth: int, inputs: int = 2, width: int = 40, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n in [inputs] + [width] * (depth - 1):
        layers += [nn.Linear(n, width, bias=bias), get(activation)]
    return nn.Sequential(*layers, nn.Linear(width, 1, bias=bias))


def points(rows: int, seed: int) -> Tensor:
    """Points of a PDE's domain: x in [0, 1], t in [0, 2]."""
    return torch.rand(rows, 2, generator=torch.Generator().manual_seed(seed)) * torch.tensor([1.0, 2.0])


def within(found: list[float], low: float, high: float) -> bool:
    return low <= min(found) and max(found) <= high


@pytest.mark.parametrize("name", NAMES)
def test_value_and_derivative_are_kept_on_new_points(name):
    torch.manual_seed(0)
    model = mlp(name, depth=6)
    init_(model, points(512, seed=1))
    *hidden, last = moments(model, points(1024, seed=2))
    assert within([m.value for m in hidden], 0.9, 1.1)
    assert within([m.derivative / hidden[0].derivative for m in [*hidden, last]], 0.67, 1.5)


@pytest.mark.parametrize("name", ["irelu", "integrated_silu", "tanh"])
@pytest.mark.parametrize("seed", [0, 1])
def test_twenty_layers(name, seed):
    torch.manual_seed(seed)
    model = mlp(name, depth=20)
    init_(model, points(512, seed=1))
    *hidden, last = moments(model, points(1024, seed=2))
    assert within([m.value for m in hidden], 0.9, 1.1)
    assert within([m.derivative / hidden[0].derivative for m in [*hidden, last]], 0.5, 2.0)


@pytest.mark.parametrize("depth", [6, 20])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("draw", "dies"), [(nn.init.xavier_normal_, True), (nn.init.kaiming_normal_, False)])
def test_irelu_dies_with_glorot_and_dies_or_explodes_with_he(depth, seed, draw, dies):
    torch.manual_seed(seed)
    model = mlp("irelu", depth).double()
    for layer in model[::2]:
        draw(layer.weight)
        nn.init.zeros_(layer.bias)
    x = points(512, seed=1).double() * 2 - torch.tensor([1.0, 2.0])
    first, *_, last_hidden, _ = moments(model, x)
    ratio = last_hidden.derivative / first.derivative
    assert last_hidden.value < 1e-6 if dies else not 1e-3 < last_hidden.value < 1e3
    assert ratio < 1e-6 if dies else not 1e-3 < ratio < 1e3


def test_no_unit_is_switched_off_everywhere():
    torch.manual_seed(0)
    model = mlp("irelu", depth=20)
    x = points(512, seed=1)
    init_(model, x)
    for layer in model[1:-1:2]:
        assert (model[: list(model).index(layer) + 1](x) > 0).any(0).all()


def test_a_deep_irelu_network_trains_after_init():
    torch.manual_seed(0)
    model = mlp("irelu", depth=6)
    x = points(256, seed=1)
    y = torch.sin(3 * x[:, :1] - x[:, 1:])
    init_(model, x)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(150):
        loss = (model(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.02 * y.var().item()


def test_moments_are_those_of_the_jacobian():
    torch.manual_seed(0)
    model = mlp("silu", depth=2, inputs=3, width=7).double()
    x = torch.randn(4000, 3, dtype=torch.float64)
    for k, found in zip((1, 3), moments(model, x)[:2], strict=True):
        part = model[:k]
        z = part(x)
        jacobian = vmap(jacrev(part))(x)
        assert found.value == pytest.approx(z.square().mean().item(), rel=1e-12)
        assert found.variance == pytest.approx(z.var(0, correction=0).mean().item(), rel=1e-12)
        assert found.derivative == pytest.approx(jacobian.square().sum(-1).mean().item(), rel=0.05)


def test_the_last_layer_is_centred_and_scaled():
    x = points(512, seed=1)
    deviation = {}
    for last in (1.0, 0.1):
        torch.manual_seed(0)
        model = mlp("tanh", depth=3)
        init_(model, x, last=last)
        assert abs(model(x).mean().item()) < 1e-5
        deviation[last] = model(x).std().item()
    assert deviation[0.1] == pytest.approx(0.1 * deviation[1.0], rel=1e-4)


def test_value_sets_the_second_moment():
    model = mlp("tanh", depth=3)
    found = init_(model, points(512, seed=1), value=0.25)
    assert [m.value for m in found[:-1]] == pytest.approx([0.25] * 3, rel=1e-4)


class Odd(nn.Module):
    """A shared layer, an unused one, a skip, a constant branch, a normalization, and two arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.shared, self.unused = nn.Linear(2, 16), nn.Linear(16, 16), nn.Linear(3, 3)
        self.constant, self.last = nn.Linear(4, 16), nn.Linear(16, 2)
        self.act, self.norm, self.dropout = IReLU(), nn.BatchNorm1d(16), nn.Dropout(0.5)

    def forward(self, x: Tensor, species: Tensor) -> Tensor:
        h = self.act(self.first(x)) + self.constant(nn.functional.one_hot(species, 4).to(x.dtype))
        h = self.dropout(self.norm(h))
        for _ in range(2):
            h = h + self.act(self.shared(h))
        return self.last(h)


def test_shared_unused_and_constant_layers():
    torch.manual_seed(0)
    model = Odd()
    model.dropout.eval()
    unused, statistics = model.unused.weight.clone(), model.norm.running_mean.clone()
    found = init_(model, (points(256, seed=1), torch.arange(256) % 4))
    assert [m.name for m in found] == ["first", "constant", "shared", "last"]
    assert [m.value for m in found[:3]] == pytest.approx([1.0] * 3, rel=1e-3)
    assert found[2].derivative == pytest.approx(found[0].derivative, rel=0.3)
    assert torch.equal(unused, model.unused.weight)
    assert torch.equal(statistics, model.norm.running_mean)
    assert model.training
    assert not model.dropout.training
    assert not model.first._forward_pre_hooks


def test_without_bias_the_value_is_kept():
    torch.manual_seed(0)
    model = mlp("tanh", depth=6, bias=False)
    found = init_(model, points(512, seed=1))
    assert [m.value for m in found] == pytest.approx([1.0] * 7, rel=1e-3)


def test_nothing_to_initialise():
    with pytest.raises(InputError, match=r"no torch\.nn\.Linear"):
        init_(nn.Sequential(Tanh()), points(4, seed=0))
    with pytest.raises(InputError, match="layer '0' is zero or not finite"):
        init_(mlp("tanh", 2), torch.zeros(4, 2))


# --- models and samples as people have them ----------------------------------------------------------------


class TakesDictionary(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 8), nn.Linear(8, 1)

    def forward(self, batch):
        return {"energy": self.b(torch.tanh(self.a(batch["inputs"]["x"])))}


class TakesKeywords(TakesDictionary):
    def forward(self, x, scale=1.0):
        return super().forward({"inputs": {"x": x}})["energy"] * scale


class Differentiates(TakesDictionary):
    def forward(self, x):
        with torch.enable_grad():
            x = x.requires_grad_()
            return torch.autograd.grad(super().forward({"inputs": {"x": x}})["energy"].sum(), x)[0]


def transformer() -> nn.Module:
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), 2)
    denormalize(net)
    return net


@pytest.mark.parametrize(
    ("build", "sample"),
    [
        (transformer, torch.randn(6, 5, 8)),
        (lambda: torch.compile(mlp("tanh", 2), backend="eager"), points(50, 0)),
        (TakesDictionary, {"inputs": {"x": points(50, 0)}}),
        (TakesKeywords, {"x": points(50, 0)}),
        (Differentiates, points(50, 0)),
        (lambda: mlp("tanh", 2).bfloat16(), points(50, 0).bfloat16()),
        (lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 4)), nn.Linear(4, 1)), points(50, 0)),
    ],
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_models_and_samples_of_every_form(build, sample):
    torch.manual_seed(0)
    found = init_(build(), sample)
    assert found[0].value == pytest.approx(1.0, rel=0.05)
    assert all(layer.derivative > 0 for layer in found)
    assert not any("_orig_mod" in layer.name for layer in found)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.Linear(3, 1), "Linear cannot be called with this sample: RuntimeError: mat1 and mat2"),
        (lambda: nn.Sequential(nn.Linear(2, 4), nn.LSTM(4, 4)), "derivative of Sequential cannot be followed"),
        (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(2, 4)), "computed from other tensors"),
        (lambda: nn.utils.weight_norm(nn.Linear(2, 4)), "computed from other tensors and cannot be set"),
        (lambda: torch.jit.trace(nn.Linear(2, 4), torch.ones(1, 2)), "calls no torch.nn.Linear"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*weight_norm.*:FutureWarning")
def test_what_cannot_be_initialised_is_an_error_that_says_why(build, message):
    with pytest.raises(InputError, match=message):
        init_(build(), points(50, 0))
