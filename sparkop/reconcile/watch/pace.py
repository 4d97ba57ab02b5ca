"""How fast tokens come, by the engine's counters, while it does nothing but decode. Pure.

Only stretches that can be compared with a measured speed count: the same number of requests at every look,
none waiting, and no prompt read in between.
"""

from __future__ import annotations

from dataclasses import replace

from sparkop.records import dataclass
from sparkop.resources.liveness import Counters

WINDOW = 30.0
"""Seconds of steady decoding that make one measurement."""
BELIEVED = 2
"""Slow measurements in a row before one is believed."""


@dataclass(frozen=True)
class Pace:
    """Folded from all looks so far. Moments are monotonic seconds."""

    last: Counters | None = None
    at: float = 0.0
    began: Counters | None = None
    """The counters at the beginning of the steady stretch that goes on now."""
    since: float = 0.0
    measured: tuple[int, float] | None = None
    """Streams, and tokens a second of all of them together, when a measurement ended with this look."""
    slow: int = 0
    """Slow measurements in a row (``judged``)."""
    told: str = ""

    @property
    def warning(self) -> str:
        """What to say of it; empty while it is fast enough, or not known to be slow."""
        return self.told if self.slow >= BELIEVED else ""


def measure(pace: Pace, now: Counters | None, at: float) -> Pace:
    """Fold one more look."""
    last, pace = pace.last, replace(pace, last=now, at=at, measured=None)
    if now is None or last is None or not _steady(last, now):
        return replace(pace, began=None)
    if pace.began is None or pace.began.running != now.running:
        return replace(pace, began=now, since=at)
    seconds = at - pace.since
    if seconds < WINDOW or now.generated is None or pace.began.generated is None:
        return pace
    rate = (now.generated - pace.began.generated) / seconds
    return replace(pace, began=now, since=at, measured=(int(now.running or 0), rate))


def judged(pace: Pace, told: str | None) -> Pace:
    """``told``: what is wrong with the speed that was just measured; None when it is as it should be."""
    return replace(pace, slow=pace.slow + 1, told=told) if told else replace(pace, slow=0, told="")


def _steady(before: Counters, now: Counters) -> bool:
    """Nothing but decoding, for the same requests."""
    same = now.running == before.running and (now.running or 0) >= 1
    return same and not now.waiting and not before.waiting and now.prompt == before.prompt
