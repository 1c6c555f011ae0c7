"""denormalize and folding, against networks built by hand; eval outputs unchanged to 1e-12."""

import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dcnn.errors import InputError
from dcnn.surgery import NotReplacedWarning, denormalize, swap_activations


@pytest.fixture(autouse=True)
def _float64():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def trained(net: nn.Module, *inputs: Tensor) -> nn.Module:
    """Non-trivial statistics and affine parameters, in eval mode."""
    net.train()
    for _ in range(3):
        net(*inputs)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase) and module.weight is not None:
                module.weight.uniform_(0.5, 2.0)
                module.bias.uniform_(-1.0, 1.0)
    return net.eval()


class BasicBlock(nn.Module):
    """The residual block of a ResNet, with its projection."""

    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out)) + self.downsample(x)
        return self.relu(out)


def resnet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()),
        *(BasicBlock(4, 6, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)),
    )


def vision(shape: tuple[int, ...] = (5, 2, 8, 8)) -> Tensor:
    return torch.randn(*shape)


# --- removal ---------------------------------------------------------------------------------------------


def test_resnet_without_its_norms():
    net, x = trained(resnet(), vision()), vision()
    removed = denormalize(net)
    assert removed == ["1", "3.bn1", "3.bn2", "3.downsample.1"]
    block = net[3]
    h = F.relu(net[0](x))
    h = F.relu(block.conv2(F.relu(block.conv1(h))) + block.downsample[0](h))
    torch.testing.assert_close(net(x), net[6](h.mean((2, 3))), rtol=0, atol=1e-14)
    assert not any("running" in name for name in net.state_dict())
    with pytest.raises(
        InputError, match="nothing to denormalize: Sequential has no batch, layer, group, instance or rms"
    ):
        denormalize(net)


def every_kind() -> dict[str, list[nn.Module]]:
    return {
        "batch": [nn.BatchNorm1d(4), nn.LazyBatchNorm1d(), nn.SyncBatchNorm(4)],
        "layer": [nn.LayerNorm(4)],
        "group": [nn.GroupNorm(2, 4)],
        "instance": [nn.InstanceNorm1d(4)],
        "rms": [nn.RMSNorm(4)],
    }


@pytest.mark.parametrize("kind", every_kind())
def test_kinds(kind):
    norms = [(name, norm) for name, several in every_kind().items() for norm in several]
    net = nn.ModuleList(norm for _, norm in norms)
    expected = [str(i) for i, (name, _) in enumerate(norms) if name == kind]
    assert denormalize(net, kind) == expected
    assert all(type(net[int(i)]) is nn.Identity for i in expected)
    with pytest.raises(InputError, match=f"has no {kind} normalization"):
        denormalize(net, kind)
    assert len(denormalize(net, [other for other in every_kind() if other != kind])) == len(norms) - len(expected)


def test_norms_of_torch_geometric():
    pyg = pytest.importorskip("torch_geometric.nn")
    norms = {
        "batch": pyg.BatchNorm(4),
        "layer": pyg.LayerNorm(4),
        "graph": pyg.GraphNorm(4),
        "pair": pyg.PairNorm(),
        "instance": pyg.InstanceNorm(4),
        "hetero": pyg.HeteroLayerNorm(4, 2),
        "group": pyg.DiffGroupNorm(4, 2),
        "mean": pyg.MeanSubtractionNorm(),
    }
    net, x, batch = nn.ModuleDict(norms), torch.randn(6, 4), torch.tensor([0, 0, 0, 1, 1, 1])
    assert set(denormalize(net)) == set(norms)
    for name in norms:
        assert net[name](x) is x
    assert net["graph"](x, batch) is x
    assert net["layer"](x, batch=batch, batch_size=2) is x
    mlp = pyg.MLP([4, 8, 8, 1], norm="graph_norm", act="tanh")
    assert denormalize(mlp, "instance") == ["norms.0", "norms.1"]
    h = torch.tanh(mlp.lins[1](torch.tanh(mlp.lins[0](x))))
    torch.testing.assert_close(mlp(x, batch=batch), mlp.lins[2](h), rtol=0, atol=1e-14)


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return F.relu(F.layer_norm(self.lin(x), (4,), self.weight)) + F.group_norm(x, 2)


