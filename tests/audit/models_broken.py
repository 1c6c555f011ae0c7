"""Broken models: each has a fault planted, and `codes` are what the audit must find, no more and no less."""

import numpy as np
import torch
import torch.nn.functional as F
from models_common import Call, Table, mlp, points
from models_sound import SIZES, Holder, PaiNN, Recurrent, ResNet, frames
from torch import nn

import dcnn
from dcnn.atoms import build

BROKEN = Table()

# ---- activations -----------------------------------------------------------------------------------------------------

for name, activation in {
    "relu": nn.ReLU,
    "relu_in_place": lambda x: x.relu_(),
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "relu6": nn.ReLU6,
    "rrelu": nn.RReLU,
    "hardtanh": nn.Hardtanh,
    "softshrink": lambda x: F.softshrink(x, 0.2),
    "hardshrink": lambda x: F.hardshrink(x, 0.2),
    "threshold": lambda x: F.threshold(x, 0.1, 0.0),
    "clamp": lambda x: x.clamp(min=0),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "where": lambda x: torch.where(x > 0, x, 0.1 * x),
    "abs": torch.abs,
    "mask": lambda x: x * (x > 0),
    "crelu": lambda x: torch.cat([F.relu(x[:, :8]), F.relu(-x[:, 8:])], 1),
}.items():
    BROKEN.add(f"mlp_{name}", lambda activation=activation: (mlp(activation), points()), "DC101")
for name, activation in {
    "selu": nn.SELU,
    "elu_of_another_slope": lambda x: F.elu(x, 0.5),
    "celu_kinked": lambda x: F.celu(x, 0.5) + 0.3 * x.abs(),
    "hardswish": lambda x: F.hardswish(6 * x),
}.items():
    BROKEN.add(f"mlp_{name}", lambda activation=activation: (mlp(activation), points()), "DC102")
BROKEN.add("mlp_hardsigmoid", lambda: (mlp(lambda x: F.hardsigmoid(6 * x)), points()), "DC101 DC303")
BROKEN.add("mlp_elu_second_derivatives", lambda: (mlp(nn.ELU), points()), "DC102", orders=2)
BROKEN.add("mlp_irelu_second_derivatives", lambda: (mlp(dcnn.activations.IReLU), points()), "DC101", orders=[1, 2])


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.b(F.relu(self.a(x)))


BROKEN.add("functional_relu", lambda: (Functional(), points()), "DC101")
BROKEN.add("scripted_relu", lambda: (torch.jit.script(mlp(nn.ReLU)), points()), "DC101")
BROKEN.add("traced_relu", lambda: (torch.jit.trace(Functional(), points()), points()), "DC101")
BROKEN.add("exported_relu", lambda: (torch.export.export(Functional(), (points(),)), points()), "DC101")
BROKEN.add("compiled_relu", lambda: (torch.compile(Functional()), points()), "DC101")
BROKEN.add("resnet_relu", lambda: (ResNet(F.relu), _images()), "DC101 DC201")
BROKEN.add("painn_relu", lambda: (PaiNN(activation=F.relu), _painn()), "DC101", wrt=1)


def _painn():
    from models_common import molecule

    return molecule()


@BROKEN.row("DC101")
def a_lambda_with_relu():
    net = mlp(nn.ReLU)
    return (lambda x: net(x).sum(1)), points()


BROKEN.add("a_method_with_relu", lambda: (Holder(nn.ReLU).energy, points()), "DC101")


@BROKEN.row("DC101")
def relu_written_into_a_buffer():
    first, last = nn.Linear(3, 16), nn.Linear(16, 1)

    def value(x):
        h = first(x)
        buffer = torch.zeros_like(h)
        buffer[:, :8], buffer[:, 8:] = F.relu(h[:, :8]), h[:, 8:]
        return last(buffer)

    return value, points()


@BROKEN.row("DC101")
def relu_inside_vmap():
    net = mlp(nn.ReLU)
    return (lambda x: torch.vmap(lambda row: net(row[None])[0])(x)), points()


@BROKEN.row("DC101")
def one_relu_among_smooth_layers():
    layers = [nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(16, 1)), points()


@BROKEN.row("DC101")
def rnn_relu():
    return Recurrent(nn.RNN(3, 8, nonlinearity="relu", batch_first=True)), torch.randn(6, 5, 3)


