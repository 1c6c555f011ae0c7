"""swap_activations on every way a model can keep its activations, against networks built by hand."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dcnn import activations
from dcnn.errors import InputError
from dcnn.surgery import NotReplacedWarning, swap_activations

irelu = activations.IReLU()


@pytest.fixture(autouse=True)
def _float64():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def points(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


# --- modules and stored callables ------------------------------------------------------------------------


class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


class Everywhere(nn.Module):
    """One activation of each kind of place; ``reference`` is the same network with ``f`` everywhere."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(9))
        self.module = nn.PReLU()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        self.many = nn.ModuleList([nn.Tanh()])
        self.named = nn.ModuleDict({"gate": nn.Sigmoid()})
        self.act = F.silu
        self.acts = [torch.tanh, nn.GELU()]
        self.pair = (F.relu, "not a function")
        self.table = {"hidden": {"deep": torch.sigmoid}}
        self.custom = Swish()
        self.nonlinearity = lambda x: x * torch.tanh(x)
        self.identity = nn.Identity()
        self.embed = torch.sin

    def functions(self):
        return [
            *(self.module, lambda x: self.inner(x), self.many[0], self.named["gate"], self.act, *self.acts),
            *(self.pair[0], self.table["hidden"]["deep"], self.custom, self.nonlinearity),
        ]

    def forward(self, x):
        for i, function in enumerate(self.functions()):
            x = function(self.layers[i % 9](x)) + x
        return self.identity(x) + self.embed(x)

    def reference(self, x, f):
        for i in range(11):
            h = self.layers[i % 9](x)
            x = f(self.inner[0](h) if i == 1 else h) + x
        return x + torch.sin(x)


def test_modules_and_callables_wherever_they_sit():
    net, x = Everywhere(), points(5, 4)
    before = net(x)
    state = list(net.state_dict())
    changed = swap_activations(net, "irelu")
    assert sorted(changed) == sorted(
        [
            *("module", "inner.1", "many.0", "named.gate", "act", "acts.0", "acts.1", "pair.0"),
            *("table.hidden.deep", "custom", "nonlinearity"),
        ]
    )
    assert changed.order is None
    torch.testing.assert_close(net(x), net.reference(x, irelu), rtol=0, atol=1e-14)
    assert not torch.allclose(net(x), before)
    assert list(net.state_dict()) == [name for name in state if name != "module.weight"]
    assert isinstance(net.act, activations.IReLU)  # registered, so that it shows in repr and named_modules
    assert isinstance(net.pair, tuple)


def test_lists_are_copied_so_that_another_model_keeps_its_own():
    first = Everywhere()
    second = copy.copy(first)
    second.__dict__ = {**vars(first)}
    swap_activations(first, "irelu", where="acts.*")
    assert second.acts[0] is torch.tanh


def test_a_module_given_is_used_as_it_is():
    net, shared = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Tanh()), nn.PReLU()
    swap_activations(net, shared)
    assert net[1] is shared
    assert net[2] is shared


def test_swapping_twice_and_back():
    net, x = Everywhere(), points(5, 4)
    assert sorted(swap_activations(net, "irelu")) == sorted(swap_activations(net, "tanh"))
    torch.testing.assert_close(net(x), net.reference(x, torch.tanh), rtol=0, atol=1e-14)


class normalize2mom(nn.Module):  # noqa: N801, e3nn's name
    """c·f(x), of second moment one for a standard normal x."""

    def __init__(self, f):
        super().__init__()
        self.f = f
        self.register_buffer("cst", torch.tensor(1.6765))

    def forward(self, x):
        return self.f(x).mul(self.cst)


