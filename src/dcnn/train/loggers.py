"""TensorBoard, W&B and MLflow, for those who ask for them; nothing goes online by default."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dcnn.errors import InputError


def make_loggers(names: Sequence[str], folder: Path) -> list[Any]:
    """The loggers of these names, writing below the run folder (W&B offline unless WANDB_MODE says otherwise)."""
    try:
        return [_MAKERS[name](folder) for name in names]
    except ImportError as error:
        raise InputError(
            f"training.loggers={list(names)}: {error}; install them with pip install 'dcnn[loggers]'"
        ) from None


def _tensorboard(folder: Path) -> Any:
    from lightning.fabric.loggers import TensorBoardLogger

    return TensorBoardLogger(folder, name="tensorboard")


def _wandb(folder: Path) -> Any:
    import os

    from lightning.pytorch.loggers import WandbLogger

    return WandbLogger(project="dcnn", save_dir=folder, offline=os.environ.get("WANDB_MODE") != "online")


def _mlflow(folder: Path) -> Any:
    from lightning.pytorch.loggers import MLFlowLogger

    return MLFlowLogger("dcnn", tracking_uri=f"sqlite:///{folder.resolve()}/mlflow.db")


_MAKERS = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}
