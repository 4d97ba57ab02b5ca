"""desired + observed -> Plan. Pure: no I/O, no clock, no randomness; linear in nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sparkop.hosts.obstacle import obstacle
from sparkop.reconcile.plan import GROUP, Plan
from sparkop.resources import intent
from sparkop.resources.base import Difference, Resource
from sparkop.resources.checks.model import MACHINE
from sparkop.resources.desired import Desired
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Blocker, Cause, Operation, Unknown, kind_of
from sparkop.resources.registry import RESOURCES, STANDS_ON


def reconcile(
    desired: Desired,
    observed: Observed,
    history: History,
    now: float,  # noqa: ARG001 (part of it by principle 1; pauses are `restrain`'s)
    resources: Sequence[Resource] = RESOURCES,
) -> Plan:
    """What to do, in an order that respects every ``needs``. Empty when the world is as desired.

    ``now``: seconds since 1970.
    """
    found = {resource.kind: _known(resource.diff(desired, observed, history)) for resource in resources}
    permitted, waiting = ([], []) if _is_one_machine(found) else _permitted(found, observed)
    operations = _ordered([*_with_needs(permitted)])
    return Plan(
        operations=tuple(operations),
        unknown=(*observed.unknown.values(), *(u for d in found.values() for u in d.unknown)),
        blockers=tuple(dict.fromkeys(b for d in found.values() for b in d.blockers)),
        warnings=tuple(w for d in found.values() for w in d.warnings),
        waiting=tuple(waiting),
    )


def _is_one_machine(found: Mapping[str, Difference]) -> bool:
    """Two nodes are one machine: what is done for the one would be undone, or taken, for the other."""
    return any(blocker.cause.field == MACHINE for each in found.values() for blocker in each.blockers)


def _known(difference: Difference) -> Difference:
    """A folder in place of a file is no silence: what it hides is not unknown, it is a human's to mend."""
    unknown: list[Unknown] = []
    blockers: list[Blocker] = []
    for each in difference.unknown:
        found = obstacle(each.reason)
        if found is None or each.resource is None:
            unknown.append(each)
        else:
            cause = Cause(found.path, found.observed, found.desired)
            blockers.append(Blocker(each.node, each.resource, cause, found.remedy(each.node)))
    return replace(difference, unknown=tuple(unknown), blockers=(*difference.blockers, *blockers))


def _permitted(
    found: Mapping[str, Difference], observed: Observed
) -> tuple[list[Operation], list[Operation]]:
    """Those to do; and those that wait: what stands on something blocked or unknown, or on one that waits,
    or needs one."""
    bad = {(kind, blocker.node) for kind, difference in found.items() for blocker in difference.blockers}
    bad |= {(kind, unknown.node) for kind, difference in found.items() for unknown in difference.unknown}
    waiting: dict[str, Operation] = {}
    kept: list[Operation] = []
    for kind, difference in found.items():
        for operation in difference.operations:
            if kind in (*GROUP, intent.KIND):  # a human's stop holds until there is a start
                forbidden = bool(observed.unknown) or any(k != "endpoint" for k, _ in bad)
            else:
                forbidden = any(place in bad for place in _places(operation))
            if forbidden or any(key in waiting for key in operation.needs):
                waiting[operation.key] = operation
                bad.add((kind, operation.node))
            else:
                kept.append(operation)
    return kept, list(waiting.values())


def _places(operation: Operation) -> Iterable[tuple[str, str]]:
    """Kinds, with the node, that have to be right. What comes from another node needs its state folder, where
    the lease and the key for it are, and the thing itself; not its Docker."""
    kind = kind_of(operation.resource)
    for base in _bases(kind):
        yield base, operation.node
    for base in (kind, "state", *_bases("state")):
        yield base, operation.source


def _bases(kind: str) -> Iterable[str]:
    """What a kind stands on, directly or not."""
    for base in STANDS_ON.get(kind, ()):
        yield base
        yield from _bases(base)


def _with_needs(operations: list[Operation]) -> Iterable[Operation]:
    """Add the order between kinds. The group's first operation waits for everything before it; the rest of
    the group follows from that one, so that needs stay linear in nodes."""
    by_place: dict[tuple[str, str], list[str]] = {}
    before_group: list[str] = []
    for operation in operations:
        kind = kind_of(operation.resource)
        if kind not in GROUP:
            by_place.setdefault((kind, operation.node), []).append(operation.key)
            before_group.append(operation.key)
    group = [o for o in operations if kind_of(o.resource) in GROUP]
    inner = {key for o in group for key in o.needs}
    for operation in operations:
        kind = kind_of(operation.resource)
        if kind == "endpoint":
            extra = [
                o.key for o in group if kind_of(o.resource) == "rank" and o.key not in inner
            ] or before_group
        elif kind == "rank":
            extra = before_group if not operation.needs else []
        else:
            extra = [
                key for base in STANDS_ON.get(kind, ()) for key in by_place.get((base, operation.node), ())
            ]
        yield (
            replace(operation, needs=tuple(dict.fromkeys((*operation.needs, *extra)))) if extra else operation
        )


def _ordered(operations: list[Operation]) -> list[Operation]:
    """As they come, but never before what they need. Raises ValueError for needs that go in circles."""
    waiting = {operation.key: operation for operation in operations}
    if len(waiting) != len(operations):
        raise ValueError("two operations with the same key")
    done: dict[str, Operation] = {}
    visiting: set[str] = set()

    for start in operations:
        stack = [start.key]
        while stack:
            key = stack[-1]
            if key in done:
                stack.pop()
                continue
            open_needs = [need for need in waiting[key].needs if need in waiting and need not in done]
            if not open_needs:
                visiting.discard(key)
                done[key] = waiting[key]
                stack.pop()
                continue
            if key in visiting:
                raise ValueError(f"needs go in circles at {key}")
            visiting.add(key)
            stack.extend(reversed(open_needs))
    return list(done.values())
