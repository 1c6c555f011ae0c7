"""Sound models: each may get warnings that are true (`codes`), and no error."""

import copy
from functools import partial

import torch
import torch.nn.functional as F
from models_common import Call, Table, mlp, molecule, points
from torch import nn

import dcnn
from dcnn.activations import init_
from dcnn.atoms import Batcher, build, demo_dataset

SOUND = Table()

# ---- activations -----------------------------------------------------------------------------------------------------

for name, activation in {
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "mish": nn.Mish,
    "elu": nn.ELU,
    "softsign": nn.Softsign,
    "logsigmoid": nn.LogSigmoid,
    "sine": torch.sin,
    "irelu": dcnn.activations.IReLU,
    "relu_squared": lambda x: 0.5 * F.relu(x) ** 2,
    "x_times_relu": lambda x: x * F.relu(x),
    "softplus_by_hand": lambda x: F.relu(x) + torch.log1p(torch.exp(-x.abs())),
    "swish_with_beta": lambda x: x * torch.sigmoid(5 * x),
    "squareplus": lambda x: (x + torch.sqrt(x * x + 4)) / 2,
    "guarded_log": lambda x: torch.log((x * x + 1).clamp(min=1e-6)),
    "where_elu": lambda x: torch.where(x > 0, x, torch.expm1(x.clamp(max=0))),
}.items():
    SOUND.add(f"mlp_{name}", lambda activation=activation: (mlp(activation), points()))
for name, activation in {"tanh": nn.Tanh, "silu": nn.SiLU, "gelu": nn.GELU}.items():
    SOUND.add(f"mlp_{name}_second_derivatives", lambda a=activation: (mlp(a), points()), orders=2)


@SOUND.row(orders=2)
def mlp_integrated_silu():
    net = mlp(partial(dcnn.activations.get("integrated_silu")), depth=1)
    init_(net, points())
    return net, points()


@SOUND.row()
def functional_relu_after_the_fix():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 16), nn.Linear(16, 1)

        def forward(self, x):
            return self.b(F.relu(self.a(x)))

    net = Net()
    dcnn.swap_activations(net, "silu")
    return net, points()


@SOUND.row()
def batch_norm_after_the_fix():
    net = mlp(nn.SiLU, norm=nn.BatchNorm1d)
    dcnn.denormalize(net)
    return net, points()


# ---- how models and samples come -------------------------------------------------------------------------------------


@SOUND.row()
def scripted():
    return torch.jit.script(mlp(nn.SiLU)), points()


@SOUND.row()
def traced():
    return torch.jit.trace(mlp(nn.Tanh), points()), points()


@SOUND.row()
def exported():
    dynamic = ({0: torch.export.Dim.AUTO},)
    return torch.export.export(mlp(nn.SiLU), (points(),), dynamic_shapes=dynamic), points()


@SOUND.row()
def compiled():
    return torch.compile(mlp(nn.SiLU)), points()


@SOUND.row()
def compiled_inside():
    return nn.Sequential(torch.compile(nn.Linear(3, 16)), nn.SiLU(), nn.Linear(16, 1)), points()


@SOUND.row()
def a_lambda():
    net = mlp(nn.SiLU)
    return (lambda x: net(x)[:, 0]), points()


@SOUND.row()
def a_partial():
    net = mlp(nn.Tanh, inputs=4)
    return partial(lambda net, x, t: net(torch.cat([x, t], 1)), net, t=torch.ones(32, 1, dtype=torch.float64)), points()


class Holder:
    """An object that is no module and has one."""

    def __init__(self, activation):
        self.net = mlp(activation)

    def energy(self, x):
        return self.net(x)

    __call__ = energy


SOUND.add("a_method", lambda: (Holder(nn.SiLU).energy, points()))
SOUND.add("an_object_that_can_be_called", lambda: (Holder(nn.SiLU), points()))


