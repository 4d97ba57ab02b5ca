"""What nodes say of the lease: who writes, who watches, and what is damaged. Read only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sparkop.engines.paths import state_directory
from sparkop.errors import LeaseHeldError, SparkopError
from sparkop.hosts.base import Json, ReadableHost
from sparkop.hosts.document import Document, parse_document
from sparkop.reconcile.plan import Plan
from sparkop.records import dataclass
from sparkop.resources.compare import human_seconds
from sparkop.resources.state import LEASE
from sparkop.spec.models import ClusterSpec

SIGN_EVERY = 30.0
"""Seconds between two signs of life of a watch."""
EXPIRY = 30.0
"""Seconds of a heartbeat's standstill, watched without a break, after which a holder counts as dead."""
SILENT = 15.0
"""Seconds without a heartbeat, three of them, after which one look says that a holder may be gone."""
LOST = "somebody has broken or taken the lease"
"""What ends the work of who had it, wherever that is noticed."""


class DamagedLeaseError(LeaseHeldError):
    """What a node has is no lease: nobody can write until a human breaks it."""


@dataclass(frozen=True)
class LeaseState:
    """The lease on one node, as it was read."""

    node: str
    holder: str
    token: int
    """Grows with every holder; the node's file calls it ``epoch``."""
    heartbeat: int
    released: bool
    info: Mapping[str, Json]
    unrenewed: float | None = None
    """Seconds since the last heartbeat, by the node's clock; None where that is not known."""

    @property
    def gone(self) -> bool:
        """The holder ran on this machine, and its process is there no more."""
        return _gone(self.info)

    @property
    def expected(self) -> dict[str, Json]:
        """What the node compares before it hands the lease over."""
        return {"holder": self.holder, "epoch": self.token, "heartbeat": self.heartbeat}

    @property
    def told(self) -> str:
        """``ada@laptop (apply), token 7``."""
        return f"{told_writer(dict(self.info), self.holder)}, token {self.token}"


def told_writer(info: Json, holder: str) -> str:
    """``ada@laptop (apply)``; where ``info`` is damaged, the holder's name."""
    known = info if isinstance(info, dict) else {}
    command = f" ({known['command']})" if known.get("command") else ""
    return f"{known.get('who') or holder}{command}"


def lease_in(node: str, document: Document) -> LeaseState | None:
    """The lease in a node's document; None when there was never one, or it can't be read."""
    lease = (document.state or {}).get(LEASE)
    if not isinstance(lease, dict) or not isinstance(lease.get("epoch"), int):
        return None
    info = lease.get("info")
    return LeaseState(
        node=node,
        holder=str(lease.get("holder") or ""),
        token=lease["epoch"],
        heartbeat=int(lease.get("heartbeat") or 0),
        released=bool(lease.get("released")),
        info=info if isinstance(info, dict) else {},
        unrenewed=_unrenewed(document),
    )


def life_of(lease: LeaseState) -> str:
    """What one look tells of who holds a lease: whether it lives, and if not, what follows."""
    taken = "the next command that writes takes the lease over"
    if lease.gone:
        return f"its process is gone: {taken}"
    if lease.unrenewed is None:
        return "when it was renewed last is not known"
    if lease.unrenewed <= SILENT:
        return f"renewed {human_seconds(lease.unrenewed)} ago"
    return f"it has not renewed it for {human_seconds(lease.unrenewed)}, so that it may be gone: then {taken}"


def beside_a_writer(plan: Plan, documents: Mapping[str, Document]) -> Plan:
    """The plan of who only looks: what another command does just now looks like drift. A dead one's lease is
    told as that, as far as one look can tell."""
    leases = [] if plan.converged else [lease_in(*each) for each in documents.items()]
    held = [lease for lease in leases if lease is not None and not lease.released]
    heard_last: dict[str, LeaseState] = {}
    for lease in sorted(held, key=_heard):
        heard_last.setdefault(lease.told, lease)
    told = [
        f"{who}, holds the lease, so that what differs may be its work; {life_of(heard_last[who])}"
        for who in dict.fromkeys(lease.told for lease in held)
    ]
    return replace(plan, warnings=(*plan.warnings, *told))


def _heard(lease: LeaseState) -> tuple[bool, bool, float]:
    """Sorts the node first that knows most of its holder."""
    return not lease.gone, lease.unrenewed is None, lease.unrenewed or 0.0


