"""Liveness that means tokens: what the canary and the engine's counters tell, look after look. Pure.

A false alarm is worse than a late one (principle 5). So nothing bad is believed after one look, and counters
that move are progress: a long prefill, a compilation and a full queue are no wedge. A gauge that falls is no
progress: requests that give up, ours too, free their part of the KV cache.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from sparkop.records import dataclass
from sparkop.serving.canary import EndpointState, Serving

BELIEVED = 2
"""Bad answers in a row before one is believed."""
STANDSTILL = 10.0
"""Seconds for which the counters must have stood still before a group counts as wedged."""


class Verdict(StrEnum):
    """What a group does, as far as it is known."""

    UNKNOWN = "unknown"
    SERVING = "serving"
    STARTING = "starting"
    """It has not served yet; its ready deadline judges it."""
    SLOW = "slow"
    """No token for us, but work goes on, or it is too early to tell."""
    SUSPECTED = "suspected"
    """One bad answer, which is not believed yet."""
    WEDGED = "wedged"
    DEGENERATE = "degenerate"
    BROKEN = "broken"
    """Answers 500 or breaks off, or says 503 after it had served: the engine behind the API is dead."""
    SILENT = "silent"
    UNAUTHORISED = "unauthorised"
    FAILED = "failed"
    """Answers an error that waiting will not mend."""


@dataclass(frozen=True)
class Counters:
    """What an engine counts; None where it does not tell. ``kv`` from 0 to 1."""

    generated: float | None = None
    prompt: float | None = None
    kv: float | None = None
    running: float | None = None
    waiting: float | None = None

    @property
    def told(self) -> bool:
        """It tells something that would move while it works."""
        return any(value is not None for value in (self.generated, self.prompt, self.kv))

    def moved_since(self, before: Counters) -> bool:
        """Tokens were made or read, or the KV cache has grown (a long prefill fills it chunk by chunk)."""
        pairs = ((self.generated, before.generated), (self.prompt, before.prompt), (self.kv, before.kv))
        return any(now is not None and then is not None and now > then for now, then in pairs)

    def made_since(self, before: Counters) -> bool:
        """Tokens came out for somebody."""
        now, then = self.generated, before.generated
        return now is not None and then is not None and now > then


@dataclass(frozen=True)
class Seen:
    """One look. ``at``: the controller's monotonic seconds; ``epoch``: the group's number."""

    at: float
    epoch: int
    served: bool
    """This group has served before, by the history."""
    counters: Counters | None = None
    """None: /metrics did not answer."""
    answer: EndpointState | None = None
    """Of one generation (``serving.canary.ask_once``); None: none has ended since the last look."""


@dataclass(frozen=True)
class Life:
    """What is known of a group, folded from all looks so far. Moments are monotonic seconds."""

    epoch: int = 0
    verdict: Verdict = Verdict.UNKNOWN
    detail: str = ""
    since: float = 0.0
    """Since when it is so."""
    counters: Counters | None = None
    moved_at: float = 0.0
    """When the counters last moved, or when they were first read."""
    told: str = ""
    """What the last answer said."""
    last_bad: Serving | None = None
    bad: int = 0
    """Answers ``last_bad`` in a row; without a token, those since the counters last moved."""
    bad_since: float = 0.0
    unheard_since: float | None = None
    """Since when neither tokens nor counters come."""
    served_since: float | None = None
    """Since when it serves without a break."""
    ready: bool = False
    """The history has said of this group that it served."""

    def state(self, now: float) -> EndpointState:
        """The same for ``reconcile``, which asks how long it lasts."""
        return EndpointState(SERVING_OF[self.verdict], self.detail, lasted=max(0.0, now - self.since))


SERVING_OF = {
    Verdict.UNKNOWN: Serving.NOT_ASKED,
    Verdict.SERVING: Serving.READY,
    Verdict.STARTING: Serving.LOADING,
    Verdict.SLOW: Serving.BUSY,
    Verdict.SUSPECTED: Serving.BUSY,
    Verdict.WEDGED: Serving.WEDGED,
    Verdict.DEGENERATE: Serving.DEGENERATE,
    Verdict.BROKEN: Serving.BROKEN,
    Verdict.SILENT: Serving.SILENT,
    Verdict.UNAUTHORISED: Serving.UNAUTHORISED,
    Verdict.FAILED: Serving.FAILED,
}

_AT_ONCE = {
    Serving.READY: Verdict.SERVING,
    Serving.UNAUTHORISED: Verdict.UNAUTHORISED,
    Serving.FAILED: Verdict.FAILED,
}
_BELIEVED = {
    Serving.DEGENERATE: Verdict.DEGENERATE,
    Serving.BROKEN: Verdict.BROKEN,
    Serving.LOADING: Verdict.BROKEN,
}


def judge(before: Life, seen: Seen) -> Life:
    """Fold one more look into what is known."""
    if before.epoch != seen.epoch:
        before = Life(epoch=seen.epoch, since=seen.at, moved_at=seen.at)
    elif seen.served and not before.ready and before.served_since is None:
        before, seen = _started(before, seen)
    before = replace(before, ready=before.ready or seen.served)
    life = _counted(before, seen)
    life = _answered(life, seen)
    verdict, detail = _verdict(life, seen)
    if verdict is not before.verdict:
        life = replace(life, since=_began(verdict, life, seen))
    served = before.served_since if before.served_since is not None else seen.at
    keeps = verdict in (Verdict.SERVING, Verdict.SLOW, Verdict.SUSPECTED) and (
        before.served_since is not None or verdict is Verdict.SERVING
    )
    return replace(life, verdict=verdict, detail=detail, served_since=served if keeps else None)


def _started(life: Life, seen: Seen) -> tuple[Life, Seen]:
    """Another has waited for its start: how it did while it loaded, up to the answer that was asked for then,
    says nothing of how it serves. Else 503 before was believed as its death as soon as it served."""
    fresh = Life(epoch=life.epoch, since=seen.at, counters=life.counters, moved_at=seen.at)
    good = seen.answer is not None and seen.answer.serving is Serving.READY
    return fresh, seen if good else replace(seen, answer=None)


def _counted(life: Life, seen: Seen) -> Life:
    """What the counters tell. Tokens for others prove that no generation hangs; garbage counts, too."""
    now, then = seen.counters, life.counters
    if now is None:
        return life
    if life.last_bad is Serving.SILENT and life.unheard_since is not None:
        life = replace(life, bad=1, moved_at=seen.at)  # it listens again
    life = replace(life, unheard_since=None)
    if not now.told:
        return life
    if then is None:
        return replace(life, counters=now, moved_at=seen.at)
    life = replace(life, counters=now)
    if not now.moved_since(then):
        return life
    if life.last_bad is not Serving.WEDGED:
        return replace(life, moved_at=seen.at)
    if now.made_since(then):
        return replace(life, moved_at=seen.at, bad=0, last_bad=None, verdict=Verdict.SERVING, detail="")
    return replace(life, moved_at=seen.at, bad=min(life.bad, 1))


def _answered(life: Life, seen: Seen) -> Life:
    answer = seen.answer
    if answer is not None:
        life = replace(life, told=answer.detail)
    if answer is not None and answer.serving in _AT_ONCE:
        return replace(life, bad=0, last_bad=None, unheard_since=None)
    if answer is not None:
        again = answer.serving is life.last_bad
        life = replace(
            life,
            last_bad=answer.serving,
            bad=life.bad + 1 if again else 1,
            bad_since=life.bad_since if again else seen.at,
        )
    deaf = seen.counters is None and life.last_bad in (Serving.SILENT, Serving.WEDGED)
    if deaf and life.unheard_since is None:
        life = replace(life, unheard_since=seen.at)
    return life


def _verdict(life: Life, seen: Seen) -> tuple[Verdict, str]:
    answer = seen.answer
    if answer is not None and answer.serving in _AT_ONCE:
        return _AT_ONCE[answer.serving], answer.detail
    bad, detail = life.last_bad, life.told
    if bad is None:
        early = Verdict.UNKNOWN if seen.served else Verdict.STARTING
        return (early if life.verdict is Verdict.UNKNOWN else life.verdict), life.detail
    if not seen.served and life.served_since is None and bad in (Serving.SILENT, Serving.LOADING):
        return Verdict.STARTING, detail
    if life.bad < BELIEVED:
        return _once_bad(bad, detail)
    if bad in (Serving.WEDGED, Serving.SILENT):
        return _wedged(life, seen, detail)
    return _BELIEVED.get(bad, Verdict.SLOW), detail


def _once_bad(bad: Serving, detail: str) -> tuple[Verdict, str]:
    """An answer that does not come may be late; garbage or an error is not."""
    if bad is not Serving.SILENT and bad not in _BELIEVED:
        return Verdict.SLOW, detail
    return Verdict.SUSPECTED, f"one answer was {bad}: {detail}" if detail else f"one answer was {bad}"


def _wedged(life: Life, seen: Seen, detail: str) -> tuple[Verdict, str]:
    """Two generations without a token. Requests run then by themselves: ours."""
    if life.unheard_since is not None and life.last_bad is Serving.SILENT:
        return Verdict.SILENT, detail
    if life.unheard_since is not None:
        return Verdict.SILENT, f"{detail}; its counters do not answer either"
    if seen.counters is None or not seen.counters.told:
        return Verdict.SLOW, f"{detail}; its counters can't be read"
    if seen.at - life.moved_at < STANDSTILL:
        return Verdict.SLOW, f"{detail}, but its counters move"
    return Verdict.WEDGED, f"{detail}, nor before, and its counters stand still"


def _began(verdict: Verdict, life: Life, seen: Seen) -> float:
    if verdict is Verdict.SILENT and life.unheard_since is not None:
        return life.unheard_since
    return life.bad_since if verdict is Verdict.BROKEN else seen.at