class Untraceable(Functional):
    def forward(self, x):
        return F.rms_norm(x, (4,)) if x.sum() > 0 else x


class ScaleNorm(nn.Module):
    def forward(self, x):
        return x / x.norm()


def test_functional_norms():
    net, x = Functional(), torch.randn(3, 4)
    assert denormalize(net, "group") == ["group_norm"]
    assert denormalize(net) == ["layer_norm"]
    torch.testing.assert_close(net(x), F.relu(net.lin(x)) + x, rtol=0, atol=0)


def test_blocks_and_unknown_norms():
    class ConvBatchNorm(nn.Sequential):
        """A block, in spite of its name."""

    net = nn.ModuleDict(
        {"block": ConvBatchNorm(nn.Conv1d(1, 1, 1), nn.BatchNorm1d(1)), "a": ScaleNorm(), "b": Untraceable()}
    )
    with pytest.warns(NotReplacedWarning, match=r"(?s)a: ScaleNorm is of no kind.*b\.rms_norm: torch.fx"):
        removed = denormalize(net)
    assert removed == ["block.1"]
    assert [place for place, _ in removed.not_replaced] == ["a", "b.rms_norm"]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_torchscript_is_reported():
    net = nn.ModuleDict({"script": torch.jit.trace(block(nn.LayerNorm(4)), torch.ones(2, 4)), "norm": nn.LayerNorm(4)})
    with pytest.warns(NotReplacedWarning, match="script: TorchScript code cannot be changed"):
        assert denormalize(net) == ["norm"]


@pytest.mark.parametrize(
    ("model", "kinds", "message"),
    [
        (lambda: nn.Linear(1, 1), "all", "nothing to denormalize: Linear"),
        (resnet, "batc", "unknown kind of normalization 'batc'; did you mean 'batch'"),
        (resnet, ["layer"], "has no layer normalization"),
        (resnet, ("layer", "rms"), "has no layer or rms normalization"),
        (lambda: nn.LayerNorm(2), "all", "is itself a normalization"),
    ],
)
def test_wrong_input(model, kinds, message):
    with pytest.raises(InputError, match=message):
        denormalize(model(), kinds)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_transformer_encoder(norm_first):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    net, x = nn.TransformerEncoder(layer, 2, nn.LayerNorm(8)).eval(), torch.randn(3, 5, 8)
    removed = denormalize(net)
    assert removed == ["layers.0.norm1", "layers.0.norm2", "layers.1.norm1", "layers.1.norm2", "norm"]
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    with torch.no_grad():
        masked = net(x, src_key_padding_mask=padding)
        h = x
        for layer in net.layers:
            h = h + layer.self_attn(h, h, h, need_weights=False)[0]
            h = h + layer.linear2(F.relu(layer.linear1(h)))
        torch.testing.assert_close(net(x), h, rtol=0, atol=1e-13)
        torch.testing.assert_close(masked[1:], h[1:], rtol=0, atol=1e-13)


# --- folding ---------------------------------------------------------------------------------------------


class Shared(nn.Module):
    """One linear layer and one norm, used twice."""

    def __init__(self, twice: bool):
        super().__init__()
        self.lin, self.bn, self.twice = nn.Linear(4, 4), nn.BatchNorm1d(4), twice
        self.alias = self.bn

    def forward(self, x):
        x = torch.tanh(self.bn(self.lin(x)))
        return self.alias(self.lin(x)) if self.twice else self.lin(x)


class Opaque(nn.Module):
    """Cannot be traced as a whole, its part can."""

    def __init__(self, part: nn.Module):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x) if x.sum() > -1e9 else x


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.bn = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(torch.tanh(self.bn(self.a(x))))


