"""Settings of the process that make a training step on the CPU cheaper, and change no result that matters."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # names and values of glibc's <malloc.h>
_LARGEST = 2**31 - 1


def prepare_cpu() -> None:
    """Numbers below 1e-38 become zero, and freed memory stays in the process.

    Denormal numbers (tails of gaussians, Adam's moments) make matrix products up to four times slower.
    """
    torch.set_flush_denormal(True)
    keep_freed_memory()


def cpu_clock() -> Callable[[], float]:
    """A clock of processor seconds: of this process and of compilers, called one by one (a pool would not be seen)."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    return processor_seconds


def processor_seconds() -> float:
    """Of this process and of those it called and that have ended."""
    return time.process_time() + sum(os.times()[2:4])


def keep_freed_memory() -> bool:
    """Tells glibc not to hand freed memory back to the system; False where there is no glibc or the user chose.

    By default large tensors of a step are mapped, page by page, and unmapped again: thousands of page faults, 10 to
    18 % of the time of a step of molecules and half of that of a crystal of 1,000 atoms. What is kept lies in pieces,
    so that such a crystal takes more memory: glibc's own MALLOC_MMAP_THRESHOLD_ in the environment leaves it as it is.
    """
    if not sys.platform.startswith("linux") or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _LARGEST)) and bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST))
