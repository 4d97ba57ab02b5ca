"""One look of ``watch``: the nodes, and how the group does, without holding anybody up.

The generation runs beside the look, so that a dead rank is seen while a wedged API lets us wait. It yields to
traffic: while tokens come out for others it is asked rarely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from sparkop.errors import SparkopError
from sparkop.hosts.base import Host, ReadableHost
from sparkop.reconcile.observe import Reading, observe, worth_asking
from sparkop.reconcile.speeds import slow, speeds_in
from sparkop.reconcile.watch.gpu import Gpus
from sparkop.reconcile.watch.pace import Pace, judged, measure
from sparkop.reconcile.watch.story import Fault, low_memory, unread_of
from sparkop.records import dataclass
from sparkop.resources.base import Clock, Context, Resource
from sparkop.resources.desired import Desired
from sparkop.resources.endpoint import question_of, read_key
from sparkop.resources.group import found_ranks
from sparkop.resources.liveness import Counters, Life, Seen, Verdict, judge
from sparkop.resources.operations import Operation
from sparkop.serving.canary import AGAIN, EndpointState, Serving, ask_once, read_metrics, sum_of
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec
from sparkop.threads import Later


@dataclass(frozen=True)
class Rhythm:
    """How often what is looked at; seconds."""

    period: float = 10.0
    canary: float = 30.0
    """Between two generations of a group that serves."""
    canary_with_traffic: float = 60.0
    metrics: float = 5.0
    """The longest that /metrics may take."""
    outside: float = 900.0
    """For which a hub's list that was read is believed without asking again."""
    quick: float = 1.0
    """A look waits so long for a generation: a healthy one answers within it."""


class Answer(Protocol):
    """A generation that runs."""

    def result(self, timeout: float | None = None) -> EndpointState: ...


Begin = Callable[[Callable[[], EndpointState], str], Answer]


