"""Peak memory of a training step, each side in a process of its own (Linux only).

python -m dcnn.bench.memory eager 1 '{"problem": {"name": "advection"}}'       # prints {"peak_mb": …}
python -m dcnn.bench.memory plain 1 '{"potential": {"network": "schnet"}}'     # a peer
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from dcnn.bench.steps import training_step
from dcnn.bench.timing import Step
from dcnn.train.cpu import prepare_cpu

STEPS = 5


def peak_memory_mb(side: str, threads: int, **what: Mapping[str, Any]) -> float | None:
    """Memory that five steps take at the most, beyond what the process had before the first; None if not on Linux.

    `side` is a peer ("deepxde", "plain", "pyg") or a kind of step of ours; `what` is `problem` or `potential` with the
    arguments of :func:`build_pair` or :class:`PotentialSteps`. What a compiler needs to make a step does not count.
    """
    if not sys.platform.startswith("linux"):
        return None
    command = [sys.executable, "-m", __name__, side, str(threads), json.dumps(what)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["peak_mb"])


def growth_mb(step: Step) -> float:
    """Peak resident memory of some steps, in MB above what was there before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that a step would use again counts, too
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    before = _resident_mb("VmRSS")
    for _ in range(STEPS):
        step()
    return _resident_mb("VmHWM") - before


def _resident_mb(entry: str) -> float:
    """Memory of this process, now (VmRSS) or at the most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (found,) = [line.split()[1] for line in lines if line.startswith(f"{entry}:")]
    return int(found) / 1024


def _step(side: str, problem: dict[str, Any] | None = None, potential: dict[str, Any] | None = None) -> Step:
    if potential is not None:
        from dcnn.bench.potential_steps import PotentialSteps

        return PotentialSteps(**potential).step(side)
    from dcnn.bench.pair import build_pair

    pair = build_pair(**(problem or {}))
    return pair.their_step if side == "deepxde" else training_step(pair.task, [pair.batch], side)


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    prepare_cpu()
    peak = growth_mb(_step(sys.argv[1], **json.loads(sys.argv[3])))
    sys.stdout.write(json.dumps({"peak_mb": round(peak, 1)}) + "\n")
