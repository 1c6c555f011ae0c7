"""Arrays as small pictures: PNG files of 256 colours, inside the page."""

from __future__ import annotations

import base64
import struct
import zlib

import matplotlib
import numpy as np
from numpy.typing import NDArray

SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"


def picture(values: NDArray[np.floating], low: float, high: float, colours: str = SEQUENTIAL) -> str:
    """A data URI of `values` (rows from top to bottom, columns), `low` to `high` over the colour map."""
    span = high - low if high > low else 1.0
    levels = np.nan_to_num(np.clip((values - low) / span, 0, 1) * 255).astype(np.uint8)
    palette = (matplotlib.colormaps[colours](np.arange(256))[:, :3] * 255).astype(np.uint8)
    height, width = levels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), levels], axis=1)  # a filter byte before every row
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),  # 8 bits, indexed colours
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