@BROKEN.row("DC101 DC201 DC303")
def transformer_relu():
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    return nn.Sequential(nn.Linear(3, 8), encoder, Call(lambda h: h.mean(1)), nn.Linear(8, 1)), torch.randn(4, 5, 3)


def _images():
    return torch.randn(4, 1, 8, 8)


def _cnn(*middle):
    return nn.Sequential(nn.Conv2d(1, 8, 3), *middle, nn.Flatten(), nn.Linear(72, 1))


BROKEN.add("cnn_relu_max_pool", lambda: (_cnn(nn.ReLU(), nn.MaxPool2d(2)), _images()), "DC101 DC102")
BROKEN.add("cnn_silu_max_pool", lambda: (_cnn(nn.SiLU(), nn.MaxPool2d(2)), _images()), "DC102")


@BROKEN.row("DC102")
def point_net():
    """The largest feature over the points of a cloud."""
    return nn.Sequential(nn.Linear(3, 16), nn.SiLU(), Call(lambda h: h.amax(1)), nn.Linear(16, 1)), torch.randn(4, 7, 3)


# ---- normalization ---------------------------------------------------------------------------------------------------

BROKEN.add("batch_norm", lambda: (mlp(nn.SiLU, norm=nn.BatchNorm1d), points()), "DC201 DC202")
BROKEN.add(
    "scripted_batch_norm", lambda: (torch.jit.script(mlp(nn.SiLU, norm=nn.BatchNorm1d)), points()), "DC201 DC202"
)
BROKEN.add("cnn_batch_norm", lambda: (_cnn(nn.BatchNorm2d(8), nn.SiLU(), nn.AvgPool2d(2)), _images()), "DC201 DC202")


@BROKEN.row("DC201 DC202")
def batch_norm_in_a_plain_list():
    """Never trained, never in evaluation mode, as in the published PINN scripts."""

    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.norms = nn.Linear(3, 16), nn.Linear(16, 1), [nn.BatchNorm1d(16)]

        def forward(self, x):
            return self.b(torch.tanh(self.norms[0](self.a(x))))

    return Listed(), points()


@BROKEN.row("DC201 DC202")
def batch_norm_as_a_function():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 16), nn.Linear(16, 1)
            self.register_buffer("mean", torch.zeros(16))
            self.register_buffer("var", torch.ones(16))

        def forward(self, x):
            return self.b(torch.tanh(F.batch_norm(self.a(x), self.mean, self.var, training=self.training)))

    return Normed(), points()


@BROKEN.row("DC202")
def batch_statistics_by_hand():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 16), nn.Linear(16, 1)

        def forward(self, x):
            h = self.a(x)
            return self.b(torch.tanh((h - h.mean(0)) / (h.std(0) + 0.1) if self.training else h))

    return Centred(), points()


# ---- derivatives -----------------------------------------------------------------------------------------------------


class Through(nn.Module):
    """An MLP behind something that spoils the gradient."""

    def __init__(self, spoil):
        super().__init__()
        self.spoil, self.net = spoil, mlp(nn.SiLU)

    def forward(self, x):
        return self.net(self.spoil(x))


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.square()

    @staticmethod
    def backward(ctx, g):
        return g


class OnlyOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


def _no_grad(x):
    with torch.no_grad():
        y = torch.sin(x[:, 1:])
    return torch.cat([x[:, :1], y], 1)


for name, (spoil, codes) in {
    "detached_part": (lambda x: torch.cat([x[:, :1], x[:, 1:].detach()], 1), "DC301"),
    "no_grad_part": (_no_grad, "DC301"),
    "data_attribute": (lambda x: x + x.data.square(), "DC301"),
    "wrong_backward": (WrongBackward.apply, "DC301"),
    "straight_through_rounding": (lambda x: x + (torch.round(4 * x) / 4 - x).detach(), "DC301"),
    "detached": (lambda x: x.detach(), "DC302"),
    "through_numpy": (lambda x: torch.from_numpy(np.asarray(x.detach())), "DC302"),
    "rounded": (lambda x: torch.round(20 * x) / 20, "DC302"),
    "norm_at_zero": (lambda x: x + (x - x).square().sum(1, keepdim=True).sqrt(), "DC302"),
    "differentiable_once": (OnlyOnce.apply, "DC303"),
}.items():
    BROKEN.add(name, lambda spoil=spoil: (Through(spoil), points()), codes)


@BROKEN.row("DC301", derivative=lambda m, x: 1.2 * torch.autograd.grad(m(x).sum(), x)[0])
def derivative_of_another_scale():
    return mlp(nn.SiLU), points()


