"""Waiting for a group that starts: its loading lines, its death, its first token."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf

from sparkop.errors import (
    BlockedError,
    RebootedError,
    SparkopError,
    TimedOutError,
    UnreachableError,
    WaitInterruptedError,
)
from sparkop.hosts import silent_docker
from sparkop.hosts.document import Container, Document, parse_document
from sparkop.records import dataclass
from sparkop.resources.acts import record
from sparkop.resources.base import Context
from sparkop.resources.compare import human_seconds, precise_seconds
from sparkop.resources.desired import DesiredRank
from sparkop.resources.failure import READ, REBOOTED, TAIL, headline, last_lines, likely_cause
from sparkop.resources.group import age, ended_ago, start_window
from sparkop.resources.labels import CLUSTER, Stamp, stamp_of
from sparkop.resources.masking import mask
from sparkop.serving.canary import EndpointState, Question, Serving, ask_once
from sparkop.threads import Later, side_by_side

POLL, LATER_POLL, YOUNG = 1.0, 3.0, 15.0
"""Seconds between two looks at the containers; the longer ones after ``YOUNG`` seconds: a look costs the node
a tenth of a second of work, and its rank is loading. The end of a log stream is seen at once."""
SLICE = 0.5
TOLD_EVERY = 15.0
SILENCE = 60.0
"""Seconds for which a node may be silent while its rank loads: memory is short then, and answers are slow."""
GARBAGE = 3
"""Degenerate generations in a row that end the wait."""


@dataclass(frozen=True)
class _Seen:
    """A rank's container at one look; None: there is none."""

    rank: DesiredRank
    container: Container | None
    document: Document


def wait_ready(context: Context, question: Question) -> None:
    """Return when tokens come; write down how long it took.

    Raises BlockedError with the last lines and the likely cause when a rank ends (any exit code) or the API
    refuses for good, TimedOutError after ``_patience``, UnreachableError when a node stays silent.
    """
    clock = context.clock
    until: float | None = None
    waiting = _Waiting(context, question)
    with _followed(context) as ended:
        asked: Later[EndpointState] | None = None
        while True:
            seen = waiting.look()
            until = clock.monotonic() + _patience(context, seen) if until is None else until
            if asked is None:
                asked = Later(partial(ask_once, context.host(context.desired.head), question), "canary")
            state = _answer(asked)
            if state is not None:
                asked = None
                if waiting.judge(state):
                    _remember(context, seen)
                    return
            if context.stop.is_set():
                raise WaitInterruptedError(
                    "stopped waiting; the ranks go on loading",
                    remedy="sparkop apply waits for them again; sparkop status shows how far they are",
                )
            if clock.monotonic() > until:
                raise _late(context, seen, waiting.last)
            waiting.pause(ended)


def _patience(context: Context, seen: Sequence[_Seen]) -> float:
    """Seconds: ``ready.deadline``, but for ranks that load already no more than is left of their window."""
    spec = context.desired.spec
    deadline = float(spec.ready.deadline)
    left = start_window(spec, EndpointState(Serving.LOADING)) - _youngest(seen)
    return min(deadline, left) if left > 0 else deadline


def _youngest(seen: Sequence[_Seen]) -> float:
    ages = [age(each.container, each.document) for each in seen if each.container is not None]
    return min((seconds for seconds in ages if seconds is not None), default=0.0)


def _answer(asked: Later[EndpointState]) -> EndpointState | None:
    """The canary's answer if it is there; a short real wait, so that a quick one is not missed."""
    try:
        return asked.result(timeout=0.05)
    except TimeoutError:
        return None


