"""Derivatives of networks: reverse mode, Taylor mode, and finite differences to check them."""

from dcnn.derivatives.differences import finite_difference
from dcnn.derivatives.gradient import gradient, hessian_vector, safe_norm
from dcnn.derivatives.jet import Jet, register_jet
from dcnn.derivatives.partials import laplacian, partials

__all__ = [
    "Jet",
    "finite_difference",
    "gradient",
    "hessian_vector",
    "laplacian",
    "partials",
    "register_jet",
    "safe_norm",
]