@pytest.mark.parametrize("f", [F.silu, nn.SiLU(), lambda x: x * torch.sigmoid(x)])
def test_the_constant_of_a_normalized_activation_stays(f):
    x = points(7)
    net = nn.ModuleDict({"act": normalize2mom(f), "acts": nn.ModuleList([normalize2mom(F.silu)])})
    for new in (irelu, nn.Tanh(), activations.Tanh()):
        assert len(swap_activations(net, new)) == 2
        for changed in (net["act"], net["acts"][0]):
            torch.testing.assert_close(changed(x), 1.6765 * new(x), rtol=1e-6, atol=0)


class SwishOfFive(nn.Module):
    def __init__(self, trainable):
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(5.0)) if trainable else 5.0

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


@pytest.mark.parametrize("trainable", [False, True])
def test_a_swish_with_a_factor_is_one_activation(trainable):
    net, x = nn.Sequential(nn.Linear(3, 3), SwishOfFive(trainable)), points(4, 3)
    assert swap_activations(net, "irelu") == (["1.silu"] if trainable else ["1"])
    torch.testing.assert_close(net(x), irelu(net[0](x)), rtol=0, atol=1e-15)


class Maxout(nn.Module):
    def forward(self, x):
        return torch.maximum(x[..., ::2], x[..., 1::2])


def test_what_is_called_an_activation_and_is_none_is_reported():
    net = nn.ModuleDict({"a": nn.Tanh(), "act": Maxout()})
    with pytest.warns(NotReplacedWarning, match="act: it is called an activation, but it is not an elementwise"):
        assert swap_activations(net, "irelu").not_replaced[0][0] == "act"


# --- where -----------------------------------------------------------------------------------------------


def mlp(*acts: nn.Module) -> nn.Sequential:
    layers: list[nn.Module] = []
    for act in acts:
        layers += [nn.Linear(3, 3), act]
    return nn.Sequential(*layers, nn.Linear(3, 1))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, ["1", "3", "5", "7"]),
        ("[35]", ["3", "5"]),
        ("7", ["7"]),
        (["7", "1"], ["1", "7"]),
        (lambda name, module: isinstance(module, nn.ReLU), ["3"]),
        ("alternate", ["3", "7"]),
    ],
)
def test_where(where, expected):
    net = mlp(nn.Tanh(), nn.ReLU(), nn.Tanh(), nn.SiLU())
    assert swap_activations(net, "irelu", where=where) == expected
    assert [name for name, m in net.named_modules() if isinstance(m, activations.IReLU)] == expected


class Backwards(nn.Module):
    """Registered in one order, called in the other."""

    def __init__(self, traceable: bool = True):
        super().__init__()
        self.a, self.b, self.c = nn.Tanh(), nn.Tanh(), nn.Tanh()
        self.traceable = traceable

    def forward(self, x):
        if not self.traceable and x.sum() > 1e9:
            return x
        return self.c(self.a(self.b(x)))


@pytest.mark.parametrize(
    ("traceable", "sample", "expected", "how"),
    [
        (True, None, ["a"], "trace"),
        (False, None, ["b"], "registration"),
        (False, torch.ones(2), ["a"], "sample"),
        (False, (torch.ones(2),), ["a"], "sample"),
        (False, {"x": torch.ones(2)}, ["a"], "sample"),
    ],
)
def test_alternate_follows_the_forward_order(traceable, sample, expected, how):
    net = Backwards(traceable).train()
    changed = swap_activations(net, "irelu", where="alternate", sample=sample)
    assert (changed, changed.order) == (expected, how)
    assert net.training
    assert type(net.c) is nn.Tanh


