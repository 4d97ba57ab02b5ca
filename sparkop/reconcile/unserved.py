"""Why nothing serves, and what to do: of an API that was not asked, as no rank could answer, and of one that
gave no good tokens. Pure."""

from __future__ import annotations

from sparkop.reconcile.history import UNAPPLIED
from sparkop.reconcile.lease_seen import Sign
from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.restrain import Asked, By, restrain, starts_group
from sparkop.records import dataclass
from sparkop.resources.group import KEY_REMEDY, elsewhere, not_running
from sparkop.resources.trip import damaged
from sparkop.serving.canary import Serving

AGAIN = "sparkop apply starts it again"
DRIFTED = "sparkop apply mends what differs; sparkop diff tells first what it would do"
DOCTOR = "sparkop doctor tells what is in the way"


@dataclass(frozen=True)
class Unserved:
    """``word`` stands for what the API did not do; ``detail`` says why, ``remedy`` what to do."""

    word: str
    detail: str = ""
    remedy: str = ""


def unserved(reading: Reading, plan: Plan, watching: Sign | None) -> Unserved:
    """Of a group that was not asked. ``watching``: the newest sign of a watch that lives."""
    desired, observed, history = reading.desired, reading.observed, reading.history
    if history.unapplied.startswith(UNAPPLIED):
        return Unserved("not serving", history.unapplied, "sparkop apply starts it")
    told = unread(reading)
    if told:
        return Unserved(Serving.NOT_ASKED, told, DOCTOR)
    down = not_running(desired, observed)
    if not down:
        told = desired.why_no_ranks
        if elsewhere(desired, observed):
            told = f"the ranks that run do not serve on port {desired.spec.api.port}"
        return Unserved(Serving.NOT_ASKED, told, _mends(plan) or "sparkop diff tells what differs")
    cause = ", ".join(down)
    if history.trips or any(map(damaged, observed.documents.values())):
        return Unserved("tripped")  # the guard's own words say the rest
    if history.gave_up is not None:
        return Unserved("gave up", cause, f"sparkop logs tells why; when it is mended: {AGAIN}")
    if history.intent.stopped:
        return Unserved("not serving", cause)  # that a human has stopped it is told beside it
    return Unserved("not serving", *_next(reading, plan, watching, cause))


def unread(reading: Reading) -> str:
    """What hides the group, so that its API is not asked; empty when all of it was seen."""
    observed = reading.observed
    found = [n.name for n in reading.desired.spec.nodes if n.name in observed.unknown]
    found += [f"Docker of {name}" for name, document in observed.documents.items() if not document.docker]
    return f"{', '.join(found)} could not be read" if found else ""


def _next(reading: Reading, plan: Plan, watching: Sign | None, cause: str) -> tuple[str, str]:
    """The cause, with the pause that a watch makes; and what to do."""
    if plan.blockers:
        return cause, _mends(plan)
    if watching is None or reading.history.intent.stopped:
        return cause, f"sparkop logs tells why; {AGAIN}"
    asked = Asked(By.WATCH, watching.pauses) if watching.pauses else Asked(By.WATCH)
    allowed = restrain(plan, reading.history, asked, reading.observed.at)
    if allowed.blockers:
        return cause, _mends(allowed)
    if allowed.held:
        told = "; ".join(part for part in (cause, *allowed.held) if part)
        return told, "wait for watch, or start it at once: sparkop apply"
    return cause, "watch starts it again; sparkop events tells how that goes"


def answered(reading: Reading, plan: Plan, watching: Sign | None, *, loads: bool) -> tuple[str, str]:
    """What an API said that was asked, with the pause that a watch makes; and what to do, empty when all is
    right. ``loads``: its ranks are within the time of their start."""
    endpoint = reading.observed.endpoint
    kept = endpoint.serving in (Serving.READY, Serving.BUSY, Serving.UNAUTHORISED)
    if not kept and not plan.unknown and any(map(starts_group, plan.operations)):
        return _next(reading, plan, watching, endpoint.detail)
    return endpoint.detail, _step(reading, plan, loads=loads)


def _step(reading: Reading, plan: Plan, *, loads: bool) -> str:
    """What a human does about it; no start of the group is due."""
    serving = reading.observed.endpoint.serving
    if serving is Serving.READY and reading.history.intent.stopped:
        return ""  # that it was to be stopped is told beside it
    if plan.blockers:
        return _mends(plan)
    if plan.unknown:
        return DOCTOR
    if serving is Serving.READY:
        return DRIFTED if plan.operations else ""
    if serving is Serving.BUSY:
        return "ask again in a minute: sparkop status; who asked before comes first"
    if serving is Serving.UNAUTHORISED:
        return KEY_REMEDY if reading.observed.key else "sparkop apply restores the key file"
    if loads:
        return "wait for it; sparkop logs -f shows how far it is"
    return "sparkop logs tells why; sparkop apply waits for its tokens"


def _mends(plan: Plan) -> str:
    """What a human has to do, a line each: the same on several nodes once."""
    nodes: dict[str, list[str]] = {}
    for blocker in plan.blockers:
        where = nodes.setdefault(blocker.remedy, [])
        where += [] if blocker.node in where else [blocker.node]
    return "\n".join(f"on {', '.join(where)}: {remedy}" for remedy, where in nodes.items())
