"""What keeps this model from learning its derivatives: findings with numbers, causes and the call that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.audit import measured, signal, static
from dcnn.audit.findings import CODES, Audit, Finding, LayerSignal
from dcnn.audit.subject import Subject, in_double, subject

__all__ = ["CODES", "Audit", "Finding", "LayerSignal", "Subject", "audit", "subject"]

_SEVERITY = {"error": 0, "warning": 1, "info": 2}


def audit(
    model: nn.Module,
    sample: Any,
    *,
    orders: int | Iterable[int] = 1,
    labels: Mapping[str, Any] | None = None,
    target_error: float | Mapping[str, float] | None = None,
    losses: Callable[[nn.Module, Any], Mapping[str, Tensor]] | None = None,
    derivative: Callable[[nn.Module, Any], Tensor] | None = None,
    rotation_invariant: bool | None = None,
    wrt: str | None = None,
    output: Callable[[Any], Any] | None = None,
    seed: int = 0,
) -> Audit:
    """Everything about `model` on `sample` that spoils a loss holding derivatives of these `orders`.

    sample: a batch as the model takes it: a tensor, a tuple or dictionary of arguments (`wrt` names the one that is
    differentiated), or an ``AtomsBatch``. orders: the highest input derivative in the loss, or all of them.
    labels: name → labels, to judge precision and units; target_error: the error aimed at, in their unit.
    losses: (model, sample) → name → scalar, to judge the balance of the terms. derivative: (model, sample) → the
    derivative the model claims, (like the differentiated input); by default autograd's. rotation_invariant: expect
    that rotations change nothing (an AtomsBatch does by default). output: picks the prediction from what the model
    returns. The model is left as it was: all is measured on a copy in float64.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> audit(net, torch.randn(16, 2)).codes
    ['DC101']
    """
    order = orders if isinstance(orders, int) else max(orders)
    generator = torch.Generator().manual_seed(seed)
    seen = subject(sample, wrt, output)
    double = in_double(model)
    findings = [*static.activations(model, order), *measured.normalization(model, seen)]
    findings += measured.true_gradient(double, seen, derivative, sample)
    layers = signal.measure(double, seen, generator)
    findings += signal.judge(layers)
    findings += measured.collapsed(double, seen, labels)
    skipped: dict[str, str] = {}
    if labels is not None:
        findings += static.labels(labels, target_error)
    else:
        skipped["label precision and units"] = "give labels={'energy': …, 'forces': …}"
    if losses is not None:
        findings += measured.terms(model, sample, losses)
    else:
        skipped["balance of the loss terms"] = "give losses=lambda model, sample: {'name': scalar, …}"
    if seen.crossings is not None:
        findings += measured.cutoff(double, seen)
    wants_rotation = seen.expects_rotation_invariance if rotation_invariant is None else rotation_invariant
    if wants_rotation and seen.rotated is not None:
        findings += measured.rotation(double, seen, generator)
    findings.sort(key=lambda finding: (_SEVERITY[finding.severity], finding.code))
    return Audit(tuple(findings), layers, skipped)
