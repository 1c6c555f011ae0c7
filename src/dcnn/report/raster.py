"""Arrays as small pictures: PNG files of 256 colours, inside the page."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

# Viridis, and ColorBrewer's RdBu from blue to red; between these colours lines are drawn.
SEQUENTIAL = (
    "440154 481769 472a7a 433d84 3d4e8a 355e8d 2e6d8e 297b8e 23898e 1f978b 21a585 2eb37c 46c06f 65cb5e 89d548 b0dd2f "
    "d8e219 fde725"
)
DIVERGING = "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f"


def picture(values: NDArray[np.floating], low: float, high: float, colours: str = SEQUENTIAL) -> str:
    """A data URI of `values` (rows from top to bottom, columns), `low` to `high` over the colour map."""
    span = high - low if high > low else 1.0
    levels = np.nan_to_num(np.clip((values - low) / span, 0, 1) * 255).astype(np.uint8)
    anchors = np.array([list(bytes.fromhex(colour)) for colour in colours.split()])  # (n, 3)
    places = np.linspace(0, 255, len(anchors))
    palette = np.stack([np.interp(np.arange(256), places, part) for part in anchors.T], 1).round().astype(np.uint8)
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
