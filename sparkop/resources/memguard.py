# ruff: noqa: ARG002 (the parameters of the Resource protocol)
"""The memory guard of every node: its container or unit, running, with the asked floor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from shlex import quote
from typing import Any

from sparkop.hosts.base import Host, Json
from sparkop.hosts.document import Container, Document, Unit
from sparkop.hosts.obstacle import Obstacle, obstacle
from sparkop.node.memguard.guard import Floors
from sparkop.resources import memory_gate, trip
from sparkop.resources.acts import ensure_directory
from sparkop.resources.base import Clock, Context, Difference, Resource
from sparkop.resources.compare import human_seconds, unread, whole
from sparkop.resources.desired import Desired, DesiredNode
from sparkop.resources.group import age
from sparkop.resources.guard import guard_name, guard_names, program_in, unit_name, without_program
from sparkop.resources.labels import CLUSTER, DESIRED, HASH, ROLE_GUARD, SPEC, Stamp, ours
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Operation, Origin, Unknown
from sparkop.resources.stamped import changed_field, same
from sparkop.spec.models import ClusterSpec
from sparkop.spec.nodes import NodeSpec

KIND = "memguard"
GRACE = 3.0
"""Seconds that the guard gets to end by itself."""
HEARTBEAT = "memguard.json"
NEXT = "memguard.next.json"
"""Written by a guard that is ready and waits for another one's end."""
READY_WITHIN = 10.0
"""Seconds after which the old guard is taken away all the same."""
NEEDED = (trip.DRAFT, HEARTBEAT, f"{HEARTBEAT}.draft")
"""Files without which it is not known that a guard lives, or what it has killed: numbers that were too large
would be launched again."""
USEFUL = (
    *("memguard.log", "memguard.log.1", "memguard.lock", "trip.json.draft"),
    *(NEXT, f"{NEXT}.draft"),
)
"""Files without which it guards all the same."""
SILENT = 60.0
"""Seconds without a reading after which a guard that runs is taken for hung; it writes one each ten."""


class MemoryGuard(Resource):
    """Replaced without touching the ranks: the new one is started first, where the old one's name allows it;
    it waits for the old one's end, and guards in the same moment."""

    kind = KIND

    def request(self, spec: ClusterSpec, node: NodeSpec, outside: Any) -> Mapping[str, Json]:
        labels = [f"{CLUSTER}={spec.name}"]
        return {"labels": labels, "containers": list(guard_names(spec.name)), "units": True}

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        operations: list[Operation] = []
        unknown: list[Unknown] = []
        blockers: list[Blocker] = []
        warnings: list[str] = []
        for node in desired.nodes.values():
            document = observed.documents[node.name]
            missing = next((each for each in ("docker", "units") if getattr(document, each) is None), None)
            if missing is not None:
                unknown.append(unread(document, missing, node.name, KIND))
                continue
            operations += _node(desired.spec, node, document)
            refused = memory_gate.closed(desired, node.name, document)
            blockers += [refused] if refused else []
            blocks = heartbeat(document).get("large_blocks")
            blockers += [_in_the_way(node.name, found) for found in _misplaced(document, NEEDED)]
            for found in _misplaced(document, USEFUL):
                warnings.append(
                    f"{node.name}: {found.path} is {found.observed}, it should be {found.desired}: "
                    f"the memory guard works without; {found.remedy(node.name)}"
                )
            told = (memory_gate.fragmented(desired, node.name, document, blocks), _mortal(node, document))
            warnings += [warning for warning in told if warning]
        return Difference(tuple(operations), tuple(blockers), tuple(unknown), tuple(warnings))

    def perform(self, operation: Operation, context: Context) -> None:
        host, fence = context.host(operation.node), context.fence(operation.node)
        name = str(operation.parameters["name"])
        if operation.action is Action.REMOVE:
            if operation.parameters.get("unit"):
                host.act("unit.remove", {"name": name, "grace": GRACE}, fence)
            else:
                host.containers.remove(name, fence, grace=GRACE)
            return
        node = context.desired.nodes[operation.node]
        guard = node.guard
        assert guard is not None  # planned only where one is wanted
        ensure_directory(context, operation.node, node.weights)
        before = host.read_file(f"{node.state}/{NEXT}") if operation.parameters.get("relieves") else None
        if context.desired.spec.memory.guard.as_unit:
            argv = [*(guard.entrypoint or ()), *guard.arguments]
            host.act("unit.start", {"name": name, "labels": dict(guard.labels), "argv": argv}, fence)
        else:
            host.containers.run(replace(guard, name=name), fence)
        if operation.parameters.get("relieves"):
            _wait_ready(host, f"{node.state}/{NEXT}", before, context.clock)