class _Waiting:
    """What is known so far."""

    def __init__(self, context: Context, question: Question) -> None:
        self.context = context
        self.question = question
        self.last = EndpointState(Serving.NOT_ASKED)
        self.began = self.heard = self.told = context.clock.monotonic()
        self.said = ""
        self.garbage = 0
        self.silent: list[UnreachableError] = []
        """Of nodes that gave no answer at the last look."""
        self.boots: dict[str, str] = {}
        """Node -> its boot when it was first seen."""

    def look(self) -> list[_Seen]:
        """The ranks' containers on the nodes that answer. Raises BlockedError when one does not run,
        UnreachableError when a node stays silent."""
        seen, self.silent = _look(self.context)
        if not self.silent:
            self.heard = self.context.clock.monotonic()
        dead = [s for s in seen if s.container is None or not s.container.running]
        rebooted = self._rebooted(seen)
        if dead:
            raise rebooted or death(self.context, dead)
        if self.silent and self.context.clock.monotonic() - self.heard > SILENCE:
            raise self.silent[0]
        return seen

    def _rebooted(self, seen: Sequence[_Seen]) -> RebootedError | None:
        """What Docker finds dead after a boot died of the boot, whatever its last lines say."""
        for node, machine in ((s.rank.node, s.document.machine) for s in seen):
            if machine and self.boots.setdefault(node, machine.boot_id) != machine.boot_id:
                return RebootedError(
                    "it has booted anew while the ranks loaded",
                    node=node,
                    cause=REBOOTED,
                    remedy="sparkop apply starts the group again",
                )
        return None

    def pause(self, ended: threading.Event) -> None:
        """Until the next look; shorter when a log stream ends: its rank may have ended."""
        began = self.context.clock.monotonic()
        pause = POLL if began - self.began < YOUNG else LATER_POLL
        while not ended.is_set() and self.context.clock.monotonic() - began < pause:
            self.context.clock.sleep(SLICE)
        ended.clear()

    def judge(self, state: EndpointState) -> bool:
        """Whether it serves. Raises BlockedError for what waiting does not mend."""
        self.last = state
        self.garbage = self.garbage + 1 if state.serving is Serving.DEGENERATE else 0
        if state.serving is Serving.READY:
            return True
        garbage = self.garbage >= GARBAGE
        if state.serving in (Serving.UNAUTHORISED, Serving.FAILED) or garbage:
            raise BlockedError(
                f"the API answers, but not with tokens: {state.detail}",
                node=self.context.desired.head,
                cause="the ranks run with another key than the key file has"
                if state.serving is Serving.UNAUTHORISED
                else None,
                remedy=f"sparkop logs --rank 0{'; sparkop apply starts all ranks anew' if garbage else ''}",
            )
        now = self.context.clock.monotonic()
        if now - self.told >= TOLD_EVERY:
            self.told = now
            told = f"not ready after {human_seconds(now - self.began)}: {state.detail}"
            if self.silent:
                told += f"; {self.silent[0].node} has not answered for {human_seconds(now - self.heard)}"
            if told != self.said:  # in minutes it is the same four times
                self.said = told
                self.context.progress(told)
        return False


def _look(context: Context) -> tuple[list[_Seen], list[UnreachableError]]:
    cluster = context.desired.spec.name
    request = {"sections": ["machine", "docker"], "labels": [f"{CLUSTER}={cluster}"]}

    def one(rank: DesiredRank) -> _Seen | UnreachableError:
        try:
            document = parse_document(context.host(rank.node).probe(request), node=rank.node)
        except UnreachableError as error:
            return error
        if document.docker is None:
            told, remedy = silent_docker.why(document), silent_docker.remedy(document)
            return UnreachableError(told, node=rank.node, remedy=remedy)
        return _Seen(rank, document.container(rank.name), document)

    found = side_by_side(one, context.desired.ranks, "look")
    silent = [each for each in found if isinstance(each, UnreachableError)]
    return [each for each in found if isinstance(each, _Seen)], silent


