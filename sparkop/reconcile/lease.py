"""One writer: a lease on every node of the cluster, with a heartbeat and a fencing token (principle 7).

The node compares and sets, under a lock (node/lease.py); it never judges time. Whether a holder is dead is
judged here, by the contender's own monotonic clock: its heartbeat has stood still for ``EXPIRY`` while we
watched. A paused writer that wakes up is refused by every node, because its token is past.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from sparkop.engines.paths import state_directory
from sparkop.errors import BlockedError, LeaseHeldError, SparkopError, WaitInterruptedError
from sparkop.hosts.base import Fence, Host, Json
from sparkop.hosts.document import Document
from sparkop.node.lease import BREAK
from sparkop.reconcile.lease_seen import (
    EXPIRY,
    LOST,
    DamagedLeaseError,
    LeaseState,
    damage_of,
    lease_in,
    look_at_lease,
    place,
    show_lease,
    told_writer,
)
from sparkop.reconcile.patience import patiently
from sparkop.records import dataclass
from sparkop.resources.base import Clock
from sparkop.resources.events import Event, Listener, Phase
from sparkop.spec.models import ClusterSpec
from sparkop.threads import Later, side_by_side

HEARTBEAT = 5.0
"""Seconds between two renewals."""
WATCHED = 10.0
"""Seconds of it that a contender watches itself, looking every second, however long it was seen to stand
still before: a node that was away between two looks let nobody renew."""
YIELD_DEADLINE = 60.0
"""Seconds that a watch gets to finish what it does and to yield."""
RELEASE_DEADLINE = 15.0
"""Seconds that all nodes get to take the lease back; where that fails it expires."""
STOPPED_DEADLINE = 5.0
"""The same when the user has asked to stop."""
LEAVING_DEADLINE = 1.0
"""The same when the user leaves now, or another writer has it."""
LOOK_EVERY = 1.0
YIELDS = "watch"
"""The command that gives the lease to whoever asks for it."""


def tell_watching(
    spec: ClusterSpec,
    head: Host,
    holder: str,
    *,
    over: bool = False,
    pauses: Iterable[float] = (),
    dead: Iterable[str] = (),
) -> None:
    """A watch's sign of life on the head. A head that can't take it is no fault of the watch. ``pauses``:
    seconds that it waits before restarts, so that status can tell of one. ``dead``: holders that have left a
    sign and live no more; else status would tell of them when this watch has ended."""
    fence = Fence(spec.name, holder, 0, state_directory(spec, spec.head))
    info = {"who": _who(), "pid": os.getpid(), "place": place(), "pauses": list(pauses)}
    with suppress(SparkopError, OSError):
        head.act("lease.watching", {"info": info, "over": over, "dead": list(dead)}, fence, timeout=HEARTBEAT)


def who_of(holder: str) -> str:
    """User and machine of a holder's name."""
    return holder.partition("/")[0]


def new_holder() -> str:
    """A name for this run that no other has."""
    return f"{_who()}/{os.getpid()}/{secrets.token_hex(4)}"


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


class Held:
    """The lease of a cluster, held. ``lost`` is set when another writer has taken it."""

    def __init__(self, hosts: Mapping[str, Host], fences: Mapping[str, Fence]) -> None:
        self.hosts = hosts
        self.fences = fences
        self.refused: dict[str, BlockedError] = {}
        """Nodes that could not take it, where that was allowed: nothing is written there."""
        self.lost = threading.Event()
        self.lost_to = ""
        """Who has taken it and why, as a node told it."""
        self.wanted = threading.Event()
        """Somebody asked us to yield."""
        self.wanted_by = ""
        self._over = threading.Event()
        self._hearts: dict[str, Later[None]] = {}

    def check(self) -> None:
        """Raises LeaseHeldError when it is lost."""
        if self.lost.is_set():
            raise LeaseHeldError(
                LOST,
                cause=self.lost_to or None,
                remedy="sparkop diff tells what is left to do",
            )

    def start(self) -> None:
        """Begin to renew: one heart a node, so that a node which does not answer holds up no other."""
        self._hearts = {name: Later(partial(self._beat, name), f"lease-{name}") for name in self.fences}

    def renew(self) -> None:
        """One heartbeat on every node, at once. A node that does not answer is left for the next beat."""
        side_by_side(self.renew_on, self.fences, "lease")

    def renew_on(self, node: str) -> None:
        """One heartbeat on one node."""
        fence = self.fences.get(node)
        if fence is None:
            return  # forgotten
        try:
            answer = self.hosts[node].act("lease.renew", {}, fence, timeout=HEARTBEAT)
        except LeaseHeldError as error:
            self.lost_to = self.lost_to or error.cause or ""
            self.lost.set()
            return
        except (SparkopError, OSError):
            return
        lease = answer.get("lease")
        wanted = lease.get("wanted") if isinstance(lease, dict) else None
        if isinstance(wanted, dict):
            self.wanted_by = told_writer(wanted.get("info"), str(wanted.get("holder") or ""))
            self.wanted.set()

    def end_beats(self) -> None:
        """No heartbeat any more; the lease is still ours until somebody watches it stand still."""
        self._over.set()
        until = time.monotonic() + HEARTBEAT
        for heart in self._hearts.values():
            heart.ended(max(0.0, until - time.monotonic()))  # what a silent node holds is too late to count

    def forget(self, nodes: Iterable[str]) -> None:
        """The lease went with the state folder of these nodes: there is nothing to give back."""
        self.fences = {name: fence for name, fence in self.fences.items() if name not in set(nodes)}

    def release(self, patience: float = RELEASE_DEADLINE) -> None:
        """Give it back where we still have it. ``patience``: seconds; a node that takes longer holds nobody
        up, the lease expires there."""
        self._over.set()
        until = time.monotonic() + patience
        heart = min(HEARTBEAT, patience / 4)
        for given in [
            Later(partial(self._give_back, *each, heart), "release") for each in self.fences.items()
        ]:
            given.ended(max(0.0, until - time.monotonic()))

    def _give_back(self, node: str, fence: Fence, heart: float) -> None:
        """``heart``: seconds for a beat that is under way; it may wait for the node's lock, and the node lets
        go of the lease after that, whoever waits for it."""
        if node in self._hearts:
            self._hearts[node].ended(heart)
        with suppress(SparkopError, OSError):
            self.hosts[node].act("lease.release", {}, fence, timeout=RELEASE_DEADLINE)

    def _beat(self, node: str) -> None:
        while not self._over.wait(HEARTBEAT) and not self.lost.is_set():
            self.renew_on(node)


