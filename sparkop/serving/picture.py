"""A picture to ask about: left half red, right half blue."""

from __future__ import annotations

import base64
import struct
import zlib

SIDE = 128
"""Pixels."""
RED, BLUE = b"\xff\x00\x00", b"\x00\x00\xff"


def red_and_blue() -> bytes:
    """A PNG of ``SIDE`` x ``SIDE`` pixels."""
    row = b"\x00" + RED * (SIDE // 2) + BLUE * (SIDE // 2)
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(row * SIDE)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*parts, strict=True)))


def data_url() -> str:
    """The picture as clients send it."""
    return "data:image/png;base64," + base64.b64encode(red_and_blue()).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