def _unrenewed(document: Document) -> float | None:
    """Seconds since the last heartbeat, by the node's clock; None where that is not known."""
    lease = (document.state or {}).get(LEASE)
    at = lease.get("renewed") if isinstance(lease, dict) else None
    if document.machine is None or not isinstance(at, int | float):
        return None
    return max(0.0, document.machine.time_s - at)


@dataclass(frozen=True)
class Sign:
    """A watch that has given a sign of life. ``seconds`` ago, by the node's clock."""

    who: str
    seconds: float
    pauses: tuple[float, ...] = ()
    """Seconds that it waits before restarts; empty where an older sparkop does not tell."""
    gone: bool = False
    """It ran on this machine, and its process is there no more; or it holds the lease and lets it expire."""

    @property
    def alive(self) -> bool:
        """It is not long past the time for its next one."""
        return not self.gone and self.seconds <= 3 * SIGN_EVERY


def signs_in(document: Document | None) -> tuple[Sign, ...]:
    """Who watches, by the head's lease; the newest sign first, and of each user and machine only that, of one
    that lives if there is one: who was killed and began anew has left the sign of before."""
    if document is None or document.machine is None:
        return ()
    found: dict[str, Sign] = {}
    lease = lease_in("", document)
    held = lease is not None and not lease.released and (lease.unrenewed or 0.0) > EXPIRY
    silent = lease.holder if lease is not None and held else None
    for holder, sign in _watches_in(document).items():
        at = sign.get("at")
        if isinstance(at, int | float):
            known = _info_of(sign)
            who = str(known.get("who") or holder)
            seconds = max(0.0, document.machine.time_s - at)
            own = Sign(who, seconds, _pauses(known.get("pauses")), _gone(known) or holder == silent)
            found[who] = min(own, found.get(who, own), key=lambda each: (not each.alive, each.seconds))
    return tuple(sorted(found.values(), key=lambda each: each.seconds))


def dead_watches(document: Document) -> tuple[str, ...]:
    """Holders whose sign is on the head, which ran on this machine and were killed."""
    return tuple(holder for holder, sign in _watches_in(document).items() if _gone(_info_of(sign)))


def _watches_in(document: Document) -> dict[str, dict[str, Json]]:
    lease = (document.state or {}).get(LEASE)
    watches = lease.get("watches") if isinstance(lease, dict) else None
    known = watches if isinstance(watches, dict) else {}
    return {holder: sign for holder, sign in known.items() if isinstance(sign, dict)}


def _info_of(sign: Mapping[str, Json]) -> dict[str, Json]:
    info = sign.get("info")
    return info if isinstance(info, dict) else {}


def place() -> str:
    """What a process id means something in: this boot of this machine, and its process namespace. Empty where
    that can't be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _gone(info: Mapping[str, Json]) -> bool:
    """Whether a process that ran here is not there any more; of another machine nobody can tell."""
    pid, where = info.get("pid"), info.get("place")
    if not isinstance(pid, int) or pid <= 0 or not where or where != place():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass  # another user's
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """It has ended, and whoever started it has not asked yet how."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] == ["Z"]


def _pauses(told: Json) -> tuple[float, ...]:
    known = told if isinstance(told, list) else []
    return tuple(float(each) for each in known if isinstance(each, int | float))


def look_at_lease(spec: ClusterSpec, host: ReadableHost, directory: str) -> Document:
    """A node's state now, and its clock. ``directory``: the cluster's there. Raises UnreachableError."""
    request = {"sections": ["machine", "state"], "cluster": spec.name, "state": directory}
    return parse_document(host.probe(request), node=host.name)


def show_lease(
    spec: ClusterSpec, hosts: Mapping[str, ReadableHost]
) -> dict[str, LeaseState | SparkopError | None]:
    """The lease on every node, or why it can't be read."""
    found: dict[str, LeaseState | SparkopError | None] = {}
    for node in spec.nodes:
        try:
            document = look_at_lease(spec, hosts[node.name], state_directory(spec, node))
            found[node.name] = damage_of(document, node.name) or lease_in(node.name, document)
        except SparkopError as error:
            found[node.name] = error
    return found


def damage_of(document: Document, node: str) -> DamagedLeaseError | None:
    """What is there and is no lease: it is not free, every write is refused."""
    problem = document.error("state", LEASE)
    there = LEASE in (document.state or {})
    if problem is None and there and lease_in(node, document) is None:
        problem = "it is damaged"
    if problem is None:
        return None
    return DamagedLeaseError(f"{LEASE} can't be read: {problem}", node=node, remedy="sparkop lease break")
