"""Asking an API whose ranks may hang: what hangs is found while its answer is waited for.

A group with a hung rank takes requests and gives no token, and every request would wait for its whole
deadline. So after a while without a token all ranks are looked at. A node that is silent to us proves
nothing, its rank may work on: it is believed only when the engine's counters stand still meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sparkop.engines.common import container_names
from sparkop.engines.render import engine_of
from sparkop.errors import SparkopError
from sparkop.hosts import silent_docker
from sparkop.hosts.base import ReadableHost
from sparkop.hosts.document import parse_document
from sparkop.reconcile.patience import LOOK_EVERY
from sparkop.records import dataclass
from sparkop.resources.compare import human_seconds
from sparkop.resources.events import Event, Listener, Phase
from sparkop.resources.failure import headline
from sparkop.resources.labels import CLUSTER
from sparkop.serving.api import Answer, Api, Hang, Limits
from sparkop.serving.canary import STANDSTILL, Question, counts, worked
from sparkop.spec.models import ClusterSpec
from sparkop.threads import Later, side_by_side

AGAIN = "sparkop apply starts all ranks again"
WEDGED = Hang(
    "every rank runs, but no token comes and the engine's counters stand still",
    f"sparkop status tells more; {AGAIN}",
)


@dataclass(frozen=True)
class Pace:
    """Seconds."""

    quiet: float = 10.0
    """Without a token, after which the ranks are looked at, again and again."""
    still: float = STANDSTILL
    """Between two readings of the engine's counters."""
    look: float = 15.0
    """That a node gets to answer."""


@dataclass(frozen=True)
class _Fault:
    """A rank that was not seen running. ``dead``: its container was seen, and does not run."""

    rank: int
    hang: Hang
    dead: bool = False
    away: bool = False
    """Its node did not answer."""


@dataclass(frozen=True)
class _Look:
    """The first fault, and whether the engine's counters stood still; None: they could not be read."""

    fault: _Fault | None
    still: bool | None

    @property
    def hopeless(self) -> bool:
        """Waiting for a token is no use. The API is asked through the head: where both are away, it is."""
        if self.fault is None:
            return False
        lost = self.fault.away and self.fault.rank == 0 and self.still is None
        return self.fault.dead or lost or self.still is True

    @property
    def hang(self) -> Hang | None:
        """What to say of an answer that has not come by its deadline."""
        if self.still is False:
            return None
        if self.fault is not None:
            return self.fault.hang
        return WEDGED if self.still else None


class Watched:
    """The API of a cluster, of which no answer is waited for that can't come."""

    def __init__(
        self,
        spec: ClusterSpec,
        hosts: Mapping[str, ReadableHost],
        api: Api,
        emit: Listener,
        pace: Pace | None = None,
    ) -> None:
        self._spec = spec
        self._hosts = hosts
        self._api = api
        self._emit = emit
        self._pace = pace or Pace()

    def ask(self, path: str, body: Mapping[str, Any], limits: Limits) -> Answer:
        """As ``Api.ask``; what hangs is in the answer's ``hang``. Ctrl-C ends it at once."""
        answer = Answer(began=self._api.monotonic())
        asked = Later(partial(self._api.ask, path, body, limits, answer), "ask")
        look: Later[_Look] | None = None
        last: _Look | None = None
        turn = answer.began  # when the last look began or ended
        while not asked.ended(LOOK_EVERY):
            now = self._api.monotonic()
            if look is not None and look.ended(0):
                last, look = look.result(), None
                if last.hopeless and answer.heard <= turn:
                    return self._given_up(answer, last)
                turn = now
            if look is None and now - max(answer.heard, turn) >= self._pace.quiet:
                self._tell(now - answer.heard, last, limits)
                look, turn = Later(self._look, "ranks"), now
        whole = asked.result()
        late = whole.seconds >= limits.seconds and whole.ended - whole.heard >= self._pace.quiet
        return replace(whole, hang=last.hang) if late and last else whole

    def _given_up(self, answer: Answer, found: _Look) -> Answer:
        now = self._api.monotonic()
        error = f"no token in {human_seconds(now - answer.heard)}; given up"
        return replace(answer, error=error, hang=found.hang, ended=now)

    def _tell(self, quiet: float, last: _Look | None, limits: Limits) -> None:
        text = f"no token for {human_seconds(quiet)}: "
        if last is None:
            text += "looking at every rank"
        elif last.fault is not None:
            text += f"{last.fault.hang.cause}; the counters move or can't be read, so it may work on"
        else:
            text += "every rank runs"
        self._emit(Event(Phase.NOTE, text=f"{text}; waiting {human_seconds(limits.seconds)} at most"))

    def _look(self) -> _Look:
        """Every rank, and the counters twice."""
        still = Later(self._stand_still, "counters")
        ranks = list(enumerate(zip(self._spec.nodes, container_names(self._spec), strict=True)))
        faults = side_by_side(lambda rank: self._fault(rank[0], rank[1][0].name, rank[1][1]), ranks, "rank")
        return _Look(next((fault for fault in faults if fault is not None), None), still.result())

    def _stand_still(self) -> bool | None:
        before = self._counts()
        if not before:
            return None
        time.sleep(self._pace.still)
        after = self._counts()
        return not worked(before, after) if after else None

    def _fault(self, rank: int, node: str, name: str) -> _Fault | None:
        request = {"sections": ["docker"], "labels": [f"{CLUSTER}={self._spec.name}"], "containers": [name]}
        try:
            document = parse_document(self._hosts[node].probe(request, timeout=self._pace.look), node=node)
        except (SparkopError, OSError, ValueError) as error:
            reason = str(getattr(error, "cause", None) or error).rstrip(".")
            cause = f"{node}, which has rank {rank}, does not answer: {reason}"
            return _Fault(
                rank, Hang(cause, f"look at its console and its power; once it answers, {AGAIN}"), away=True
            )
        if document.docker is None:
            cause = f"{node}, which has rank {rank}: {silent_docker.why(document)}"
            remedy = silent_docker.remedy(document)
            return _Fault(rank, Hang(cause, f"{AGAIN}, once this is done there: {remedy}"))
        container = document.container(name)
        if container is not None and container.running:
            return None
        cause = f"{headline(f'rank {rank}', container)} on {node}"
        return _Fault(
            rank, Hang(cause, f"sparkop logs --rank {rank} tells why; {AGAIN}"), dead=container is not None
        )

    def _counts(self) -> tuple[float | None, ...] | None:
        metrics = engine_of(self._spec).manners.metrics
        question = Question(
            port=self._api.port,
            model=self._api.model,
            prompt="",
            max_tokens=0,
            deadline=self._pace.look,
            counters=(metrics.generation_tokens, metrics.prompt_tokens, metrics.kv_usage),
            address=self._api.address,
        )
        try:
            return counts(self._api.host, question)
        except SparkopError:
            return None
