"""Activations by name."""

from __future__ import annotations

from torch import nn

from dcnn.activations.activation import Activation
from dcnn.activations.elementary import ELU, SELU, Identity, LeakyReLU, ReLU, Sin
from dcnn.activations.gaussian import GELU, GELUTanh
from dcnn.activations.integrated import Integrated, IReLU
from dcnn.activations.logistic import ShiftedSoftplus, Sigmoid, SiLU, Softplus, Tanh
from dcnn.errors import unknown
from dcnn.plugins import installed

#: The activations that are no integrals, by name.
PLAIN: dict[str, type[Activation]] = {
    cls.name: cls
    for cls in (
        *(ReLU, LeakyReLU, ELU, SELU, SiLU, GELU, GELUTanh),
        *(Softplus, ShiftedSoftplus, Sigmoid, Tanh, Sin, Identity),
    )
}
_ALIASES = {
    "swish": "silu",
    "ssp": "shifted_softplus",
    "logistic": "sigmoid",
    "linear": "identity",
    "sine": "sin",
}

#: Every name that :func:`get` takes.
NAMES: tuple[str, ...] = (*PLAIN, "irelu", *(f"integrated_{name}" for name in PLAIN))


def get(activation: str | nn.Module) -> nn.Module:
    """The activation of that name (``NAMES``, or an installed package's ``dcnn.activations``), or the module itself.

    >>> get("irelu"), get("integrated_silu").name
    (IReLU(), 'integrated_silu')
    """
    if isinstance(activation, nn.Module):
        return activation
    name = str(activation).lower()
    name = _ALIASES.get(name, name)
    if name == "irelu":
        return IReLU()
    if name in PLAIN:
        return PLAIN[name]()
    base = _ALIASES.get(name.removeprefix("integrated_"), name.removeprefix("integrated_"))
    if name.startswith("integrated_") and base in PLAIN:
        return Integrated(PLAIN[base]()) if base != "relu" else IReLU()
    points = installed("dcnn.activations")
    if name in points:
        return points[name].load()()
    raise unknown("activation", activation, (*NAMES, *points))
