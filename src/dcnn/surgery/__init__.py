"""Surgery on any ``nn.Module``: other activations, no normalization."""

from dcnn.surgery.denormalize import denormalize
from dcnn.surgery.places import Changed, NotReplacedWarning
from dcnn.surgery.swap import swap_activations

__all__ = ["Changed", "NotReplacedWarning", "denormalize", "swap_activations"]