@contextmanager
def hold(
    spec: ClusterSpec,
    hosts: Mapping[str, Host],
    documents: Mapping[str, Document],
    *,
    command: str,
    holder: str,
    clock: Clock,
    emit: Listener,
    stop: threading.Event | None = None,
    spare: bool = False,
    still: Mapping[str, float] | None = None,
) -> Iterator[Held]:
    """Hold the lease on every node of ``documents`` (those that were read), and give it back at the end.

    Waits for a ``watch`` to yield and for a dead holder to expire. ``spare``: go on without a node whose
    state folder can't be written (``Held.refused``), as without one that does not answer; its lease is read
    and waited for all the same, and no other writer gets those that are held. ``still``: node -> seconds
    for which its lease was seen not to move before. Raises LeaseHeldError when another writer lives,
    BlockedError when no node took it, WaitInterruptedError when ``stop`` is set before.
    """
    stop, leaving = stop or threading.Event(), False
    directories = {node.name: state_directory(spec, node) for node in spec.nodes if node.name in documents}
    seen = {name: lease_in(name, documents[name]) for name in directories}
    highest = max((lease.token for lease in seen.values() if lease is not None), default=0)
    fences = {n: Fence(spec.name, holder, highest + 1, directory) for n, directory in directories.items()}
    info = {"who": _who(), "command": command, "pid": os.getpid(), "place": place()}
    taken: dict[str, Fence] = {}
    held = Held(hosts, taken)
    try:
        contender = _Contender(spec, hosts, fences, info, emit, stop, spare)
        expected, since = _free(contender, seen, clock, still or {})
        token = 1 + max(highest, since)
        for name in fences:
            fence = replace(fences[name], token=token)
            try:
                over: dict[str, Json] = {"silent": EXPIRY} if expected[name] is not None else {}
                how: dict[str, Json] = {"expected": expected[name], "info": {**info, **over}}
                taking = partial(hosts[name].act, "lease.acquire", how, fence)
                patiently(taking, partial("{} has not taken the lease".format, name), emit, stop)
                taken[name] = fence
            except WaitInterruptedError:
                taken[name] = fence  # it may take it yet
                raise
            except LeaseHeldError as error:
                document = look_at_lease(spec, hosts[name], fence.directory)
                lease = lease_in(name, document)
                raise damage_of(document, name) or _held(name, lease, error.cause) from error
            except BlockedError as error:
                if not spare:
                    raise
                held.refused[name] = error
        if held.refused and not taken:
            raise next(iter(held.refused.values()))
        held.start()
        try:
            yield held
        except LeaseHeldError:
            raise
        except SparkopError:
            held.check()  # a wait that the loss has ended, or what the other writer's work looks like
            raise
    except BaseException as error:
        leaving = not isinstance(error, Exception)
        raise
    finally:
        asked = STOPPED_DEADLINE if stop.is_set() else RELEASE_DEADLINE
        held.release(LEAVING_DEADLINE if leaving or held.lost.is_set() else asked)