@BROKEN.row("DC301", derivative=lambda m, x: m[0](x)[:, :3])
def forces_from_a_head_of_their_own():
    return mlp(nn.SiLU), points()


# ---- signal ----------------------------------------------------------------------------------------------------------


def _deep(activation, gain, depth=9):
    net = mlp(activation, width=40, depth=depth)
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear):
                layer.weight.normal_(0, gain / layer.in_features**0.5)
                layer.bias.zero_()
    return net


BROKEN.add("deep_tanh_that_dies", lambda: (_deep(nn.Tanh, 0.2), points()), "DC501 DC502")
BROKEN.add("deep_irelu_that_explodes", lambda: (_deep(dcnn.activations.IReLU, 3.0, 7), points()), "DC501 DC502")
BROKEN.add("deep_irelu_that_dies", lambda: (_deep(dcnn.activations.IReLU, 0.3), points()), "DC501 DC502 DC901")
BROKEN.add(
    "seconds_not_scaled", lambda: (mlp(nn.Tanh, inputs=2), torch.rand(64, 2) * 1e7), "DC302 DC501 DC502", orders=2
)


@BROKEN.row("DC901")
def nanometres_not_scaled():
    return mlp(nn.Tanh, inputs=2), torch.rand(64, 2) * 1e-9


@BROKEN.row("DC502 DC901")
def one_constant():
    net = mlp(nn.SiLU)
    with torch.no_grad():
        net[-1].weight.mul_(1e-12)
    return net, points()


@BROKEN.row("DC501 DC502 DC901", labels={"y": torch.randn(50)})
def flat_beside_its_labels():
    net = mlp(nn.SiLU)
    with torch.no_grad():
        net[-1].weight.mul_(1e-8)
        net[-1].bias.zero_()
    return net, points()


# ---- labels and terms ------------------------------------------------------------------------------------------------

ENERGY = -406_737 + 6 * torch.randn(100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
BROKEN.add(
    "total_energies",
    lambda: (mlp(nn.SiLU), points()),
    "DC401 DC402",
    labels={"energy": ENERGY, "forces": 29 * torch.randn(100, 3)},
    target_error={"energy": 0.01},
)
BROKEN.add(
    "one_term_of_two",
    lambda: (mlp(nn.SiLU), points()),
    "DC801",
    losses=lambda m, x: {"a": 1e4 * (m(x) - 3).square().mean(), "b": 1e-2 * (m(x) - 2).square().mean()},
)
BROKEN.add(
    "terms_against_each_other",
    lambda: (mlp(nn.SiLU), points()),
    "DC802",
    losses=lambda m, x: {"up": (m(x) - 3).square().mean(), "down": (m(x) + 3).square().mean()},
)

# ---- molecules -------------------------------------------------------------------------------------------------------


def _network(name, **options):
    return build(name, cutoff=5.0, **{**SIZES[name], **options}), frames()


BROKEN.add("cgcnn_with_batch_norm", lambda: _network("cgcnn", normalization=True), "DC201 DC202")
BROKEN.add("cgcnn_of_the_scripts", lambda: _network("cgcnn", fidelity="scripts"), "DC201 DC601")
BROKEN.add("forcenet_of_the_scripts", lambda: _network("forcenet", fidelity="scripts"), "DC601 DC701")
BROKEN.add("dimenet_of_the_scripts", lambda: _network("dimenet_plus_plus", fidelity="scripts"), "DC301")
BROKEN.add("schnet_relu", lambda: _network("schnet", activation="relu"), "DC101")


class HardCutoff(nn.Module):
    """Pairs count fully up to the cutoff and not at all beyond it."""

    cutoff = 4.0

    def __init__(self):
        super().__init__()
        self.net = mlp(nn.SiLU, inputs=1)

    def forward(self, batch):
        d = batch.pair_vectors().norm(dim=1, keepdim=True)
        energies = self.net(d) * (d < self.cutoff)
        return d.new_zeros(batch.n_systems).index_add(0, batch.system[batch.pair_i], energies[:, 0])


@BROKEN.row("DC601")
def hard_cutoff():
    return HardCutoff(), frames()


@BROKEN.row("DC601")
def hard_cutoff_in_a_crystal():
    import dcnn.testing as checks

    return HardCutoff(), checks.crystal(4.0)


@BROKEN.row("DC701", rotation_invariant=True)
def lab_frame():
    return mlp(nn.SiLU), points()
