"""One job of the transfer program on a node: started or found again, followed, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparkop.errors import BlockedError, SparkopError, TimedOutError, WaitInterruptedError
from sparkop.node.transfer.files import parse_job
from sparkop.resources.base import Context
from sparkop.resources.transfer_program import call, failure
from sparkop.resources.weights.follow import ENDED, Status, follow, progress_text, read_status

SOURCE_SILENT = 10.0
"""Seconds without a byte after which the node that is copied from is looked at, and those behind it."""
DOWN = (b"down", b"lowerlayerdown")
"""What the kernel calls an interface whose cable is pulled, or that was set down."""
RESTARTS = 5
"""Times that a process which vanished is started again within one operation."""


def carry_out(
    context: Context,
    node: str,
    job: Mapping[str, Any],
    sources: Callable[[], Mapping[str, Any]],
    *,
    source: str = "",
) -> Status:
    """Start a job on a node, or find it at work, and follow it to its end; returns its last status.

    ``sources`` prepares where its bytes come from, again when the job has to be started again; ``source``
    is the node among them. When the user asked to stop, the job is left running and SparkopError says so.
    Raises SparkopError.
    """
    kind = str(job["kind"])
    state = context.desired.nodes[node].state
    identity = parse_job(job).id
    _start(context, node, {**job, **sources()}, identity)
    restarts = iter(range(RESTARTS))

    def revive() -> bool:
        if call(context.host(node), context.fence(node), "status", {"kind": kind})["running"]:
            return True
        if next(restarts, None) is None:
            return False
        context.log("the transfer was gone; started again", node)
        _start(context, node, {**job, **sources()}, identity)
        return True

    def renew() -> None:
        try:
            fresh = sources()
        except (BlockedError, TimedOutError):
            return  # a cable may be out: the job itself tells when it stays so
        if _start(context, node, {**job, **fresh}, identity):
            context.log(f"{source} had stopped offering it; offered again, the copy carries on", node)

    watch = _SourceWatch(node, source, kind, context, renew)
    noted: set[str] = set()

    def tell(status: Status) -> None:
        for note in status.get("notes") or ():
            if note not in noted:
                noted.add(note)
                context.log(str(note), node)
        _tell(context, status, source)
        watch.look(status)

    status = follow(
        context.host(node),
        state,
        identity,
        clock=context.clock,
        stopped=context.stop.is_set,
        tell=tell,
        revive=revive,
        kind=kind,
    )
    _blame(node, source, status)
    end_of(node, status)
    _tell(context, status, source)
    return status


def _blame(node: str, source: str, status: Status) -> None:
    """Raise BlockedError for wrong bytes from another node, whose own ledger calls them good."""
    error = status.get("error") or {}
    if source and error.get("kind") == "content":
        raise BlockedError(
            f"{source} hands on other bytes than were published",
            node=node,
            cause=str(error.get("message")),
            remedy="sparkop download --deep hashes the files of every node again and mends them",
        )


class _SourceWatch:
    """Looks along the way that the bytes take when none come any more: a node may be gone, a link down."""

    def __init__(
        self, node: str, source: str, kind: str, context: Context, renew: Callable[[], None]
    ) -> None:
        """``renew`` sees to it that the source offers, and that the job knows where."""
        self._renew = renew
        self._node = node
        self._source = source
        self._kind = kind
        self._context = context
        self._told: set[str] = set()
        """Nodes whose link was told to be down."""
        self._received = -1
        self._since = context.clock.monotonic()

    def look(self, status: Status) -> None:
        """Raises UnreachableError when a node on the way does not answer."""
        received = int((status.get("bytes") or {}).get("received", 0))
        now = self._context.clock.monotonic()
        if received != self._received:
            self._received, self._since = received, now
        elif now - self._since > SOURCE_SILENT:
            self._look_along()
            if self._source and self._context.desired.spec.fabric.trusted and status["phase"] == "fetching":
                self._renew()  # over ssh, each connection starts what serves it
            self._since = now

    def _look_along(self) -> None:
        """From node to node, as long as each waits for one itself."""
        node, source, seen = self._node, self._source, {self._node}
        while source in self._context.desired.nodes and source not in seen:
            seen.add(source)
            status = read_status(
                self._context.host(source), self._context.desired.nodes[source].state, self._kind
            )
            self._look_at_link(node)
            self._look_at_link(source)
            waits = status.get("phase") not in (*ENDED, None)
            node, source = source, str(status.get("from") or "") if waits else ""

    def _look_at_link(self, node: str) -> None:
        """Tell, once, that the node's interface on the fabric has no link."""
        facts = self._context.desired.nodes[node].facts
        if facts is None or facts.fabric is None:
            return
        interface = facts.fabric.interface
        state = self._context.host(node).read_file(f"/sys/class/net/{interface}/operstate") or b""
        if state.strip() in DOWN and node not in self._told:
            self._told.add(node)
            self._context.log(
                f"the link of {interface} on {node} is down, no bytes come over it: see to its cable; "
                "sparkop doctor tells more",
                self._node,
            )


def _start(context: Context, node: str, request: Mapping[str, Any], identity: str) -> bool:
    """Start the job, or find it at work (False). Another job of the same kind gives way, and this one when it
    reads from elsewhere: what has arrived is kept."""
    host, fence = context.host(node), context.fence(node)
    answer = call(host, fence, "start", request)
    if not answer["started"] and (answer["id"] != identity or answer["moved"]):
        call(host, fence, "cancel", {"kind": request["kind"]})
        answer = call(host, fence, "start", request)
        if not answer["started"]:
            raise SparkopError(
                "another transfer does not give way", node=node, remedy="sparkop download --cancel"
            )
    return bool(answer["started"])


def _tell(context: Context, status: Status, source: str) -> None:
    done = status.get("bytes") or {}
    context.progress(
        progress_text(status, source),
        done=int(done.get("done", 0)),
        total=int(done.get("total", 0)),
        rate=float(status.get("rate", 0.0)),
    )


def end_of(node: str, status: Status) -> None:
    """Raise what a transfer's last status says, unless it is done."""
    phase = status.get("phase")
    if phase == "done":
        return
    if phase == "failed":
        raise failure(status.get("error") or {}, node)
    if phase == "cancelled":
        raise SparkopError("the transfer was cancelled", node=node, remedy="run the same command again")
    raise WaitInterruptedError(
        "stopped watching; the transfer goes on by itself on the node",
        node=node,
        remedy="sparkop download --follow shows it, sparkop download --cancel ends it",
    )