def _misplaced(document: Document, names: Iterable[str]) -> list[Obstacle]:
    """Folders in place of the guard's files. It goes on without them; it has nobody to tell it to."""
    said = (document.errors.get(f"state:{name}", "") for name in names)
    return [found for found in map(obstacle, said) if found is not None]


def _in_the_way(node: str, found: Obstacle) -> Blocker:
    """Holds up the ranks; the guard itself is mended all the same."""
    return Blocker(node, KIND, Cause(found.path, found.observed, found.desired), found.remedy(node))


def _wait_ready(host: Host, path: str, before: bytes | None, clock: Clock) -> None:
    """Until the new guard waits for nothing but the old one's end; the old one guards meanwhile."""
    end = clock.monotonic() + READY_WITHIN
    while host.read_file(path) == before and clock.monotonic() < end:
        clock.sleep(0.2)


def _node(spec: ClusterSpec, node: DesiredNode, document: Document) -> list[Operation]:
    found = ours(document, spec.name, ROLE_GUARD)
    causes = [(c, stamp, _wrong(spec, node, c, stamp, document)) for c, stamp in found]
    good = [c for c, _, cause in causes if cause is None]
    useless: list[Operation] = []
    relieved: list[Operation] = []
    for container, stamp, cause in causes:
        if container in good[:1]:
            continue
        removal = removal_of(spec.name, node.name, container, cause or Cause("guards", str(len(good)), "1"))
        still_guards = container.running and silence(container, document) <= SILENT
        kind = relieved if still_guards and node.guard is not None and not good else useless
        kind.append(replace(removal, origin=_origin(node, stamp)))
    if node.guard is None or good:
        return useless
    first = next(iter([*useless, *relieved]), None)
    taken = {o.parameters["name"] for o in relieved}
    parameters = {"name": _name(spec, node, taken), **({"relieves": True} if relieved else {})}
    start = Operation(
        Action.START,
        node.name,
        KIND,
        first.cause if first else Cause("guard", "missing", "running"),
        needs=tuple(o.key for o in useless),
        parameters=parameters,
        origin=first.origin if first else None,
    )
    return [*useless, start, *(replace(o, needs=(start.key,)) for o in relieved)]


def removal_of(cluster: str, node: str, guard: Container, cause: Cause) -> Operation:
    """Takes one guard away, whichever form it has."""
    resource = KIND if guard.name == guard_name(cluster) else f"{KIND}/{guard.name}"
    unit = {"unit": True} if isinstance(guard, Unit) else {}
    return Operation(Action.REMOVE, node, resource, cause, parameters={"name": guard.name, **unit})


def _name(spec: ClusterSpec, node: DesiredNode, taken: Set[str]) -> str:
    """Of the guard to start. A container that relieves another one can't have its name."""
    if node.guard is not None and spec.memory.guard.as_unit:
        return unit_name(spec, node.guard)
    first, second = guard_names(spec.name)
    return second if first in taken else first


def _mortal(node: DesiredNode, document: Document) -> str | None:
    """A unit that nobody starts after a reboot."""
    for unit in document.units or ():
        if node.guard is None or unit.boots or not same(node.guard, unit.labels.get(HASH, "")):
            continue
        told = f"{node.name}: the memory guard does not come back after a reboot by itself"
        if unit.kept == "detached" or document.machine is None:
            return f"{told} (no systemd here): run sparkop apply then, or sparkop watch"
        return f"{told}: sudo loginctl enable-linger {quote(document.machine.user)}"
    return None


