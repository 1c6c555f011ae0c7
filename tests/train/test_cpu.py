"""Settings of the process."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from dcnn.train import cpu


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator is what this is about")
@pytest.mark.parametrize(("chosen", "kept"), [({}, "True"), ({"MALLOC_MMAP_THRESHOLD_": "131072"}, "False")])
def test_glibc_takes_the_setting_unless_the_user_chose(chosen, kept):
    code = "from dcnn.train.cpu import keep_freed_memory; print(keep_freed_memory())"
    environment = {key: value for key, value in os.environ.items() if key != "MALLOC_MMAP_THRESHOLD_"} | chosen
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, env=environment)
    assert done.stdout.strip() == kept


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cpu.keep_freed_memory() is False


def test_denormal_numbers_are_flushed():
    cpu.prepare_cpu()
    try:
        assert float(torch.tensor([1e-30]) * torch.tensor([1e-10])) == 0.0
    finally:
        torch.set_flush_denormal(False)
