"""Peak memory of a training step, each side in a process of its own (Linux only).

python -m dcnn.bench.memory advection tanh eager 2     # prints {"peak_mb": …}; "deepxde" for the peer
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from dcnn.bench.steps import training_step
from dcnn.train.cpu import prepare_cpu

STEPS = 5


def peak_memory_mb(name: str, activation: str, side: str, threads: int) -> float | None:
    """Memory that five steps take at the most, beyond what the process had before the first; None if not on Linux.

    `side` is "deepxde" or a kind of step of ours. What a compiler needs to make a step does not count.
    """
    if not sys.platform.startswith("linux"):
        return None
    command = [sys.executable, "-m", __name__, name, activation, side, str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["peak_mb"])


def growth_mb(step: Callable[[], object]) -> float:
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


def _measure(name: str, activation: str, side: str, threads: str) -> float:
    from dcnn.bench.pair import build_pair

    torch.set_num_threads(int(threads))
    prepare_cpu()
    pair = build_pair(name, activation)
    return growth_mb(pair.their_step if side == "deepxde" else training_step(pair.task, [pair.batch], side))


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"peak_mb": round(_measure(*sys.argv[1:5]), 1)}) + "\n")
