"""dcnn: training of networks whose derivatives must be right.

The core works on any PyTorch model: :func:`audit`, :func:`swap_activations`, :func:`denormalize`,
:class:`LabelScale`, :mod:`activations`, :mod:`derivatives` and :mod:`losses`; :func:`fit` trains and :func:`compare`
says what a recipe is worth. ``dcnn.atoms`` and ``dcnn.pde`` need the extras of their names. Everything is imported when
it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dcnn._version import __version__
from dcnn.errors import DcnnError, InputError
from dcnn.lazy import OFFERED, lazy_names

if TYPE_CHECKING:
    from dcnn import activations, atoms, derivatives, losses, pde, results, testing, train
    from dcnn.api import fit
    from dcnn.auditing import Audit, audit
    from dcnn.comparing import compare
    from dcnn.scaling import LabelScale
    from dcnn.surgery.denormalize import denormalize
    from dcnn.surgery.swap import swap_activations

__all__ = [
    "Audit",
    "DcnnError",
    "InputError",
    "LabelScale",
    "__version__",
    "activations",
    "atoms",
    "audit",
    "compare",
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

_MODULES = ("activations", "atoms", "derivatives", "losses", "pde", "results", "testing", "train")
_HOLDERS = {
    "Audit": "auditing",
    "LabelScale": "scaling",
    "audit": "auditing",
    "compare": "comparing",
    "denormalize": "surgery",
    "fit": "api",
    "swap_activations": "surgery",
}
__getattr__, __dir__ = lazy_names(
    __name__, {**{name: name for name in _MODULES}, **_HOLDERS}, {"atoms": "atoms", "testing": "atoms", "pde": "pde"}
)
OFFERED["references"] = lambda: import_module("dcnn.atoms.references")  # what LabelScale needs for frames of atoms
