"""Checkpoints: a versioned dictionary of tensors and plain values, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dcnn.errors import InputError

FORMAT_VERSION = 1

# Each entry turns a checkpoint of that version into one of the next; old files are kept in tests/checkpoints.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def save(path: Path, state: dict[str, Any]) -> None:
    """Writes beside `path` and renames, so that a killed run never leaves half a checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save({"format_version": FORMAT_VERSION, **state}, partial)
    os.replace(partial, path)


def load(path: Path) -> dict[str, Any]:
    """The checkpoint in today's format; nothing in the file is executed."""
    if not path.exists():
        raise InputError(f"{path}: no such checkpoint; a run folder holds checkpoints/last.ckpt after its first epoch")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has one of its own for each way in which a file can be broken
        raise InputError(f"{path}: not a readable checkpoint ({type(error).__name__})") from None
    version = state.get("format_version") if isinstance(state, dict) else None
    if not isinstance(version, int):
        raise InputError(f"{path}: not a dcnn checkpoint (no format_version)")
    if version > FORMAT_VERSION:
        raise InputError(f"{path}: written by a newer dcnn (format {version}, this one reads up to {FORMAT_VERSION})")
    for old in range(version, FORMAT_VERSION):
        state = UPGRADES[old](state)
    return state
