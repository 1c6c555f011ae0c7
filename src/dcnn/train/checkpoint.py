"""Checkpoints: a versioned dictionary of tensors and plain values, written whole or not at all."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dcnn.errors import InputError
from dcnn.guard import decoding
from dcnn.safe_files import written_beside
from dcnn.unpickle import check_pickle

FORMAT_VERSION = 1

# Each entry turns a checkpoint of that version into one of the next; old files are kept in tests/kept.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def save(path: Path, state: dict[str, Any]) -> None:
    """Writes beside `path` and renames, so that a killed run never leaves half a checkpoint."""
    buffer = io.BytesIO()  # torch's own writer says "file write failed" whatever the reason
    torch.save({"format_version": FORMAT_VERSION, **state}, buffer)
    with written_beside(path) as partial:
        partial.write_bytes(buffer.getbuffer())


def load(path: Path) -> dict[str, Any]:
    """The checkpoint in today's format; nothing in the file is executed."""
    if not path.exists():
        raise InputError(f"{path}: no such checkpoint; a run folder holds checkpoints/last.ckpt after its first epoch")
    found = load_tensors(path)
    state: dict[str, Any] = found if isinstance(found, dict) else {}
    version = state.get("format_version")
    if type(version) is not int or version < 1:
        raise InputError(f"{path}: not a dcnn checkpoint (no format_version)")
    if version > FORMAT_VERSION:
        raise InputError(f"{path}: written by a newer dcnn (format {version}, this one reads up to {FORMAT_VERSION})")
    for old in range(version, FORMAT_VERSION):
        state = UPGRADES[old](state)
    return state


def load_tensors(path: Path) -> Any:
    """What ``torch.save`` wrote: checksums are compared and sizes checked before torch looks at the file."""
    with decoding(path, "checkpoint"):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            if packed or sum(member.file_size for member in members) > path.stat().st_size:
                raise ValueError("its members are compressed, which torch never writes")
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"{damaged} does not have its checksum")
            for member in members:
                if member.filename.endswith("data.pkl"):
                    check_pickle(archive.read(member))
        return torch.load(path, map_location="cpu", weights_only=True)


def load_weights(network: nn.Module, weights: Mapping[str, Any], where: str) -> None:
    """Puts stored weights into a network; `where` they are from is named if they do not fit."""
    try:
        network.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = str(error).strip().split("\n")[-1].strip()
        raise InputError(f"{where}: the weights do not fit the network of its configuration ({reason})") from None


def trained_dtype(weights: Mapping[str, Any]) -> torch.dtype:
    """The precision that stored weights were trained in."""
    dtypes: Iterator[torch.dtype] = (value.dtype for value in weights.values() if value.is_floating_point())
    return next(dtypes)