@dataclass(frozen=True)
class _Contender:
    """Who wants the lease, and what it asks of the nodes meanwhile."""

    spec: ClusterSpec
    hosts: Mapping[str, Host]
    fences: Mapping[str, Fence]
    info: Mapping[str, Json]
    emit: Listener
    stop: threading.Event
    spare: bool

    def ask(self, name: str) -> None:
        """Ask the holder there to yield."""
        with suppress(*((BlockedError,) if self.spare else ())):
            # where the state can't be written its holder can't write either, and expires
            asking = partial(self.hosts[name].act, "lease.ask", {"info": dict(self.info)}, self.fences[name])
            waits = partial("{} has not passed on that the lease is wanted".format, name)
            patiently(asking, waits, self.emit, self.stop)

    def look(self, name: str) -> LeaseState | None:
        """The lease as it is there now."""
        looking = partial(look_at_lease, self.spec, self.hosts[name], self.fences[name].directory)
        waits = partial("{} has not told who holds the lease".format, name)
        return lease_in(name, patiently(looking, waits, self.emit, self.stop))


def _free(
    contender: _Contender,
    seen: Mapping[str, LeaseState | None],
    clock: Clock,
    still: Mapping[str, float],
) -> tuple[dict[str, dict[str, Json] | None], int]:
    """Return when the lease can be taken on every node, all watched at once: what to name as expected there,
    and the highest token that was seen meanwhile.

    Who has taken it in between is asked as well. Raises LeaseHeldError, and WaitInterruptedError when
    ``stop`` is set.
    """
    fences, emit = contender.fences, contender.emit
    token = 0
    expected: dict[str, dict[str, Json] | None] = dict.fromkeys(fences)
    watched = {
        name: lease
        for name, lease in seen.items()
        if lease is not None and not lease.released and lease.holder != fences[name].holder
    }
    for name, lease in watched.items():
        contender.ask(name)
        text = f"the lease is held by {lease.told}; watching its heartbeat"
        emit(Event(Phase.NOTE, node=name, text=text))
    began = clock.monotonic()
    stood = {name: began - min(still.get(name, 0.0), EXPIRY - WATCHED) for name in watched}
    while watched:
        if contender.stop.is_set():
            told = next(iter(watched.values())).told
            raise WaitInterruptedError(f"stopped waiting for the lease that {told} holds")
        clock.sleep(LOOK_EVERY)
        for name, last in list(watched.items()):
            now = clock.monotonic()
            current = contender.look(name)
            token = max(token, current.token if current is not None else 0)
            if current is None or current.released:
                del watched[name]
            elif current.expected != last.expected:
                watched[name], stood[name] = current, now
                if current.info.get("command") != YIELDS or now - began > YIELD_DEADLINE:
                    raise _held(name, current)
                if current.token != last.token:
                    contender.ask(name)
            elif now - stood[name] >= EXPIRY:
                text = f"{current.told} has not moved for {EXPIRY:.0f} s"
                emit(Event(Phase.NOTE, node=name, text=text))
                expected[name] = current.expected
                del watched[name]
    return expected, token


def _held(node: str, lease: LeaseState | None, cause: str | None = None) -> LeaseHeldError:
    if lease is None or lease.released:
        return LeaseHeldError(
            "another sparkop had the lease meanwhile; it is free again",
            node=node,
            cause=cause,
            remedy="run the same command again",
        )
    return LeaseHeldError(
        "another sparkop writes to this cluster",
        node=node,
        cause=f"held by {lease.told}",
        remedy="wait for it to end, then run the same command again; if it is gone for good, that takes over "
        f"after {EXPIRY:.0f} s, and after sparkop lease break at once",
    )


def break_lease(
    spec: ClusterSpec, hosts: Mapping[str, Host], *, holder: str | None = None
) -> dict[str, str | SparkopError | None]:
    """Take the lease from whoever has it, and give it back; a human's decision. Returns of every node from
    whom, None where nobody had it, or why it could not be taken: the others lose it all the same.

    Whoever had it is fenced out: none of its writes is accepted any more. A damaged lease is written anew.
    """
    current = show_lease(spec, hosts)
    token = 1 + max((each.token for each in current.values() if isinstance(each, LeaseState)), default=0)
    told: dict[str, str | SparkopError | None] = {}
    for node in spec.nodes:
        fence = Fence(spec.name, holder or new_holder(), token, state_directory(spec, node))
        try:
            told[node.name] = _taken(hosts[node.name], current[node.name], fence)
        except SparkopError as error:
            told[node.name] = error
    return told


def _taken(host: Host, lease: LeaseState | SparkopError | None, fence: Fence) -> str | None:
    """From whom the lease of one node was taken."""
    if isinstance(lease, SparkopError) and not isinstance(lease, DamagedLeaseError):
        raise lease
    if lease is None or (isinstance(lease, LeaseState) and lease.released):
        return None
    info = {"who": _who(), "command": BREAK}
    host.act("lease.acquire", {"expected": None, "info": info, "force": True}, fence)
    host.act("lease.release", {}, fence)
    return lease.told if isinstance(lease, LeaseState) else "a damaged lease"
