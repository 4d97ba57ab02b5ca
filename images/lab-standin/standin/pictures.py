"""What the two halves of a small PNG look like: enough to answer "which colours, from left to right"."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
NAMED = {
    "red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255), "white": (255, 255, 255),
    "black": (0, 0, 0),
    "yellow": (255, 255, 0), "gray": (128, 128, 128), "orange": (255, 165, 0), "purple": (128, 0, 128),
}  # fmt: skip


class PictureError(ValueError):
    """The data is no PNG that this program reads."""


def from_data_url(url: str) -> bytes:
    """Bytes of a `data:` URL. Raises PictureError."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise PictureError("only data URLs in base64 are read")
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise PictureError(f"not base64: {error}") from error


def halves(png: bytes) -> tuple[str, str]:
    """Names of the colours in the middle of the left and of the right half. Raises PictureError."""
    width, height, rows, channels, palette = decode(png)
    row = rows[height // 2]

    def colour(x: int) -> str:
        pixel = row[x * channels : x * channels + channels]
        if palette is not None:
            rgb = tuple(palette[pixel[0] * 3 : pixel[0] * 3 + 3])
        else:
            rgb = tuple(pixel[:3]) if channels >= 3 else (pixel[0],) * 3
        return min(NAMED, key=lambda name: sum((a - b) ** 2 for a, b in zip(NAMED[name], rgb, strict=True)))

    return colour(width // 4), colour(width * 3 // 4)


def decode(png: bytes) -> tuple[int, int, list[bytes], int, bytes | None]:
    """Width, height, unfiltered rows, bytes a pixel, palette. 8 bits a channel, not interlaced."""
    if not png.startswith(SIGNATURE):
        raise PictureError("no PNG signature")
    header, palette, packed, place = b"", None, b"", len(SIGNATURE)
    while place + 8 <= len(png):
        size, kind = struct.unpack(">I4s", png[place : place + 8])
        data = png[place + 8 : place + 8 + size]
        place += size + 12
        if kind == b"IHDR":
            header = data
        elif kind == b"PLTE":
            palette = data
        elif kind == b"IDAT":
            packed += data
    if len(header) != 13:
        raise PictureError("no PNG header")
    width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", header)
    if depth != 8 or interlace or colour not in CHANNELS or not 0 < width * height <= 2**24:
        raise PictureError("only small PNGs with 8 bits a channel, not interlaced, are read")
    try:
        raw = zlib.decompress(packed)
    except zlib.error as error:
        raise PictureError(f"damaged PNG: {error}") from error
    channels = CHANNELS[colour]
    return width, height, unfilter(raw, width * channels, height, channels), channels, palette


def unfilter(raw: bytes, size: int, height: int, channels: int) -> list[bytes]:
    """Rows of the picture from PNG's filtered rows of `size` bytes. Raises PictureError when some lack."""
    if len(raw) < (size + 1) * height:
        raise PictureError("damaged PNG: rows are missing")
    rows: list[bytes] = []
    above = bytes(size)
    for y in range(height):
        start = y * (size + 1)
        kind, line = raw[start], bytearray(raw[start + 1 : start + 1 + size])
        for x in range(size):
            left = line[x - channels] if x >= channels else 0
            corner = above[x - channels] if x >= channels else 0
            line[x] = (line[x] + predicted(kind, left, above[x], corner)) & 255
        above = bytes(line)
        rows.append(above)
    return rows


def predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:
        distance = left + up - corner
        by = {left: abs(distance - left), up: abs(distance - up), corner: abs(distance - corner)}
        return min((left, up, corner), key=lambda value: by[value])
    return (0, left, up, (left + up) // 2)[kind]