def block(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


def bn1(channels: int = 4, **options) -> nn.Module:
    return nn.BatchNorm1d(channels, **options)


FLAT, LINE, IMAGE = (7, 4), (7, 4, 9), (5, 4, 8, 8)
FOLDABLE = {
    "linear before": (lambda: block(nn.Linear(4, 6), bn1(6), nn.Tanh()), FLAT, ["1"]),
    "linear before, no bias": (lambda: block(nn.Linear(4, 6, bias=False), bn1(6), nn.Tanh()), FLAT, ["1"]),
    "linear after": (lambda: block(bn1(), nn.Linear(4, 6, bias=False)), FLAT, ["0"]),
    "dropout between": (lambda: block(nn.Linear(4, 4), nn.Dropout(0.5), bn1(), nn.ReLU()), FLAT, ["2"]),
    "two in a row": (lambda: block(nn.Linear(4, 4), bn1(), bn1(), nn.ReLU()), FLAT, ["1", "2"]),
    "not affine": (lambda: block(nn.Linear(4, 4), bn1(affine=False), nn.ReLU()), FLAT, ["1"]),
    "conv before": (lambda: block(nn.Conv2d(4, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU()), IMAGE, ["1"]),
    "grouped conv before": (lambda: block(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), IMAGE, ["1"]),
    "conv after": (lambda: block(nn.BatchNorm2d(4), nn.Conv2d(4, 6, 3, groups=2)), IMAGE, ["0"]),
    "circular conv after": (
        lambda: block(bn1(), nn.Conv1d(4, 6, 3, padding=1, padding_mode="circular")),
        *(LINE, ["0"]),
    ),
    "1×1 conv after": (lambda: block(bn1(), nn.Conv1d(4, 6, 1, padding="same")), LINE, ["0"]),
    "transposed conv": (lambda: block(nn.ConvTranspose1d(4, 6, 3, 2, groups=2), bn1(6), nn.ReLU()), LINE, ["1"]),
    "instance norm with statistics": (
        lambda: block(nn.Conv1d(4, 6, 3), nn.InstanceNorm1d(6, affine=True, track_running_stats=True)),
        *(LINE, ["1"]),
    ),
    "a ResNet": (resnet, (5, 2, 8, 8), ["1", "3.bn1", "3.bn2", "3.downsample.1"]),
    "shared": (lambda: Shared(True), FLAT, ["bn", "alias"]),
    "linear before, three axes": (lambda: block(nn.Linear(9, 4), bn1(), nn.Tanh()), LINE, ["1"]),
    "linear after, three axes": (lambda: block(bn1(), nn.Linear(4, 6)), (7, 4, 4), ["0"]),
    "inside what cannot be traced": (lambda: Opaque(block(nn.Linear(4, 4), bn1(), nn.Tanh())), FLAT, ["part.1"]),
}


@pytest.mark.parametrize("name", FOLDABLE)
def test_folding_leaves_the_output_in_eval_mode(name):
    build, shape, expected = FOLDABLE[name]
    x = 3 * torch.randn(*shape) + 1
    net = trained(build(), x)
    before = net(x)
    parameters = {id(p) for m in net.modules() if isinstance(m, (nn.Linear, nn.Conv2d)) for p in m.parameters()}
    assert denormalize(net, fold=True) == expected
    torch.testing.assert_close(net(x), before, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(pickle.loads(pickle.dumps(net))(x), before, rtol=1e-12, atol=1e-12)
    assert not any("running" in key for key in net.state_dict())
    assert parameters <= {id(p) for p in net.parameters()}
    assert not any(isinstance(m, nn.modules.batchnorm._NormBase) for m in net.modules())


class Transposes(nn.Module):
    """Uses the weight of its layer a second time, as a tied autoencoder does."""

    def __init__(self):
        super().__init__()
        self.l, self.bn = nn.Linear(4, 4), bn1()

    def forward(self, x):
        return F.linear(torch.tanh(self.bn(self.l(x))), self.l.weight.T)


class TransposesOutside(nn.Module):
    """The same, where only the part with the norm can be traced."""

    def __init__(self):
        super().__init__()
        self.part = nn.Sequential(nn.Linear(4, 4), bn1())

    def forward(self, x):
        return F.linear(torch.tanh(self.part(x)), self.part[0].weight.T) if x.sum() > -1e9 else x


def functional_batch_norm():
    class Net(nn.Module):
        def forward(self, x):
            return F.batch_norm(x, torch.zeros_like(x[0]), torch.ones_like(x[0]))

    return Net()


NOT_FOLDABLE = {
    "padding": (lambda: block(bn1(), nn.Conv1d(4, 6, 3, padding=1)), LINE, "pads with zeros"),
    "same padding": (lambda: block(bn1(), nn.Conv1d(4, 6, 3, padding="same")), LINE, "pads with zeros"),
    "transposed after": (lambda: block(bn1(), nn.ConvTranspose1d(4, 6, 3)), LINE, "less often at its borders"),
    "activation around": (lambda: block(nn.Linear(4, 4), nn.Tanh(), bn1(), nn.Tanh()), FLAT, "no linear or conv"),
    "used twice": (lambda: Shared(False), FLAT, "no linear or convolution"),
    "shared, not traced": (lambda: Opaque(Shared(True)), FLAT, "used in several places"),
    "layer norm": (lambda: block(nn.Linear(4, 4), nn.LayerNorm(4)), FLAT, "no running statistics"),
    "no statistics": (lambda: block(nn.Linear(4, 4), bn1(track_running_stats=False)), FLAT, "no running statistics"),
    "tied": (Tied, FLAT, "shares its weight"),
    "axis": (lambda: block(nn.Linear(9, 5), bn1(4), nn.Tanh()), LINE, "it has 4 channels, the neighbouring Linear 5"),
    "parametrized": (
        lambda: block(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), bn1(), nn.Tanh()),
        *(FLAT, "no plain, initialised weight"),
    ),
    "weight used twice": (Transposes, FLAT, "the weight of the neighbouring Linear is used by another call"),
    "weight used twice outside": (TransposesOutside, FLAT, "the weight of the neighbouring Linear is used by another"),
    "2d and linear": (
        lambda: block(nn.Linear(8, 4), nn.BatchNorm2d(4), nn.Tanh()),
        *(IMAGE, "works on axis 1, the neighbouring Linear on the last"),
    ),
    "functional": (functional_batch_norm, FLAT, "a functional call, not a layer"),
    "opaque owner": (lambda: UntraceableNorm(), FLAT, "what is before and after it is unknown"),
}


class UntraceableNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.bn = nn.Linear(4, 4), bn1()

    def forward(self, x):
        return self.bn(self.lin(x)) if x.sum() > -1e9 else x


@pytest.mark.parametrize("name", NOT_FOLDABLE)
def test_what_cannot_be_folded_stays_and_says_why(name):
    build, shape, reason = NOT_FOLDABLE[name]
    x = torch.randn(*shape)
    net = trained(build(), x)
    before = net(x)
    with pytest.warns(NotReplacedWarning, match=reason):
        removed = denormalize(net, fold=True)
    assert removed == []
    assert all(reason in why for _, why in removed.not_replaced)
    torch.testing.assert_close(net(x), before, rtol=0, atol=0)
    assert len(denormalize(net)) == len(removed.not_replaced)


def test_lazy_norm_and_layer_are_not_folded():
    with pytest.warns(NotReplacedWarning, match="has not seen any data yet"):
        denormalize(nn.Sequential(nn.Linear(4, 4), nn.LazyBatchNorm1d()), fold=True)
    with pytest.warns(NotReplacedWarning, match="no plain, initialised weight"):
        denormalize(nn.Sequential(nn.LazyLinear(4), nn.BatchNorm1d(4)), fold=True)


def test_folding_in_torch_geometric():
    pyg = pytest.importorskip("torch_geometric.nn")
    x = torch.randn(9, 4)
    net = trained(pyg.MLP([4, 8, 8, 1], norm="batch_norm", act="tanh"), x)
    before = net(x)
    assert denormalize(net, fold=True) == ["norms.0", "norms.1"]
    torch.testing.assert_close(net(x), before, rtol=1e-12, atol=1e-12)


def test_folding_after_a_functional_swap():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.bn, self.out = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)

        def forward(self, x):
            return self.out(torch.tanh(self.bn(self.lin(x))))

    x = torch.randn(9, 4)
    net = trained(nn.Sequential(Net()), x)
    assert swap_activations(net, "irelu") == ["0.tanh"]
    before = net(x)
    assert denormalize(net, fold=True) == ["0.bn"]
    torch.testing.assert_close(net(x), before, rtol=1e-12, atol=1e-12)