def death(context: Context, dead: list[_Seen]) -> BlockedError:
    """The report of ranks that ended: the last lines of the first whose cause is known, and that cause."""
    dead = sorted(dead, key=_ended, reverse=True)
    lines = {seen.rank.rank: _tail(context, seen) for seen in dead}
    told = sorted(dead, key=lambda s: likely_cause(s.container, lines[s.rank.rank]) is None)
    first = told[0]
    found = likely_cause(first.container, lines[first.rank.rank])
    return BlockedError(
        ", ".join(headline(f"rank {s.rank.rank}", s.container) for s in dead) + " before it served",
        node=first.rank.node,
        cause=found[0] if found else None,
        remedy=found[1] if found else f"sparkop logs --rank {first.rank.rank}",
        detail="\n".join(lines[first.rank.rank]) or None,
    )


def _ended(seen: _Seen) -> float:
    """Seconds ago; what is gone went first."""
    return inf if seen.container is None else ended_ago(seen.container, seen.document) or 0.0


def _tail(context: Context, seen: _Seen) -> list[str]:
    if seen.container is None:
        return []
    try:
        found = list(context.host(seen.rank.node).log_lines(seen.container.name, tail=READ))
    except (SparkopError, OSError):
        return []
    return last_lines(map(mask, found))


def _late(context: Context, seen: list[_Seen], last: EndpointState) -> TimedOutError:
    head = next((s for s in seen if s.rank.rank == 0), None)
    lines = _tail(context, head) if head else []
    ran = _youngest(seen)
    left = start_window(context.desired.spec, last) - ran
    now = "sparkop apply starts all ranks anew"
    again = f"sparkop apply waits up to {human_seconds(left)} more for them; after that it starts them anew"
    return TimedOutError(
        f"no token, and the ranks have run for {precise_seconds(ran)}",
        node=context.desired.head,
        cause=f"the API: {last.serving}{': ' + last.detail if last.detail else ''}",
        remedy=f"{again if left > 0 else now}; sparkop logs -f shows what they do; "
        "a slow machine needs a longer ready.deadline",
        detail="\n".join(lines) or None,
    )


def _remember(context: Context, seen: list[_Seen]) -> None:
    head = next((s for s in seen if s.rank.rank == 0), None)
    stamp = stamp_of(head.container.labels) if head and head.container else None
    if head is None or head.container is None or stamp is None:
        return
    record_ready(context, stamp, age(head.container, head.document))


def record_ready(context: Context, stamp: Stamp, took: float | None) -> None:
    """Write down that the group serves. ``took``: seconds from its start; None: nobody waited for it."""
    entry = {
        "id": f"ready-{stamp.epoch}",
        "event": "ready",
        "epoch": stamp.epoch,
        "generation": stamp.generation,
        "seconds": None if took is None else round(took, 1),
        "at": context.clock.time(),
    }
    record(context, context.desired.head, entry)


@contextmanager
def _followed(context: Context) -> Iterator[threading.Event]:
    """Show the ranks' loading lines meanwhile. The event is set when a stream ends: a rank may have ended."""
    ended = threading.Event()
    loading = re.compile("|".join(context.desired.engine.manners.loading_lines) or r"(?!)")

    streams = {
        rank.rank: context.host(rank.node).log_lines(rank.name, tail=TAIL, follow=True)
        for rank in context.desired.ranks
    }

    def follow(rank: DesiredRank) -> None:
        try:
            for written in streams[rank.rank]:
                line = written.rstrip("\r").rpartition("\r")[2]  # of a bar that overwrites itself, the last
                if loading.search(line):  # the rest is in `sparkop logs -f`
                    context.log(mask(line), rank.node)
                    context.progress(f"rank {rank.rank}: {mask(line).strip()}")
        except (SparkopError, OSError):
            pass  # the containers are looked at anyway
        ended.set()

    threads = [
        threading.Thread(target=follow, args=(rank,), daemon=True, name=f"log-{rank.rank}")
        for rank in context.desired.ranks
    ]
    for thread in threads:
        thread.start()
    try:
        yield ended
    finally:
        for stream in streams.values():
            stream.close()