class OneForAll(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
        self.act = act

    def forward(self, x):
        for linear in self.linears:
            x = self.act(linear(x))
        return x


@pytest.mark.parametrize("act", [torch.tanh, nn.Tanh()])
@pytest.mark.parametrize("sample", [None, torch.ones(1, 3, dtype=torch.float64)])
def test_alternate_splits_one_activation_that_serves_all_layers(act, sample):
    net, x = OneForAll(act), points(6, 3)
    changed = swap_activations(net, "irelu", "alternate", sample=sample)
    assert changed == ["act_call_1", "act_call_3"]
    assert changed.order == ("trace" if sample is None else "sample")
    h = x
    for linear, f in zip(net.linears, [torch.tanh, irelu] * 2, strict=True):
        h = f(linear(h))
    torch.testing.assert_close(net(x), h, rtol=0, atol=1e-14)
    assert swap_activations(net, "silu", where="act") == ["act"]  # the others follow the new self.act
    torch.testing.assert_close(net(x[:1]), hand(net, x[:1], [F.silu, irelu] * 2), rtol=0, atol=1e-14)


def hand(net: OneForAll, x: Tensor, functions) -> Tensor:
    for linear, f in zip(net.linears, functions, strict=True):
        x = f(linear(x))
    return x


# --- shared instances ------------------------------------------------------------------------------------


def test_a_shared_instance_changes_only_where_it_is_picked():
    relu = nn.ReLU()
    net = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2), relu), "b": nn.Sequential(relu)})
    assert swap_activations(net, "irelu", where="b.*") == ["b.0"]
    assert net["a"][1] is relu


def test_a_shared_block_is_one_place_with_two_names():
    block = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    net = nn.ModuleDict({"a": block, "b": block})
    assert swap_activations(net, "irelu") == ["a.1"]
    assert swap_activations(net, "tanh", where="b.*") == ["b.1"]
    with pytest.raises(InputError, match="picks none"):
        swap_activations(net, "tanh", where="alternate")


# --- functional calls ------------------------------------------------------------------------------------


def helper(x):
    return F.softplus(x)


class Functional(nn.Module):
    """Functional calls of every form, with dropout, an optional argument and a loop."""

    def __init__(self):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.relu = nn.ReLU()
        self.act = F.silu
        self.register_buffer("shift", torch.full((4,), 0.1))
        self.w = nn.Parameter(torch.ones(4))
        self.slope = 0.2

    def forward(self, x, mask=None, *, scale: float = 1.0):
        for linear in self.linears:
            x = torch.tanh(linear(x)) + self.shift
        x = self.relu(F.relu(x) + x.sigmoid()) + F.leaky_relu(x, self.slope) * self.w
        x = self.act(helper(x)) + x * torch.sigmoid(x) + torch.sin(x)
        x = F.dropout(x, 0.5, training=self.training) * scale
        if mask is not None:
            x = F.elu(x * mask)
        return x

    def reference(self, x, f, mask=None, scale=1.0):
        for linear in self.linears:
            x = f(linear(x)) + self.shift
        x = f(f(x) + f(x)) + f(x) * self.w
        x = f(f(x)) + f(x) + torch.sin(x)
        x = F.dropout(x, 0.5, training=self.training) * scale
        return x if mask is None else f(x * mask)


NAMES = ["tanh", "tanh_1", "tanh_2", "relu_function", "sigmoid", "leaky_relu", "softplus", "silu", "elu"]


def test_functional_calls():
    net, x, mask = Functional().eval(), points(5, 4), points(5, 4)
    weights = [id(p) for p in net.parameters()]
    state = {name: value.clone() for name, value in net.state_dict().items()}
    changed = swap_activations(net, "irelu")
    assert sorted(changed) == sorted([*NAMES, "relu", "act"])
    assert [place for place, _ in changed.not_replaced] == ["sin"]
    for arguments in ({}, {"mask": mask}, {"scale": 2.0}, {"mask": mask, "scale": 0.5}):
        torch.testing.assert_close(net(x, **arguments), net.reference(x, irelu, **arguments), rtol=0, atol=1e-14)
    assert [id(p) for p in net.parameters()] == weights
    assert list(net.state_dict()) == list(state)
    net.load_state_dict(state)


