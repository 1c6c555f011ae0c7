"""From the weights of a published network to ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from dcnn.atoms.models import PAPER, build, weights_of
from dcnn.atoms.models.weights.mapping import fill, tidy
from dcnn.errors import unknown

#: Published variants without BatchNorm, and the network they are variants of.
WITHOUT_NORMALIZATION = {"cgcnn_no_bn": "cgcnn", "forcenet_no_bn": "forcenet"}


def from_reference(
    name: str,
    arrays: Mapping[str, Any],
    preset: str = "paper",
    fidelity: str = "scripts",
    activation: str | nn.Module | None = None,
    **hyperparameters: Any,
) -> nn.Module:
    """Our network with the weights of a published one.

    ``arrays`` maps published names to arrays (a state dict, an npz file), with or without the prefix
    ``param.``. It may leave out what a constructor makes (gaussian centres, element tables) and give tied
    tensors under either name. Sizes are read off the shapes; what shapes do not tell comes from
    ``hyperparameters``, under our names or the published ones (``cutoff=4.0``, ``num_gaussians=20``),
    then from the preset. ``activation="irelu"`` is the published replacement rule, None the original
    activations. The network has the dtype of the arrays.
    """
    base = WITHOUT_NORMALIZATION.get(name, name)
    if base not in PAPER:
        raise unknown("network", name, (*PAPER, *WITHOUT_NORMALIZATION))
    weights, tensors = weights_of(base), tidy(arrays)
    given = {weights.ALIASES.get(key, key): value for key, value in hyperparameters.items()}
    options = weights.sizes(tensors) | given
    normalization = False if name in WITHOUT_NORMALIZATION else None
    network = build(base, preset, fidelity, activation, normalization, **options)
    floating = [tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()]
    network.to(max(floating, key=lambda dtype: torch.finfo(dtype).bits) if floating else torch.get_default_dtype())
    fill(network, tensors, weights.published(network))
    return network