class Nested(nn.Module):
    """Takes one nested dictionary and returns several named outputs."""

    def __init__(self):
        super().__init__()
        self.a, self.energy, self.charge = nn.Linear(3, 16), nn.Linear(16, 1), nn.Linear(16, 2)

    def forward(self, data):
        h = F.silu(self.a(data["graph"]["pos"]) + data["shift"])
        return {"charge": self.charge(h), "nested": {"energy": self.energy(h)}}


@SOUND.row(wrt="graph.pos", output="nested.energy")
def nested_dictionaries():
    return Nested(), {"graph": {"pos": points(), "z": torch.arange(32)}, "shift": torch.ones(16)}


@SOUND.row(wrt=0, output=1)
def tuples_by_number():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(nn.SiLU)

        def forward(self, x, t):
            return t, self.net(x) * t

    return Two(), (points(), torch.ones(32, 1))


@SOUND.row(derivative=lambda m, x: torch.autograd.grad(m(x).sum(), x)[0])
def own_derivative_of_a_float32_sample():
    return mlp(nn.SiLU), points()


@SOUND.row()
def plain_tensor_attributes():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.scale, self.parts = mlp(nn.Tanh), torch.tensor([1.0, 2.0, 3.0]), [torch.ones(3)]

        def forward(self, x):
            return self.net(x * self.scale + self.parts[0])

    return Scaled(), points()


@SOUND.row()
def weight_norm():
    return nn.Sequential(
        torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 8)), nn.Tanh(), nn.Linear(8, 1)
    ), points()


@SOUND.row()
def dropout():
    return nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Dropout(0.5), nn.Linear(16, 1)), points()


@SOUND.row(labels={"y": torch.tensor(0.3)})
def a_label_without_axes():
    return mlp(nn.SiLU), points()


# ---- layouts of torch ------------------------------------------------------------------------------------------------


@SOUND.row()
def linear_regression():
    return nn.Linear(3, 1), points()


@SOUND.row("DC201")
def residual_mlp_with_layer_norm():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.a, self.b = nn.LayerNorm(16), nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, h):
            return h + self.b(F.silu(self.a(self.norm(h))))

    return nn.Sequential(nn.Linear(3, 16), Block(), Block(), nn.Linear(16, 1)), points()


class ResNet(nn.Module):
    """Two residual blocks of convolutions with group norms, average pooling."""

    def __init__(self, activation=F.silu):
        super().__init__()
        self.first, self.last, self.act = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(8, 1), activation
        self.blocks = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(2, 8) for _ in range(2))

    def forward(self, x):
        h = self.first(x)
        for conv, norm in zip(self.blocks, self.norms, strict=True):
            h = h + conv(self.act(norm(h)))
        return self.last(self.act(h).mean((2, 3)))


@SOUND.row("DC201")
def resnet():
    return ResNet(), torch.randn(4, 1, 8, 8)