def test_functional_forward_still_knows_training_mode_and_dtype():
    net, x = Functional(), points(5, 4)
    swap_activations(net, "irelu")
    for training in (True, False, True):
        net.train(training)
        torch.manual_seed(3)
        ours = net(x)
        torch.manual_seed(3)
        torch.testing.assert_close(ours, net.reference(x, irelu), rtol=0, atol=1e-14)
    net.float().eval()
    assert net(x.float()).dtype is torch.float32  # the buffer was exchanged for another tensor
    net.slope = 0.3
    assert torch.isfinite(net(x.float())).all()


@pytest.mark.parametrize("survive", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_functional_swap_survives_copies(survive):
    net, x = Functional().eval(), points(5, 4)
    swap_activations(net, "irelu")
    net(x)
    other = survive(net)
    torch.testing.assert_close(other(x), net(x), rtol=0, atol=0)
    with torch.no_grad():
        other.linears[0].weight.zero_()
    assert not torch.allclose(other(x), net(x))
    torch.testing.assert_close(other(x), other.reference(x, irelu), rtol=0, atol=1e-14)


def test_functional_where_and_again():
    net, x = Functional().eval(), points(5, 4)
    assert swap_activations(net, "irelu", where="tanh*") == NAMES[:3]
    assert swap_activations(net, "irelu", where=["sin"]) == ["sin"]
    assert set(swap_activations(net, "irelu", where="[!s]*")) == {*NAMES, "relu", "act"} - {
        "silu",
        "sigmoid",
        "softplus",
    }
    assert set(swap_activations(net, "irelu")) == {*NAMES, "sin", "relu", "act"}
    torch.testing.assert_close(net(x), net.reference(x, irelu) + same_but_sine(net, x), rtol=0, atol=1e-13)


def same_but_sine(net, x):
    for linear in net.linears:
        x = irelu(linear(x)) + net.shift
    x = irelu(irelu(x) + irelu(x)) + irelu(x) * net.w
    return irelu(x) - torch.sin(x)


def test_functional_alternate_and_gradients():
    net, x = Functional().eval(), points(5, 4).requires_grad_()
    changed = swap_activations(net, "irelu", where="alternate", sample=x)
    assert changed == ["tanh_1", "relu_function", "relu", "softplus", "silu"]
    assert changed.order == "sample"
    assert torch.autograd.gradcheck(net, (x,))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # Dynamo's own
def test_functional_swap_compiles():
    net, x = Functional().eval(), points(5, 4)
    swap_activations(net, "irelu")
    torch.testing.assert_close(torch.compile(net, backend="eager")(x), net(x), rtol=0, atol=0)


@pytest.mark.parametrize("inside", [False, True])
def test_functional_swap_exports(inside):
    owner, x = Functional().eval(), points(5, 4)
    net = nn.Sequential(owner, nn.Linear(4, 2)).eval() if inside else owner
    swap_activations(net, "irelu")
    exported = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    more = points(9, 4)
    torch.testing.assert_close(exported.module()(more), net(more), rtol=0, atol=1e-14)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The TorchScript type system:UserWarning")  # what it says of any fx.GraphModule
def test_functional_swap_scripts(inside):
    owner, x = Functional().eval(), points(5, 4).requires_grad_()
    net = nn.Sequential(nn.Sequential(owner, nn.Linear(4, 2)), nn.Tanh()).eval() if inside else owner
    swap_activations(net, "irelu")
    script = torch.jit.script(net)
    for _ in range(3):  # the first runs are interpreted, the later ones optimised
        torch.testing.assert_close(script(x), net(x), rtol=0, atol=1e-14)
        ours, eager = (torch.autograd.grad(f(x).square().sum(), x)[0] for f in (script, net))
        torch.testing.assert_close(ours, eager, rtol=0, atol=1e-12)
    assert dict(script.named_parameters()).keys() == dict(net.named_parameters()).keys()
    assert owner is net or type(net[0][0]) is Functional  # scripting leaves the model as it was
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(torch.jit.script(other)(x), net(x), rtol=0, atol=1e-14)


class InPlace(nn.Module):
    def forward(self, x):
        y = x * 1
        F.relu(y, inplace=True)
        torch.tanh_(y)
        y.sigmoid_()
        return y + F.elu(y, 1.0, True)


def test_in_place_calls_keep_their_effect():
    net, x = InPlace(), points(7)
    assert swap_activations(net, "irelu") == ["relu", "tanh", "sigmoid", "elu"]
    y = irelu(irelu(irelu(x)))
    torch.testing.assert_close(net(x), irelu(y) + irelu(y), rtol=0, atol=1e-15)


class LoopsOverItsChildren(nn.Sequential):
    def forward(self, x):
        for child in self:
            x = F.relu(child(x))
        return x


def test_new_children_do_not_join_a_loop_over_children():
    net, x = LoopsOverItsChildren(nn.Linear(3, 3), nn.Linear(3, 3)), points(4, 3)
    assert swap_activations(net, "irelu") == ["relu", "relu_1"]
    for mode in (True, False):
        torch.testing.assert_close(net.train(mode)(x), irelu(net[1](irelu(net[0](x)))), rtol=0, atol=1e-15)
    assert len(net) == 2


# --- what cannot be replaced is reported ------------------------------------------------------------------


class Branches(nn.Module):
    def forward(self, x):
        return F.relu(x) if x.sum() > 0 else self.other(x)

    def other(self, x):
        return x.tanh()


class Freezes(nn.Module):
    def forward(self, x):
        return F.relu(x + torch.randn(3))


class NoGrad(nn.Module):
    def forward(self, x):
        with torch.no_grad():
            return F.relu(x)


class ChecksItsInput(nn.Module):
    def forward(self, x):
        if isinstance(x, Tensor):
            x = F.relu(x)
        return x


class Counts(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return F.relu(x)


class Logs(nn.Module):
    def __init__(self):
        super().__init__()
        self.log = []

    def forward(self, x):
        self.log.append(x)
        return F.relu(x)


class Star(nn.Module):
    def forward(self, *inputs):
        return F.relu(inputs[0])


class Inherits(Branches):
    def forward(self, x):
        return super().forward(x)


class Decorated(nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return F.relu(x)


@pytest.mark.parametrize(
    ("part", "place", "reason"),
    [
        (Branches, "part.relu", "torch.fx cannot trace it"),
        (Inherits, "part.tanh", "torch.fx cannot trace it"),
        (Freezes, "part.relu", "makes a tensor of its own"),
        (NoGrad, "part.relu", "torch.no_grad"),
        (ChecksItsInput, "part.relu", "isinstance"),
        (Counts, "part.relu", "writes to self.calls"),
        (Logs, "part.relu", "changes self.log"),
        (Star, "part.relu", "any number of arguments"),
        (Decorated, "part.relu", "decorated"),
        (lambda: nn.LSTM(3, 3), "part", "fused kernel"),
        (lambda: nn.GLU(), "part", "gate"),
        (lambda: torch.jit.trace(nn.Sequential(nn.ReLU()), torch.ones(2)), "part", "TorchScript"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_cannot_be_replaced_is_reported(part, place, reason):
    net = nn.ModuleDict({"part": part(), "tanh": nn.Tanh()})
    with pytest.warns(NotReplacedWarning, match=reason):
        changed = swap_activations(net, "irelu")
    assert changed == ["tanh"]
    assert any(name == place and reason in why for name, why in changed.not_replaced)
    if part is Logs:
        assert net["part"].log == []
    with pytest.raises(InputError, match=f"(?s)nothing to swap.*{reason}"):
        swap_activations(nn.ModuleDict({"part": part()}), "irelu")


class GEGLU(nn.Module):
    def forward(self, x):
        x, gate = x.chunk(2, dim=-1)
        return x * F.gelu(gate)


def test_a_module_called_act_that_is_no_activation_is_searched():
    net, x = nn.ModuleDict({"act": GEGLU(), "act_dropout": nn.Dropout(0.5), "acts": nn.ModuleList()}), points(3, 4)
    assert swap_activations(net, "irelu") == ["act.gelu"]
    torch.testing.assert_close(net["act"](x), x[:, :2] * irelu(x[:, 2:]), rtol=0, atol=0)


def test_a_callable_called_act_that_is_no_elementwise_function_is_reported():
    net = OneForAll(lambda x: x.softmax(-1))
    with pytest.raises(InputError, match="act: it is not an elementwise function"):
        swap_activations(net, "irelu")
    net = OneForAll(lambda a, b: a + b)
    with pytest.raises(InputError, match="act: called on a vector it raised TypeError"):
        swap_activations(net, "irelu")
    with pytest.raises(InputError, match="nothing to swap"):
        swap_activations(OneForAll(lambda x: 2 * x), "irelu")


def test_a_call_that_only_other_arguments_reach_is_not_silent():
    class Two(nn.Module):
        def forward(self, x, kind="a"):
            return torch.tanh(x) if kind == "a" else F.relu(torch.tanh(x))

    net = Two()
    swap_activations(net, "irelu")
    with pytest.warns(NotReplacedWarning, match="now calls relu"):
        torch.testing.assert_close(net(torch.ones(2), "b"), irelu(torch.ones(2)))


def test_arguments_that_cannot_be_traced_say_so():
    class Picky(nn.Module):
        def forward(self, x, mask=None):
            if mask is not None and mask.any():
                return x
            return F.relu(x)

    net = Picky()
    assert swap_activations(net, "irelu") == ["relu"]
    torch.testing.assert_close(net(torch.ones(2)), torch.full((2,), 0.5))
    with pytest.raises(InputError, match=r"Picky.forward was rebuilt to replace its relu.*cannot trace"):
        net(torch.ones(2), torch.ones(2))


def test_source_that_cannot_be_read():
    space: dict = {"nn": nn, "F": F}
    exec("class A(nn.Module):\n  def forward(s, x):\n    return F.relu(x) if x.sum() > 0 else x", space)
    exec("class B(nn.Module):\n  def forward(s, x):\n    return F.relu(x)", space)
    with pytest.raises(InputError, match=r"a\.forward: its source cannot be read and torch.fx"):
        swap_activations(nn.ModuleDict({"a": space["A"]()}), "irelu")
    net = space["B"]()
    assert swap_activations(net, "irelu") == ["relu"]
    torch.testing.assert_close(net(torch.ones(1) * 2), torch.ones(1) * 2)


def test_a_forward_replaced_by_someone_else():
    net = nn.ModuleDict({"part": InPlace()})
    net["part"].forward = lambda x: x
    with pytest.raises(InputError, match="already replaced on the instance"):
        swap_activations(net, "irelu")


# --- wrong input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "activation", "where", "message"),
    [
        (lambda: mlp(nn.Tanh()), "irellu", None, "did you mean 'irelu'"),
        (lambda: mlp(nn.Tanh()), "irelu", ["11"], "did you mean '1'"),
        (lambda: mlp(nn.Tanh()), "irelu", "x*", r"where='x\*' picks none of the activations of Sequential: 1"),
        (lambda: mlp(nn.Tanh()), "irelu", lambda n, m: False, "the predicate picks none"),
        (lambda: mlp(nn.Tanh()), "irelu", "alternate", "picks none"),
        (lambda: nn.Linear(1, 1), "irelu", None, "nothing to swap: Linear has no activation"),
        (lambda: mlp(nn.Identity()), "irelu", None, "nothing to swap"),
        (lambda: nn.Tanh(), "irelu", None, "Tanh is itself an activation"),
        (lambda: nn.LSTM(1, 1), "irelu", None, "LSTM cannot be changed"),
    ],
)
def test_wrong_input(model, activation, where, message):
    with pytest.raises(InputError, match=message):
        swap_activations(model(), activation, where)


def test_a_lone_sine_is_named():
    class Siren(nn.Module):
        def forward(self, x):
            return torch.sin(3 * x)

    net = Siren()
    with pytest.raises(InputError, match=r"sin: a sine may be a feature; to replace it, use where=\['sin'\]"):
        swap_activations(net, "irelu")
    assert swap_activations(net, "irelu", where="sin") == ["sin"]


# --- transformer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [F.relu, F.gelu, nn.ReLU()])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_transformer_encoder(activation, norm_first):
    def build(act):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, activation=act, batch_first=True, norm_first=norm_first)
        return nn.TransformerEncoder(layer, 2).eval()

    net, hand_built, x = build(activation), build(irelu), points(3, 5, 8)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    changed = swap_activations(net, "irelu", where="alternate" if norm_first else None, sample=x)
    assert changed == (["layers.1.activation"] if norm_first else ["layers.0.activation", "layers.1.activation"])
    swap_activations(net, "irelu")
    with torch.no_grad():  # where the fused kernel would run the old ReLU
        torch.testing.assert_close(net(x), hand_built(x), rtol=0, atol=1e-14)
        masked, expected = (n(x, src_key_padding_mask=padding) for n in (net, hand_built))
    torch.testing.assert_close(masked[~padding], expected[~padding], rtol=0, atol=1e-14)


# --- PyTorch Geometric -----------------------------------------------------------------------------------


def all_pairs(pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    source, target = (batch[:, None] == batch[None, :]).fill_diagonal_(False).nonzero().T
    return torch.stack([source, target]), (pos[source] - pos[target]).norm(dim=-1)


def test_schnet():
    models = pytest.importorskip("torch_geometric.nn.models")
    z, pos = torch.tensor([6, 1, 1, 8]), points(4, 3)

    def build():
        torch.manual_seed(0)
        return models.SchNet(16, 16, 2, 8, cutoff=5.0, interaction_graph=all_pairs)

    net, hand_built = build(), build()
    before = net(z, pos)
    changed = swap_activations(net, "irelu")
    assert sorted(changed) == sorted(
        ["act", *(f"interactions.{i}.{place}" for i in range(2) for place in ("mlp.1", "act"))]
    )
    assert changed.not_replaced == []
    hand_built.act = irelu
    for interaction in hand_built.interactions:
        interaction.act = irelu
        interaction.mlp[1] = irelu
    torch.testing.assert_close(net(z, pos), hand_built(z, pos), rtol=0, atol=0)
    assert not torch.allclose(net(z, pos), before)
    ssp = swap_activations(net, "shifted_softplus", where="interactions.*.conv.*")
    assert ssp == ["interactions.0.conv.nn.1", "interactions.1.conv.nn.1"]
    swap_activations(net, "shifted_softplus")
    torch.testing.assert_close(net(z, pos), before, rtol=0, atol=1e-13)
    order = swap_activations(build(), "irelu", where="alternate", sample=(z, pos))
    assert order == ["interactions.0.act", "interactions.1.act"]


def triplets(edges: Tensor, num_nodes: int):
    j, i = edges
    pairs = [(a, b) for b in range(len(i)) for a in range(len(i)) if i[a] == j[b] and j[a] != i[b]]
    kj, ji = torch.tensor(pairs).T
    return i, j, i[ji], j[ji], j[kj], kj, ji


def test_dimenet_plus_plus(monkeypatch):
    dimenet = pytest.importorskip("torch_geometric.nn.models.dimenet")
    monkeypatch.setattr(dimenet, "radius_graph", lambda pos, batch, **_: all_pairs(pos, batch)[0])
    monkeypatch.setattr(dimenet, "triplets", triplets)
    z, pos, batch = torch.tensor([6, 1, 1, 8]), points(4, 3), torch.zeros(4, dtype=torch.long)

    def build(act):
        torch.manual_seed(0)
        sizes = {"int_emb_size": 4, "basis_emb_size": 4, "out_emb_channels": 8}
        net = dimenet.DimeNetPlusPlus(8, 1, 2, **sizes, num_spherical=2, num_radial=3, act=act)
        for block in net.output_blocks:
            nn.init.ones_(block.lin.weight)
        return net

    net, hand_built = build("swish"), build("swish")
    shared = net.emb.act
    before = net(z, pos, batch)
    changed = swap_activations(net, "irelu", where="output_blocks.*")
    assert changed == ["output_blocks.0.act", "output_blocks.1.act", "output_blocks.2.act"]
    assert net.emb.act is shared
    for block in hand_built.output_blocks:
        block.act = irelu
    torch.testing.assert_close(net(z, pos, batch), hand_built(z, pos, batch), rtol=0, atol=0)
    assert not torch.allclose(net(z, pos, batch), before)
    changed = swap_activations(net, "tanh")  # IReLU in every block overflows
    assert len(changed) == sum(name.endswith("act") for name, _ in net.named_modules(remove_duplicate=False))
    assert changed.not_replaced[0][0] == "rbf.sin"
    assert all("a sine may be a feature" in why for _, why in changed.not_replaced)
    torch.testing.assert_close(net(z, pos, batch), build(torch.tanh)(z, pos, batch), rtol=0, atol=1e-12)


def test_a_message_function_is_reported():
    pyg = pytest.importorskip("torch_geometric.nn")
    net = nn.ModuleDict({"conv": pyg.GATConv(3, 3), "act": nn.ReLU()})
    with pytest.warns(NotReplacedWarning, match=r"conv\.leaky_relu"):
        assert swap_activations(net, "irelu") == ["act"]


# --- DeepXDE ---------------------------------------------------------------------------------------------


@pytest.fixture
def deepxde(monkeypatch, capsys):
    monkeypatch.setenv("DDE_BACKEND", "pytorch")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the import itself warns about is not ours
        module = pytest.importorskip("deepxde")
    assert module.backend.backend_name == "pytorch"
    module.config.set_default_float("float64")
    torch.set_default_dtype(torch.float64)
    yield module
    module.config.set_default_float("float32")


@pytest.mark.parametrize("name", ["tanh", "sin", "ReLU", "LAAF-10 tanh"])
def test_deepxde_fnn(deepxde, name):
    net, x = deepxde.nn.FNN([2, 8, 8, 8, 1], name, "Glorot normal"), points(6, 2).requires_grad_()
    laaf = name.startswith("LAAF")
    before = net(x)
    assert swap_activations(net, "irelu") == (["activation.activation"] if laaf else ["activation"])
    h = x
    for linear in net.linears[:-1]:
        h = irelu(linear(h))
    torch.testing.assert_close(net(x), net.linears[-1](h), rtol=0, atol=1e-14)
    assert not torch.allclose(net(x), before)


def test_deepxde_fnn_alternate_and_list(deepxde):
    x = points(6, 2)
    net = deepxde.nn.FNN([2, 8, 8, 8, 1], "tanh", "Glorot normal")
    assert swap_activations(net, "irelu", where="alternate") == ["activation_call_1"]
    listed = deepxde.nn.FNN([2, 8, 8, 8, 1], ["tanh", "tanh", "tanh", "tanh"], "Glorot normal")
    listed.load_state_dict(net.state_dict())
    assert swap_activations(listed, "irelu", where=["activation.1"]) == ["activation.1"]
    torch.testing.assert_close(net(x), listed(x), rtol=0, atol=0)
    h = torch.tanh(net.linears[2](irelu(net.linears[1](torch.tanh(net.linears[0](x))))))
    torch.testing.assert_close(net(x), net.linears[3](h), rtol=0, atol=1e-14)
