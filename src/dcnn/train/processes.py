"""Where a run trains: one process, or several that exchange gradients (Lightning Fabric)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dcnn.errors import InputError, needs_extra
from dcnn.train.config import Training

_PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>


class OneProcess:
    """What the loop asks of Fabric, for one process on the CPU: all that training on tensors needs."""

    world_size, global_rank, is_global_zero = 1, 0, True
    loggers: Sequence[Any] = ()

    def launch(self) -> None: ...

    def setup_module(self, module: nn.Module, move_to_device: bool = True) -> nn.Module:
        return module

    def setup_optimizers(self, optimizer: Any) -> Any:
        return optimizer

    def to_device(self, batch: Any) -> Any:
        return batch

    def backward(self, loss: Tensor, inputs: Sequence[Tensor]) -> None:
        loss.backward(inputs=list(inputs))

    def barrier(self) -> None: ...


def make_fabric(settings: Training, folder: Path) -> Any:
    """Fabric as the settings ask for it, or one process where Lightning is not installed and not needed."""
    ordinary = settings.devices == 1 and settings.strategy == "auto" and settings.accelerator != "gpu"
    try:
        from lightning.fabric import Fabric
    except ModuleNotFoundError:
        if ordinary and not settings.loggers:
            return OneProcess()
        with needs_extra("cli"):
            from lightning.fabric import Fabric
    from lightning.fabric.strategies import DDPStrategy

    from dcnn.train.loggers import make_loggers

    strategy: Any = "auto"
    if settings.devices > 1 or settings.strategy == "ddp":
        # A loss on forces alone leaves the last bias without a gradient, which DDP must be told.
        start: Any = "spawn" if starts_processes(settings) else "popen"
        strategy = DDPStrategy(start_method=start, find_unused_parameters=True)
    try:
        return Fabric(
            accelerator=settings.accelerator,
            devices=settings.devices,
            strategy=strategy,
            loggers=make_loggers(settings.loggers, folder),
        )
    except (RuntimeError, ValueError) as error:  # Lightning has a sentence for each device that is not there
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"training.accelerator={settings.accelerator}, devices={settings.devices}: {reason}") from None


def starts_processes(settings: Training) -> bool:
    """Whether this process has to start the others; torchrun and SLURM have started them already."""
    if settings.devices == 1:
        return False
    from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

    return not (TorchElasticEnvironment.detect() or SLURMEnvironment.detect())


def is_first() -> bool:
    """Whether this is the process that writes files, before Fabric can say so."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))) == 0


def end_with_parent() -> None:
    """Asks the system to end this process when the one that started it ends, however that ends (Linux only)."""
    if sys.platform.startswith("linux"):
        prctl: Callable[..., int] = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
