"""dcnn: training of networks whose derivatives must be right.

The core works on any PyTorch model: :func:`audit`, :func:`swap_activations`, :func:`denormalize`,
:class:`LabelScale`, :mod:`activations`, :mod:`derivatives` and :mod:`losses`. ``dcnn.atoms``, ``dcnn.pde``,
``dcnn.testing`` and :func:`fit` are loaded when first used.
"""

from importlib import import_module
from typing import Any

from dcnn import activations, derivatives, losses, scaling
from dcnn._version import __version__
from dcnn.auditing import Audit, audit
from dcnn.errors import DcnnError, InputError
from dcnn.scaling import LabelScale
from dcnn.surgery import denormalize, swap_activations

__all__ = [
    "Audit",
    "DcnnError",
    "InputError",
    "LabelScale",
    "__version__",
    "activations",
    "atoms",
    "audit",
    "denormalize",
    "derivatives",
    "fit",
    "losses",
    "pde",
    "results",
    "swap_activations",
    "testing",
    "train",
]

scaling.frames_module = lambda: import_module("dcnn.atoms.references")

_LATER = ("atoms", "pde", "results", "testing", "train")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return import_module(f"dcnn.{name}")
    if name == "fit":
        return import_module("dcnn.api").fit
    raise AttributeError(f"module 'dcnn' has no attribute {name!r}")
