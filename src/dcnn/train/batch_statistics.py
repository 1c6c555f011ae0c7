"""Batch normalization whose statistics are results and not side effects, so that a graph can hold it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from dcnn.torch_internals import BatchNorm, NormWithStatistics


def statistics_names(module: nn.Module) -> list[str]:
    """The buffers that a call of the module changes: running means and variances, and how many there were."""
    return [
        buffer
        for name, layer in module.named_modules()
        if isinstance(layer, NormWithStatistics)
        for buffer, _ in layer.named_buffers(prefix=name)
    ]


def has_formula(layer: nn.Module) -> bool:
    """Whether `written_out` knows the layer: batch normalization whose statistics are moving averages."""
    return isinstance(layer, BatchNorm) and layer.momentum is not None


@contextmanager
def written_out(module: nn.Module) -> Iterator[None]:
    """Inside, every batch normalization is its formula: torch's own writes statistics where no graph sees it."""
    layers = [layer for layer in module.modules() if isinstance(layer, BatchNorm) and layer.training]
    for layer in layers:
        layer.forward = partial(_normalized, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _normalized(layer: BatchNorm, x: Tensor) -> Tensor:
    """(x − mean) / √(variance + ε) · weight + bias over all axes but the second; the statistics are new tensors."""
    axes = [axis for axis in range(x.ndim) if axis != 1]
    shape = [1, -1] + [1] * (x.ndim - 2)
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    variance = centred.square().mean(axes, keepdim=True)
    if layer.running_mean is not None and layer.running_var is not None and layer.num_batches_tracked is not None:
        count = x.numel() // x.shape[1]
        unbiased = variance.detach() * (count / (count - 1))
        weight = layer.momentum
        assert weight is not None
        layer.running_mean = torch.lerp(layer.running_mean, mean.detach().flatten(), weight)
        layer.running_var = torch.lerp(layer.running_var, unbiased.flatten(), weight)
        layer.num_batches_tracked = layer.num_batches_tracked + 1
    y = centred * (variance + layer.eps).rsqrt()
    if layer.affine:
        y = y * layer.weight.view(shape) + layer.bias.view(shape)
    return y
