"""What processes that are no rank's have taken: after a trip the numbers are not to blame for it."""

from __future__ import annotations

from collections import deque
from typing import Any

from . import reading


class Outside:
    """The memory of each such process, look after look, as far back as the record's samples go.

    It is theirs alone, without files that they map: page cache is no memory that is missing.
    """

    def __init__(self, looks: int) -> None:
        self._looks: deque[dict[int, int]] = deque(maxlen=looks)

    def look(self, own: dict[int, int], proc: str = "/proc") -> dict[str, Any]:
        """``grew``: bytes of all of them since the oldest look; ``most``: who grew most, or nobody."""
        before = self._looks[0] if self._looks else own
        self._looks.append(own)
        grown = sorted(((size - before.get(pid, 0), pid) for pid, size in own.items()), reverse=True)
        most = reading.named([(own[pid], pid) for grew, pid in grown[:3] if grew > 0], proc, 1)
        return {"grew": sum(own.values()) - sum(before.values()), "most": most[0] if most else None}
