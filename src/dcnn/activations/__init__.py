"""The integrated family: activations whose derivatives of every order are known in closed form."""

from dcnn.activations.base import Activation
from dcnn.activations.elementary import ELU, SELU, Identity, LeakyReLU, ReLU, Sin
from dcnn.activations.gaussian import GELU, GELUTanh
from dcnn.activations.init import LayerMoments, init_, moments
from dcnn.activations.integrated import Integrated, IReLU
from dcnn.activations.logistic import ShiftedSoftplus, Sigmoid, SiLU, Softplus, Tanh
from dcnn.activations.lookup import NAMES, from_torch, get, integrate

__all__ = [
    "ELU",
    "GELU",
    "NAMES",
    "SELU",
    "Activation",
    "GELUTanh",
    "IReLU",
    "Identity",
    "Integrated",
    "LayerMoments",
    "LeakyReLU",
    "ReLU",
    "ShiftedSoftplus",
    "SiLU",
    "Sigmoid",
    "Sin",
    "Softplus",
    "Tanh",
    "from_torch",
    "get",
    "init_",
    "integrate",
    "moments",
]