def _origin(node: DesiredNode, stamp: Stamp) -> Origin:
    """A guard of another spec that is as this spec wants it has only died."""
    if node.guard is None:
        return Origin.SPEC
    if same(node.guard, stamp.hash):
        return Origin.DRIFT
    only_program = without_program(stamp.desired) == without_program(node.guard.labels[DESIRED])
    if only_program or stamp.spec == node.guard.labels[SPEC]:
        return Origin.SPARKOP
    return Origin.SPEC


def _wrong(
    spec: ClusterSpec, node: DesiredNode, container: Container, stamp: Stamp, document: Document
) -> Cause | None:
    """Why this guard has to go; None when it is as desired."""
    if node.guard is None:
        return Cause("guard", "running", "none: memory.guard.enabled is false")
    if isinstance(container, Unit) != spec.memory.guard.as_unit:
        forms = ("container", "unit")
        return Cause("guard.run", *(forms if spec.memory.guard.as_unit else forms[::-1]))
    if not same(node.guard, stamp.hash):
        return _changed(stamp.desired, node.guard.labels[DESIRED])
    if not container.running:
        return Cause("guard", container.state, "running")
    policy = node.guard.restart_policy
    if not isinstance(container, Unit) and container.restart_policy != policy:
        return Cause("guard restart policy", container.restart_policy, policy)
    silent = silence(container, document)
    if silent > SILENT and not _misplaced(document, NEEDED):  # else another one would be as silent
        return Cause("guard", f"silent for {human_seconds(silent)}", "a reading each second")
    return None


def _changed(observed: str, desired: str) -> Cause:
    """What differs of two stamped texts: what the spec says first, then sparkop's own program."""
    changed = changed_field(without_program(observed), without_program(desired))
    if changed:
        return Cause(f"guard {changed[0]}", changed[1], changed[2])
    programs = program_in(observed), program_in(desired)
    if programs[0] != programs[1]:
        return Cause("sparkop's guard program", *programs)
    return Cause("hash", "other", "ours")


def heartbeat(document: Document) -> Mapping[str, Any]:
    """What the guard last wrote about itself; empty when there is none."""
    beat = (document.state or {}).get(HEARTBEAT)
    return beat if isinstance(beat, dict) else {}


def floors_of(spec: ClusterSpec, document: Document) -> Floors:
    """Of the guard that runs, by its own words: the spec may have others now. Without one: the spec's."""
    wanted, told = spec.memory.guard, heartbeat(document).get("floors")
    own = Floors(int(wanted.action_floor), int(wanted.hard_floor), int(wanted.soft_floor))
    guards = (guard for guard, _ in ours(document, spec.name, ROLE_GUARD) if guard.running)
    if not isinstance(told, dict) or not any(silence(guard, document) <= SILENT for guard in guards):
        return own
    figures = {name: whole(told.get(name)) for name in Floors._fields}
    return own._replace(**{name: figure for name, figure in figures.items() if figure is not None})


def under(available: int | None, total: int | None, floors: Floors) -> str:
    """The lowest floor that available memory is under: ``hard``, ``action``, ``soft`` or empty. A soft floor
    above all that the node has tells nothing."""
    if available is None or total is None:
        return ""
    soft = floors.soft if floors.soft < total else 0
    ordered = (("hard", floors.hard), ("action", floors.action), ("soft", soft))
    return next((name for name, floor in ordered if available < floor), "")


def silence(guard: Container, document: Document) -> float:
    """Seconds since the guard last read memory, or since its start; 0 when it has no heartbeat yet.

    By the time since the node's boot, as its clock may be set at any moment; a heartbeat from before the boot
    says nothing of this guard.
    """
    beat, machine = heartbeat(document), document.machine
    since = age(guard, document)
    if machine is None or since is None:
        return 0.0
    up, at = beat.get("up"), beat.get("at")
    if isinstance(up, int | float):
        return min(machine.uptime_s - up, since) if up <= machine.uptime_s + SILENT else since
    return min(machine.time_s - at, since) if isinstance(at, int | float) else 0.0
