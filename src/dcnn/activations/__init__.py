"""The integrated family: activations whose derivatives of every order are known in closed form."""

from dcnn.activations.activation import Activation
from dcnn.activations.elementary import ELU, SELU, Identity, LeakyReLU, ReLU, Sin
from dcnn.activations.gaussian import GELU, GELUTanh
from dcnn.activations.init import LayerMoments, init_, moments
from dcnn.activations.integrated import Integrated, IReLU, Scaled
from dcnn.activations.logistic import ShiftedSoftplus, Sigmoid, SiLU, Softplus, Tanh
from dcnn.activations.names import NAMES, get
from dcnn.activations.recognition import from_torch, integrate

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
    "Scaled",
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