class Eye:
    """Looks again and again, and remembers how the group did."""

    def __init__(
        self,
        spec: ClusterSpec,
        hosts: Mapping[str, Host],
        clock: Clock,
        resources: Sequence[Resource],
        rhythm: Rhythm,
        begin: Begin = Later,
    ) -> None:
        self.spec = spec
        self.hosts = hosts
        self.clock = clock
        self.rhythm = rhythm
        self.begin = begin
        self.life = Life()
        self.pace = Pace()
        self.gpus = Gpus(hosts, clock)
        self.findings: dict[str, Fault] = {}
        """What only a watch sees, and restarts nothing: by a name that stays the same while it lasts."""
        self.resources = tuple(_Remembering(each, clock, rhythm.outside) for each in resources)
        self._running: tuple[int, Answer] | None = None
        self._asked_at: float | None = None

    def look(self) -> Reading:
        """Read every node; the endpoint's state is that of all looks so far. Never raises for a node."""
        reading = observe(self.spec, self.hosts, canary=False, clock=self.clock, resources=self.resources)
        self.findings = low_memory(reading.desired, reading.observed, self.findings)
        if not worth_asking(reading.desired, reading.observed, reading.history):
            self._keep(reading)
            return reading
        ranks = found_ranks(reading.desired, reading.observed)
        epoch = max(found.stamp.epoch for found in ranks)
        before = self.life
        counters = self._counters(reading.desired)
        seen = Seen(
            at=self.clock.monotonic(),
            epoch=epoch,
            served=0 < reading.history.ready_epoch == epoch,
            counters=counters,
            answer=self._answer(reading.desired, epoch, _traffic(before, counters)),
        )
        seen = replace(seen, at=self.clock.monotonic())
        self.life = judge(before, seen)
        self._measure(reading, seen)
        failing = self.life.last_bad is not None and self.life.verdict is not Verdict.STARTING
        self.gpus.look(reading.desired, ranks, failing=failing)
        state = self._state(seen, failing)
        self.findings |= self._found(reading)
        return replace(reading, observed=replace(reading.observed, endpoint=state))

    def _keep(self, reading: Reading) -> None:
        """Of a group that was not asked: while a node is silent nobody can tell that a finding is over."""
        if unread_of(reading.observed):
            self.pace = replace(self.pace, last=None, began=None)
            self.findings |= self._found(reading)
        else:
            self.pace = Pace()

    def _state(self, seen: Seen, failing: bool) -> EndpointState:
        """A lost GPU is a reason to restart when tokens fail to come, or when NVML itself says so and nobody
        is served just now."""
        loss, busy = self.gpus.loss, bool(seen.counters and seen.counters.running)
        if loss and (failing or (loss.certain and not busy)):
            return EndpointState(Serving.GPU_LOST, loss.text)
        return self.life.state(seen.at)

    def _measure(self, reading: Reading, seen: Seen) -> None:
        """Compare the speed with what bench has measured, whenever a stretch of mere decoding allows it."""
        self.pace = measure(self.pace, seen.counters, seen.at)
        if self.pace.measured is not None:
            head = reading.observed.documents.get(reading.desired.head)
            self.pace = judged(self.pace, slow(speeds_in(self.spec, head), *self.pace.measured))

    def _found(self, reading: Reading) -> dict[str, Fault]:
        found: dict[str, Fault] = {}
        head = reading.desired.head
        if self.pace.warning:
            found[f"speed@{head}"] = Fault(head, self.pace.warning)
        if loss := self.gpus.loss:
            remedy = "its container is made anew when no request runs, or when tokens fail to come"
            found[f"gpu@{loss.node}"] = Fault(loss.node, loss.text, remedy)
        for node, text in self.gpus.stuck.items():
            found[f"clocks@{node}"] = Fault(node, text)
        return found

    @property
    def undecided(self) -> bool:
        """A generation runs, or a bad answer is not yet believed, or not for long enough."""
        unsure = (Verdict.SLOW, Verdict.SUSPECTED, Verdict.SILENT)
        return self._running is not None or self.life.verdict in unsure

    def served(self, epoch: int, at: float) -> None:
        """A start was waited for until tokens came."""
        seen = Seen(at, epoch, served=True, answer=EndpointState(Serving.READY))
        self.life = judge(self.life, seen)
        self._asked_at = at

    def _answer(self, desired: Desired, epoch: int, traffic: bool) -> EndpointState | None:
        """The answer of the generation that ended since the last look; begins one when it is due."""
        wait = 0.0
        if self._running is None:
            if not self._due(epoch, traffic):
                return None
            head = self.hosts[desired.head]
            bad = self.life.epoch == epoch and self.life.last_bad is not None
            ask = partial(_ask, desired, head, AGAIN if bad else 1.0, self.clock.monotonic)
            self._running = (epoch, self.begin(ask, "canary"))
            self._asked_at = self.clock.monotonic()
            wait = self.rhythm.quick
        asked_of, running = self._running
        try:
            answer = running.result(timeout=wait)
        except TimeoutError:
            return None
        self._running = None
        return answer if asked_of == epoch else None

    def _due(self, epoch: int, traffic: bool) -> bool:
        if self._asked_at is None or self.life.epoch != epoch or self.life.last_bad is not None:
            return True
        every = self.rhythm.canary_with_traffic if traffic else self.rhythm.canary
        return self.clock.monotonic() - self._asked_at >= every

    def _counters(self, desired: Desired) -> Counters | None:
        names = desired.engine.manners.metrics
        try:
            host, api, timeout = self.hosts[desired.head], self.spec.api, self.rhythm.metrics
            content = read_metrics(host, api.port, api.own_address, timeout)
        except (SparkopError, OSError):
            return None
        if content is None:
            return None
        text = content.decode("utf-8", "replace")
        return Counters(
            generated=sum_of(names.generation_tokens, text),
            prompt=sum_of(names.prompt_tokens, text),
            kv=sum_of(names.kv_usage, text),
            running=sum_of(names.running, text),
            waiting=sum_of(names.waiting, text),
        )


def _traffic(before: Life, now: Counters | None) -> bool:
    """Tokens came out since the last look, or requests run that are not ours."""
    if now is None or before.counters is None:
        return False
    return now.made_since(before.counters)


def _ask(desired: Desired, head: ReadableHost, part: float, monotonic: Callable[[], float]) -> EndpointState:
    """One generation; whatever goes wrong on the way is no answer of the engine."""
    try:
        question = question_of(desired, read_key(desired, head))
        return ask_once(head, replace(question, deadline=question.deadline * part), monotonic)
    except (SparkopError, OSError) as error:
        return EndpointState(Serving.BUSY, f"could not be asked: {error}")


class _Remembering:
    """A resource that reads what lies outside the nodes once in a while, not at every look: what could not be
    read, or was changed by the watch itself, is read again."""

    def __init__(self, resource: Resource, clock: Clock, seconds: float) -> None:
        self._resource = resource
        self._clock = clock
        self._seconds = seconds
        self._known: tuple[float, Any] | None = None
        self.kind = resource.kind
        self.diff = resource.diff

    def prepare(self, spec: ClusterSpec) -> Any:
        now = self._clock.monotonic()
        if self._known is not None and now - self._known[0] < self._seconds:
            return self._known[1]
        outside = self._resource.prepare(spec)
        self._known = None if getattr(outside, "problem", "") else (now, outside)
        return outside

    def perform(self, operation: Operation, context: Context) -> None:
        self._known = None
        self._resource.perform(operation, context)

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Any]:
        return self._resource.request(spec, node, outside)
