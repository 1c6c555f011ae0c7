"""What keeps this model from learning its derivatives: findings with numbers, causes and the call that helps.

Users call it as :func:`dcnn.audit`; this package is where it lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.auditing import loss_term_checks, prediction_checks, symmetry_checks
from dcnn.auditing.activation_checks import activation_findings
from dcnn.auditing.differentiable_sample import DifferentiableSample, Output, differentiable_sample, other_outputs
from dcnn.auditing.findings import CODES, Audit, Finding, LayerSignal
from dcnn.auditing.label_checks import label_findings
from dcnn.auditing.layer_signal import measured_layers, signal_findings
from dcnn.auditing.measured_copy import copied, zero_weights
from dcnn.auditing.normalization_checks import normalization_findings
from dcnn.auditing.op_recorder import recorded
from dcnn.errors import InputError, first_line

__all__ = [
    "CODES",
    "Audit",
    "DifferentiableSample",
    "Finding",
    "LayerSignal",
    "audit",
    "differentiable_sample",
    "is_constant",
    "label_findings",
]

_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_NAMES = 6  # of layers that are listed by name in `skipped`


def audit(
    model: Any,
    sample: Any,
    *,
    orders: int | Iterable[int] = 1,
    labels: Mapping[str, Any] | None = None,
    target_error: float | Mapping[str, float] | None = None,
    losses: Callable[[Any, Any], Mapping[str, Tensor]] | None = None,
    derivative: Callable[[Any, Any], Any] | None = None,
    rotation_invariant: bool | None = None,
    wrt: str | int | None = None,
    output: Output = None,
    seed: int = 0,
) -> Audit:
    """Everything about `model` on `sample` that spoils a loss holding derivatives of these `orders`.

    model: an ``nn.Module`` (also scripted, traced, exported or compiled) or a function. sample: a batch as the model
    takes it: a tensor, a tuple or dictionary of arguments, nested as you like (`wrt` names the tensor that is
    differentiated, ``"graph.pos"`` or ``0``), or an ``AtomsBatch``. orders: the highest input derivative in the loss,
    or all of them. labels: name → labels, to judge precision and units; target_error: the error aimed at in their unit.
    losses: (model, sample) → name → scalar, to judge the balance of the terms. derivative: (model, sample) → the
    derivative the model claims (like the differentiated input); by default autograd's. rotation_invariant: expect that
    rotations change nothing (an AtomsBatch does by default). output: name, number or function that picks the prediction
    from what the model returns. The model is left as it was: all is measured on a copy in float64.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> audit(net, torch.randn(16, 2)).codes
    ['DC101']
    """
    order = _highest(orders)
    generator = torch.Generator().manual_seed(seed)
    skipped: dict[str, str] = {}
    double, seen = _prepared(model, sample, wrt, output, skipped)
    training = copied(model, seen.x.dtype, training=True)
    findings: list[Finding] = []

    def check(what: str, found: Iterator[Finding]) -> None:
        try:
            findings.extend(found)
        except InputError:
            raise
        except Exception as error:  # the user's code runs in every check and may fail in any way
            skipped[what] = f"could not be measured: {type(error).__name__}: {first_line(error)[:200]}"

    record, y = recorded(double, seen.predict, seen.x)
    zeros = zero_weights(model) if isinstance(model, nn.Module) else []
    _note_what_was_left_out(double, seen, record.used, zeros, skipped)
    layers = measured_layers(double, seen, record, generator)
    check("activations", activation_findings(record, order, double, skipped))
    check("maxima", prediction_checks.selection_findings(double, seen, record, y, order))
    if record.prediction is None or record.foreign:
        what = f"operations that cannot be read ({', '.join(sorted(record.foreign)) or 'the input leaves torch'})"
        skipped[what] = "measured from outside: an activation is seen if it makes the whole prediction straight"
        check("bending of the prediction", prediction_checks.outside_findings(double, seen, order))
    check("normalization", normalization_findings(double, training, seen, record, skipped))
    check("derivative", prediction_checks.gradient_findings(double, seen, derivative, skipped))
    check("training of derivatives", prediction_checks.trainable_findings(double, seen, order))
    check("signal", signal_findings(layers))
    check("constant prediction", prediction_checks.constant_findings(double, seen, labels, skipped))
    if labels is not None:
        findings += label_findings(labels, target_error)
    else:
        skipped["label precision and units"] = "give labels={'energy': …, 'forces': …}"
    if losses is not None:
        parameters = [p for p in getattr(model, "parameters", list)() if p.requires_grad]
        check("balance of the loss terms", loss_term_checks.term_findings(model, sample, losses, parameters))
    else:
        skipped["balance of the loss terms"] = "give losses=lambda model, sample: {'name': scalar, …}"
    if seen.crossings is not None:
        check("cutoff", symmetry_checks.cutoff_findings(double, seen, model, skipped))
    wants_rotation = seen.expects_rotation_invariance if rotation_invariant is None else rotation_invariant
    if wants_rotation and seen.rotated is not None:
        check("rotation", symmetry_checks.rotation_findings(double, seen, generator))
    elif wants_rotation:
        skipped["rotation"] = f"the input {tuple(seen.x.shape)} is not a list of points (N, d)"
    findings.sort(key=lambda finding: (_SEVERITY[finding.severity], finding.code))
    return Audit(tuple(findings), layers, skipped)


def is_constant(model: nn.Module, points: Tensor) -> bool:
    """Whether DC901 finds the prediction to be one constant over the points, zero weights being taken as they are."""
    seen = differentiable_sample(points)
    return any(True for _ in prediction_checks.constant_findings(copied(model, fill_zeros=False), seen, None, {}))


def _highest(orders: int | Iterable[int]) -> int:
    try:
        order = orders if isinstance(orders, int) else max(orders)
    except (TypeError, ValueError):
        order = -1
    if not isinstance(order, int) or order < 0:
        raise InputError(f"audit: orders={orders!r}; give the order of the highest derivative in the loss, 0, 1, 2 …")
    return order


def _prepared(
    model: Any, sample: Any, wrt: str | int | None, output: Output, skipped: dict[str, str]
) -> tuple[nn.Module, DifferentiableSample]:
    """A copy and the sample in float64, or in the model's own precision where it cannot be run in float64."""
    seen = differentiable_sample(sample, wrt, output)
    double = copied(model)
    try:
        with torch.no_grad():
            seen.predict(double)
        return double, seen
    except InputError:
        raise
    except Exception as error:  # the user's model may fail in any way
        first = error
    dtype = next((p.dtype for p in double.parameters() if p.is_floating_point()), torch.float32)
    dtype = torch.float32 if dtype == torch.float64 else dtype
    seen, single = differentiable_sample(sample, wrt, output, dtype), copied(model, None)
    try:
        with torch.no_grad():
            seen.predict(single)
    except InputError:
        raise
    except Exception:
        reason = f"{type(first).__name__}: {first_line(first)}"
        raise InputError(
            f"audit: the model does not run on this sample ({reason}). Pass the sample as the model takes it: a "
            "tensor, a tuple of arguments, or a dictionary of arguments by name"
        ) from first
    skipped["float64"] = "the model runs in float32 only, so that small differences cannot be seen"
    return single, seen


def _note_what_was_left_out(
    model: nn.Module, seen: DifferentiableSample, used: set[str], zeros: list[str], skipped: dict[str, str]
) -> None:
    """Zero weights, layers that did not run and outputs that were not looked at."""
    if zeros:
        skipped["weights that are zero"] = f"measured with random numbers in their place: {_some(zeros)}"
    unused = [name for name, _ in model.named_parameters() if name not in used]
    if unused:
        skipped["layers that this sample does not run through"] = _some(unused)
    with torch.no_grad():
        others = other_outputs(seen.call(model, seen.rebuild(seen.x)), seen.output)
    for name in others:
        skipped[f"output {name!r}"] = f"say output={name!r} to audit it instead"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more
