"""Graphs as machine code, kept on disk: a second run of a kind starts with what the first one compiled."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from dcnn.torch_internals import machine_code, mark_static
from dcnn.train.cpu import processor_seconds
from dcnn.train.processes import end_with_parent

#: Tried in this order until the numbers are right. A filter that is gathered for every neighbour is computed once a
#: pair and not, inlined, once a neighbour; torch's own 30 operations inline an exponential and a cosine into every
#: message, and with 4 it writes wrong code for ForceNet (torch 2.13). One file of C++ instead of one a kernel is
#: compiled in two thirds of the time, and called without Python in between.
OPTIONS: tuple[dict[str, Any], ...] = ({"realize_opcount_threshold": 8, "cpp_wrapper": True}, {"cpp_wrapper": True})
SECONDS_AN_OPERATION = 0.05  # to compile it, until this machine has compiled something
SECONDS_TO_LOAD = 0.2  # share of that for a graph that is on disk
GAIN = 1.6  # how many times faster than a traced graph a compiled one is, at least (results/speed.md)


def folder() -> Path:
    """$TORCHINDUCTOR_CACHE_DIR, or dcnn/compiled in the user's cache directory.

    torch sets that variable itself, to a folder for temporary files, unless it is set.
    """
    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dcnn" / "compiled"
    return usual if not given or Path(given).name.startswith("torchinductor_") else Path(given)


def expected_seconds(traced: GraphModule, inputs: Sequence[Any]) -> float:
    """How long compiling will take: by what this machine needed for an operation, or little if the graph is known."""
    operations = seconds = 0.0
    for path in (folder() / "made").glob("*.json"):
        record = _read(path)
        operations, seconds = operations + record.get("operations", 0), seconds + record.get("seconds", 0)
    an_operation = seconds / operations if operations else SECONDS_AN_OPERATION
    seconds = an_operation * len(traced.graph.nodes)
    return seconds * SECONDS_TO_LOAD if on_disk(traced, inputs) else seconds


def on_disk(traced: GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether this graph was compiled before: then it is loaded."""
    return _record(traced, inputs).exists()


def pays(seconds: float, seconds_left: float) -> bool:
    """Whether more is done in the time left if these seconds of it go to compiling."""
    return GAIN * (seconds_left - seconds) > seconds_left


def compiled(
    traced: GraphModule,
    inputs: tuple[Any, ...],
    constants: Sequence[Tensor],
    any_size: bool,
    is_right: Callable[[Callable[..., Any]], bool],
) -> Callable[..., Any]:
    """The traced graph, compiled; `constants` of the inputs keep their sizes where others may not.

    `is_right` calls it and tells if its numbers are right. Code that is not is compiled again with the next of OPTIONS,
    which is noted, so that another run begins with them.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder())
    record, operations, began = _record(traced, inputs), len(traced.graph.nodes), processor_seconds()
    known = _read(record)
    traced = _prepared(traced)
    for number in range(known.get("options", 0), len(OPTIONS)):
        ready = _compiled_with(OPTIONS[number], traced, inputs, constants, any_size)
        if is_right(ready):
            if known.get("options") != number:
                record.parent.mkdir(parents=True, exist_ok=True)
                values = {"operations": operations, "seconds": processor_seconds() - began, "options": number}
                record.write_text(json.dumps(values))
            return ready
    raise RuntimeError("its numbers differ from the usual ones")


def in_background(work: Callable[[], Any]) -> BaseProcess | None:
    """A process that begins with all that this one has in memory, works and ends; for compiling, which leaves a file.

    None where no such process can be made (only Linux makes them safely), or where no core is free for it.
    """
    if not sys.platform.startswith("linux") or len(os.sched_getaffinity(0)) <= torch.get_num_threads():
        return None
    process = multiprocessing.get_context("fork").Process(target=_alone, args=(work, os.getpid()), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which it does without
        process.start()
    return process


def _alone(work: Callable[[], Any], parent: int) -> None:
    """In the new process: one thread, because those of the parent are not there; Ctrl-C is the parent's matter."""
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.disable()
    torch.set_num_threads(1)
    work()


def _compiled_with(
    options: dict[str, Any], traced: GraphModule, inputs: tuple[Any, ...], constants: Sequence[Tensor], any_size: bool
) -> Callable[..., Any]:
    if not any_size:
        return _of_one_size(traced, inputs, options)
    for tensor in constants:
        mark_static(tensor)
    return torch.no_grad()(torch.compile(traced, dynamic=True, options=options))


def _of_one_size(traced: GraphModule, inputs: tuple[Any, ...], options: dict[str, Any]) -> Callable[..., Any]:
    """Compiled without the checks that torch.compile makes in every call, which a small molecule would feel."""
    graph = Graph()  # takes its inputs one by one
    values: Any = graph.graph_copy(traced.graph, {})
    there = [value is not None for value in values]  # a weight without influence has no gradient
    graph.output(tuple(value for value in values if value is not None))
    with torch.no_grad():
        function = machine_code(GraphModule(traced, graph), [tensor.detach() for tensor in _flat(inputs)], options)

    def ready(*inputs: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            found = iter(function(*_flat(inputs)))
        return tuple(next(found) if is_there else None for is_there in there)

    return ready


def _flat(inputs: Sequence[Any]) -> list[Tensor]:
    """All tensors of inputs that are tensors or lists of tensors."""
    return [tensor for part in inputs for tensor in ((part,) if isinstance(part, Tensor) else part)]


def _record(traced: GraphModule, inputs: Sequence[Any]) -> Path:
    """Where it is noted that this graph was compiled for inputs like these, by this version of torch."""
    kinds = [(str(t.dtype), tuple(t.shape)) for t in _flat(inputs)]
    words = (traced.code, kinds, torch.__version__, torch.backends.cpu.get_cpu_capability(), OPTIONS)
    return folder() / "made" / f"{hashlib.sha256(repr(words).encode()).hexdigest()[:32]}.json"


def _read(record: Path) -> dict[str, Any]:
    """What a record holds, or nothing: it may be half written by another run, or taken away."""
    with suppress(ValueError, OSError):
        return dict(json.loads(record.read_text()))
    return {}


def _prepared(traced: GraphModule) -> GraphModule:
    """The graph in the words that the compiler does most with.

    Sums with a matrix product, b + xw, become xw − (−b): they would be calls of addmm, which on the CPU copies b into
    the result first; a difference is fused with what follows. Views become reshapes: the compiler may lay out a tensor
    in another order than it had when it was traced.
    """
    aten = torch.ops.aten
    for node in traced.graph.find_nodes(op="call_function", target=aten.addmm.default):
        b, x, w = node.args
        with traced.graph.inserting_before(node):
            product = traced.graph.call_function(aten.mm.default, (x, w))
            node.replace_all_uses_with(traced.graph.call_function(aten.add.Tensor, (product, b)))
        traced.graph.erase_node(node)
    for node in traced.graph.find_nodes(op="call_function", target=aten.add.Tensor):
        products = [a for a in node.args if isinstance(a, Node) and a.target is aten.mm.default]
        if products and all(isinstance(a, Node) for a in node.args):
            (other,) = [a for a in node.args if a is not products[0]] or [products[0]]
            with traced.graph.inserting_before(node):
                negative = traced.graph.call_function(aten.neg.default, (other,))
                node.replace_all_uses_with(traced.graph.call_function(aten.sub.Tensor, (products[0], negative)))
            traced.graph.erase_node(node)
    for node in traced.graph.find_nodes(op="call_function", target=aten.view.default):
        node.target = aten.reshape.default
    traced.recompile()
    return traced
