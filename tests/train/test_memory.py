"""Freed memory is kept: a repeated step causes no page faults."""

import platform
import subprocess
import sys

import pytest

COUNT = """
import resource, sys, torch
from dcnn.train.memory import keep_freed_memory
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def step():
    for _ in range(5):
        a = torch.ones(7000, 40)
        torch.cat([a, torch.tanh(a), a + 1])
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator is what this is about")
def test_page_faults_disappear():
    def faults(how):
        return int(
            subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, check=True, text=True).stdout
        )

    assert faults("keep") < 0.1 * faults("default")