@SOUND.row()
def cnn_on_images_with_black_borders():
    x = torch.zeros(4, 1, 8, 8)
    x[:, :, 2:6, 2:6] = torch.rand(4, 1, 4, 4)
    conv = nn.Conv2d(1, 8, 3, bias=False)
    return nn.Sequential(conv, nn.Softplus(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(72, 1)), x


class Recurrent(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell, self.out = cell, nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.cell(x)[0][:, -1])


for name, cell in {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}.items():
    SOUND.add(name, lambda cell=cell: (Recurrent(cell(3, 8, batch_first=True)), torch.randn(6, 5, 3)))


class Attention(nn.Module):
    """One head written out, with the maximum taken off before the exponential."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, h):
        score = self.q(h) @ self.k(h).transpose(1, 2)
        weight = torch.exp(score - score.amax(-1, keepdim=True))
        return h + self.out(weight / weight.sum(-1, keepdim=True) @ self.v(h))


@SOUND.row("DC201")
def transformer_written_out():
    layers = [nn.Linear(3, 8), Attention(), nn.LayerNorm(8), nn.GELU(), Attention(), Call(lambda h: h.mean(1))]
    return nn.Sequential(*layers, nn.Linear(8, 1)), torch.randn(4, 5, 3)


@SOUND.row("DC201 DC303")  # true: torch's attention kernel has no second derivative, the advice names the one that has
def transformer_of_torch():
    encoder = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True, dropout=0.0)
    return nn.Sequential(nn.Linear(3, 8), encoder, Call(lambda h: h.mean(1)), nn.Linear(8, 1)), torch.randn(4, 5, 3)


@SOUND.row()
def vectorised_by_vmap():
    net = mlp(nn.Tanh)
    return (lambda x: torch.vmap(lambda row: net(row[None])[0])(x)), points()


@SOUND.row()
def fourier_neural_operator():
    class Operator(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.out = nn.Parameter(torch.randn(9, dtype=torch.complex64)), nn.Linear(16, 1)

        def forward(self, x):
            return self.out(F.gelu(torch.fft.irfft(torch.fft.rfft(x) * self.w, n=16)))

    return Operator(), torch.randn(6, 16)


@SOUND.row()
def cubic_splines():
    class Spline(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.knots, self.out = nn.Linear(3, 4), torch.linspace(-2, 2, 5), nn.Linear(20, 1)

        def forward(self, x):
            d = (self.a(x)[..., None] - self.knots).abs()
            near, far = 2 / 3 - d**2 + d**3 / 2, (2 - d).clamp(min=0) ** 3 / 6
            return self.out(torch.where(d < 1, near, far).flatten(1))

    return Spline(), points()


@SOUND.row()
def cosine_cutoff_with_a_mask():
    net = mlp(nn.SiLU)

    def energy(x):
        d = x.norm(dim=1, keepdim=True)
        return net(x) * 0.5 * (torch.cos(d * torch.pi / 1.5) + 1) * (d < 1.5)

    return energy, points(64)


@SOUND.row()
def written_into_a_buffer():
    net = mlp(nn.SiLU, inputs=4)

    def value(x):
        h = torch.zeros(len(x), 4, dtype=x.dtype)
        h[:, 0], h[:, 1:] = x[:, 0], torch.sin(x)
        return net(h)

    return value, points()


# ---- physics-informed networks ---------------------------------------------------------------------------------------


class Scaled(nn.Module):
    def __init__(self, net, low, high, out=1.0):
        super().__init__()
        self.net, self.out = net, out
        self.register_buffer("low", torch.tensor(low))
        self.register_buffer("high", torch.tensor(high))

    def forward(self, x):
        return self.out * self.net(2 * (x - self.low) / (self.high - self.low) - 1)


@SOUND.row(orders=2)
def pinn_in_si_units():
    """Heat in a micrometre of silicon over an hour, in kelvin."""
    x = torch.rand(64, 2) * torch.tensor([1e-6, 3600.0])
    return Scaled(mlp(nn.Tanh, inputs=2), [0.0, 0.0], [1e-6, 3600.0], 300.0), x


@SOUND.row(orders=2)
def pinn_of_planets():
    x = torch.rand(64, 2) * torch.tensor([3e7, 1.5e11])
    return Scaled(mlp(nn.SiLU, inputs=2), [0.0, 0.0], [3e7, 1.5e11], 3e4), x


@SOUND.row(orders=2)
def pinn_with_exact_boundary():
    net = mlp(nn.Tanh, inputs=2)
    return (lambda x: x[:, :1] * (1 - x[:, :1]) * net(x)), torch.rand(64, 2)


@SOUND.row()
def small_inputs():
    return mlp(nn.Tanh), 1e-3 * points()


@SOUND.row()
def very_small_inputs():
    return Scaled(mlp(nn.SiLU), [0.0] * 3, [1e-9] * 3), 1e-9 * torch.rand(32, 3)


@SOUND.row()
def fast_fourier_features():
    net = mlp(nn.SiLU, inputs=6)
    return (lambda x: net(torch.cat([torch.sin(5000 * x), torch.cos(5000 * x)], 1))), torch.rand(32, 3)


@SOUND.row()
def deep_operator_network():
    class DeepONet(nn.Module):
        def __init__(self):
            super().__init__()
            self.branch, self.trunk = mlp(nn.Tanh, inputs=5, outputs=8), mlp(nn.Tanh, inputs=2, outputs=8)

        def forward(self, field, x):
            return (self.branch(field) * self.trunk(x)).sum(1, keepdim=True)

    return DeepONet(), {"field": torch.randn(32, 5), "x": torch.rand(32, 2)}


SOUND["deep_operator_network"].options["wrt"] = "x"


@SOUND.row()
def hamiltonian():
    """Returns the derivative of its own energy."""

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.h = mlp(nn.Tanh, inputs=2)

        def forward(self, x):
            with torch.enable_grad():
                x = x if x.requires_grad else x.clone().requires_grad_()
                return torch.autograd.grad(self.h(x).sum(), x, create_graph=True)[0]

    return Flow(), points(32, 2)


@SOUND.row()
def large_offset():
    """Total energies: −1.1e6 ± 0.05."""
    net = mlp(nn.SiLU)
    with torch.no_grad():
        net[-1].bias.fill_(-1.1e6)
    return net, points()


@SOUND.row()
def read_out_that_starts_at_zero():
    net = mlp(nn.SiLU)
    with torch.no_grad():
        net[-1].weight.zero_()
    return net, points()


@SOUND.row()
def trained_so_well_that_the_value_term_is_small():
    net = mlp(nn.Tanh)
    goal = copy.deepcopy(net)
    with torch.no_grad():
        goal[-1].bias.add_(1e-7)
        goal[2].weight.mul_(1.01)
    return net, points()


def _terms(model, x):
    """The values are learnt to 1e-7, the slopes to 1e-2."""
    x = x.clone().requires_grad_()
    y = model(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return {
        "value": (y - y.detach() + 1e-7).square().mean(),
        "slope": (slope - slope.detach() + 1e-2).square().mean(),
    }


SOUND["trained_so_well_that_the_value_term_is_small"].options["losses"] = _terms

# ---- molecules -------------------------------------------------------------------------------------------------------


class EmbeddingProduct(nn.Module):
    """One factor does not depend on the positions."""

    def __init__(self):
        super().__init__()
        self.emb, self.a, self.b, self.out = nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, z, x):
        return self.out(torch.tanh(self.b(x)) * torch.tanh(self.a(self.emb(z))))


@SOUND.row()
def product_with_an_embedding():
    return EmbeddingProduct(), (torch.arange(10), points(10))


class PaiNN(nn.Module):
    """Scalars and vectors on atoms; messages from neighbours, mixing of vectors, energy from scalars."""

    def __init__(self, width=8, activation=F.silu):
        super().__init__()
        self.emb, self.act, self.width = nn.Embedding(10, width), activation, width
        self.message = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3 * width))
        self.filter, self.mix = nn.Linear(6, 3 * width), nn.Linear(width, 2 * width, bias=False)
        self.update, self.out = nn.Linear(2 * width, 3 * width), nn.Linear(width, 1)

    def forward(self, z, pos, edges):
        i, j = edges
        r = pos[j] - pos[i]
        d = r.norm(dim=1, keepdim=True)
        basis = torch.sin(torch.arange(1, 7) * torch.pi * d / 5.0) / d * 0.5 * (torch.cos(torch.pi * d / 5.0) + 1)
        s, v = self.emb(z), pos.new_zeros(len(z), 3, self.width)
        for _ in range(2):
            a, b, c = (self.message(s)[j] * self.filter(basis)).chunk(3, 1)
            pushed = v[j] * b.unsqueeze(1) + (r / d).unsqueeze(2) * c.unsqueeze(1)
            s, v = s.index_add(0, i, a), v.index_add(0, i, pushed)
            u, w = self.mix(v).chunk(2, 2)
            a, b, c = self.act(self.update(torch.cat([s, (w * w).sum(1)], 1))).chunk(3, 1)
            s, v = s + a + b * (u * w).sum(1), v + u * c.unsqueeze(1)
        return self.out(s).new_zeros(2, 1).index_add(0, torch.arange(len(z)) // (len(z) // 2), self.out(self.act(s)))


@SOUND.row(wrt="1")
def painn():
    z, pos, edges = molecule()
    return PaiNN(), (z, pos, edges)


class Gated(nn.Module):
    """As e3nn does it: an activation with its second moment normalised, gates on vectors, invariants by contraction."""

    def __init__(self):
        super().__init__()
        x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
        self.factor = float(F.silu(x).square().mean().rsqrt())
        self.a, self.b, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, pos):
        centred = pos - pos.mean(1, keepdim=True)
        d = centred.norm(dim=-1)
        gates = self.factor * F.silu(self.a(d))
        vectors = centred * gates.unsqueeze(-1)
        return self.out(self.factor * F.silu(self.b((vectors * vectors).sum(-1))))


@SOUND.row()
def gated_vectors():
    return Gated(), torch.randn(6, 8, 3)


@SOUND.row(wrt="x")
def minimum_image():
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(nn.SiLU, inputs=1)

        def forward(self, x):
            r = x[:, None] - x[:, :, None] if x.dim() == 3 else x[:, :3] - x[:, 3:]
            r = r - 4.0 * torch.round(r / 4.0)
            return self.net((r * r).sum(1, keepdim=True))

    return Pairs(), {"x": 8 * torch.rand(32, 6)}


@SOUND.row(wrt="1")
def schnet_of_pyg():
    from torch_geometric.nn.models import SchNet

    z, pos, edges = molecule()
    net = SchNet(
        hidden_channels=8,
        num_filters=8,
        num_interactions=2,
        num_gaussians=10,
        interaction_graph=lambda p, b: (edges, (p[edges[0]] - p[edges[1]]).norm(dim=-1)),
    )
    return net, (z, pos, torch.arange(12) // 6)


@SOUND.row(wrt="x")
def graph_of_pyg():
    from torch_geometric.data import Data
    from torch_geometric.nn import GCNConv

    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.out = GCNConv(3, 8), nn.Linear(8, 1)

        def forward(self, data):
            return self.out(torch.tanh(self.conv(data.x, data.edge_index)))

    return Graph(), Data(x=points(12), edge_index=molecule()[2])


SIZES = {
    "schnet": {"features": 16, "filters": 16, "blocks": 2, "gaussians": 10},
    "cgcnn": {"features": 16, "convolutions": 2, "head_features": 16, "gaussians": 10, "normalization": False},
    "dimenet_plus_plus": {"hidden": 16, "triplet": 8, "basis": 4, "output": 16, "blocks": 1},
    "forcenet": {"features": 16, "blocks": 1, "gaussians": 8, "head_features": 16, "normalization": False},
    "gemnet": {"preset": "small"},
}


def frames():
    return Batcher(demo_dataset(), 5.0)(range(3))


for name in SIZES:
    code = "DC701" if name == "forcenet" else ""  # true: it knows the lab frame
    SOUND.add(name, lambda name=name: (build(name, cutoff=5.0, **SIZES[name]), frames()), code)


@SOUND.row()
def schnet_with_pairs_beyond_its_cutoff():
    return build("schnet", cutoff=4.0, **SIZES["schnet"]), frames()


@SOUND.row()
def schnet_on_a_crystal():
    import dcnn.testing as checks

    return build("schnet", cutoff=5.0, **SIZES["schnet"]), checks.crystal(5.0)
