"""Quantities with units. Bytes and seconds; a bare number is refused where the unit matters."""

from __future__ import annotations


class ByteSize(int):
    """Bytes."""


class Duration(float):
    """Seconds."""
