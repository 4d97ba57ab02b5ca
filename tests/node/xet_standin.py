"""The chunk store (CAS) beside `hub_standin.Hub`, as far as the real hf_xet client reads files from it.

A file is a row of xorbs, a xorb a row of chunks, a chunk eight bytes of header and its bytes, stored as they
are. The client does not check its hashes when it downloads, so that they need not be the real ones.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from typing import Any

CHUNK = 64 << 10
CHUNKS = 960
"""Chunks of a xorb, at most: it stays below the 64 MiB that the format allows."""
XORB = CHUNK * CHUNKS
HEADER = 8


def file_hash(name: str) -> str:
    """Names a file at the store."""
    return hashlib.sha256(b"file " + name.encode()).hexdigest()


def token_headers(store: str) -> dict[str, str]:
    """What the hub answers to the question for a token."""
    return {
        "X-Xet-Cas-Url": store,
        "X-Xet-Access-Token": "xet",
        "X-Xet-Token-Expiration": str(int(time.time()) + 3600),
    }


def reconstruction(name: str, size: int, store: str, asked: str | None) -> dict[str, Any] | None:
    """Which chunks make up the asked bytes of a file; None when they begin behind its end."""
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
    first, last = (int(match[1]), min(int(match[2] or size - 1), size - 1)) if match else (0, size - 1)
    if first >= size:
        return None
    terms, fetches = [], {}
    for number in range(first // XORB, last // XORB + 1):
        start = max(first - number * XORB, 0) // CHUNK
        end = min(last - number * XORB, XORB - 1) // CHUNK + 1
        length = min(size - number * XORB, end * CHUNK) - start * CHUNK
        name_of_xorb = hashlib.sha256(b"%d %s" % (number, name.encode())).hexdigest()
        chunks = {"start": start, "end": end}
        at = start * (CHUNK + HEADER)
        span = {"start": at, "end": at + length + (end - start) * HEADER - 1}
        url = f"{store}/xorbs/{file_hash(name)}/{number}"
        terms.append({"hash": name_of_xorb, "unpacked_length": length, "range": chunks})
        fetches[name_of_xorb] = [{"range": chunks, "url": url, "url_range": span}]
    return {"offset_into_first_range": first % CHUNK, "terms": terms, "fetch_info": fetches}


def stored(data: bytes, number: int, asked: str | None) -> Iterator[bytes | memoryview]:
    """Bytes of a xorb of a file, in pieces; the asked range begins and ends with a chunk."""
    whole = memoryview(data)[number * XORB : (number + 1) * XORB]
    match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
    first, last = (int(match[1]), int(match[2])) if match else (0, 1 << 62)
    for index in range(first // (CHUNK + HEADER), min(last // (CHUNK + HEADER) + 1, CHUNKS)):
        chunk = whole[index * CHUNK : (index + 1) * CHUNK]
        if not chunk:
            return
        length = len(chunk).to_bytes(3, "little")
        yield b"\0" + length + b"\0" + length
        yield chunk


def length_of(size: int, number: int, asked: str | None) -> int:
    """How many bytes `stored` gives of a file of this size."""
    match = re.fullmatch(r"bytes=(\d+)-(\d+)", asked or "")
    here = min(size - number * XORB, XORB)
    whole = here + -(-here // CHUNK) * HEADER
    return min(int(match[2]) + 1, whole) - int(match[1]) if match else whole
