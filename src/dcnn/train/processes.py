"""Where a run trains: one process, or several that exchange gradients (Lightning Fabric)."""

from __future__ import annotations

import builtins
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dcnn.errors import DcnnError, InputError, first_line, needs_extra
from dcnn.train.config import Training
from dcnn.train.interrupt import Interrupted, watching_for_stop

_PR_SET_PDEATHSIG = 1  # of Linux's <sys/prctl.h>


class OneProcess:
    """What the loop asks of Fabric, for one process on the CPU, which needs nothing of it."""

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
        torch.autograd.backward(loss, inputs=list(inputs))

    def barrier(self) -> None: ...

    def broadcast(self, value: Any, src: int = 0) -> Any:
        return value


def make_fabric(settings: Training, folder: Path) -> Any:
    """Fabric as the settings ask for it; one process on the CPU does without, and without seconds of imports."""
    on_cpu = settings.accelerator == "cpu" or (settings.accelerator == "auto" and not torch.accelerator.is_available())
    if on_cpu and settings.devices == 1 and settings.strategy == "auto" and not settings.loggers:
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
        given = f"training.accelerator={settings.accelerator}, devices={settings.devices}"
        raise InputError(f"{given}: {first_line(error)}") from None


def starts_processes(settings: Training) -> bool:
    """Whether this process has to start the others; torchrun and SLURM have started them already."""
    if settings.devices == 1:
        return False
    from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

    return not (TorchElasticEnvironment.detect() or SLURMEnvironment.detect())


def is_first() -> bool:
    """Whether this process shows and writes what all of them found; true where there is only one."""
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0


def run_in_processes(fabric: Any, function: Callable[[Any], None], folder: Path) -> None:
    """Starts the processes of `fabric`, passes SIGINT and SIGTERM on to them, and says in one line what went wrong."""
    from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

    with watching_for_stop(_stop_children) as stop:
        try:
            fabric.launch(partial(_as_child, function, parent=os.getpid()))
        except (ProcessExitedException, ProcessRaisedException) as error:
            if not stop.number:
                raise _in_one_line(error) from None
    if stop.number:
        raise Interrupted(folder, stop.number)


def _as_child(function: Callable[[Any], None], fabric: Any, parent: int) -> None:
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all, and the first process passes it on
    with suppress(Interrupted):  # all stop at the same step
        function(fabric)


def _stop_children() -> None:
    for child in multiprocessing.active_children():
        child.terminate()


def _in_one_line(error: Exception) -> Exception:
    """The message of a child's own error instead of its traceback."""
    name, _, message = str(error).strip().split("\n")[-1].partition(": ")
    if name == "dcnn.errors.InputError":
        return InputError(message)
    kind = getattr(builtins, name, None)
    of_the_system = isinstance(kind, type) and issubclass(kind, OSError)
    return DcnnError(message) if of_the_system or name == "dcnn.errors.DcnnError" else error


def end_with_parent(parent: int) -> None:
    """Ends this process when the one that started it ends, however that ends (Linux only)."""
    if sys.platform.startswith("linux"):
        prctl: Callable[..., int] = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before it could be watched
            os._exit(1)
