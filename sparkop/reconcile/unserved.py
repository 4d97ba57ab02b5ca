"""Why nothing serves, and what to do: of an API that was not asked, as no rank could answer, and of one that
gave no good tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkop.hosts import silent_docker
from sparkop.hosts.document import Document
from sparkop.reconcile.history import UNAPPLIED, applied_on
from sparkop.reconcile.lease_seen import Sign
from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.restrain import Asked, By, restrain, starts_group
from sparkop.records import dataclass
from sparkop.resources.compare import with_verb
from sparkop.resources.group import KEY_REMEDY, elsewhere, not_running
from sparkop.resources.labels import ROLE_GUARD, ROLE_RANK, ours
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
        return Unserved("not serving", *_unapplied(reading))
    told = unread(reading)
    if told:
        again = f"{_human(reading)} again when it answers\n" if history.intent.stopped else ""
        return Unserved(Serving.NOT_ASKED, told, again + reads(plan))
    down = not_running(desired, observed)
    if not down:
        told = desired.why_no_ranks
        if elsewhere(desired, observed):
            told = f"the ranks that run do not serve on port {desired.spec.api.port}"
        return Unserved(Serving.NOT_ASKED, told, mends(plan) or "sparkop diff tells what differs")
    cause = ", ".join(down)
    if history.trips or any(map(damaged, observed.documents.values())):
        # the guard's own words say the rest
        return Unserved("tripped", "", mends(plan) or (reads(plan) if plan.unknown else AGAIN))
    if history.gave_up is not None:
        return Unserved("gave up", cause, f"sparkop logs tells why; when it is mended: {AGAIN}")
    if history.intent.stopped:
        ends = f"{_human(reading)} again ends what still runs; or {AGAIN}"
        return Unserved("not serving", cause, ends)  # that a human has stopped it is told beside it
    return Unserved("not serving", *_next(reading, plan, watching, cause))


def with_the_stop(reading: Reading, found: Unserved) -> Unserved:
    """Beside a stop by a human that is not, or not known to be, so on every node: that, and what goes on
    with it."""
    mark = reading.history.intent
    if not mark.stopped or (mark.destroys and reading.history.unapplied.startswith(UNAPPLIED)):
        return found
    told = "a human stopped it, but that is not (known to be) so everywhere"
    if mark.destroys:
        told = "a destroy was begun and has not ended"
    again = f"{_human(reading)} again"
    steps = [found.remedy] if again in found.remedy else [f"{again} goes on with it", found.remedy]
    parts = [part for part in (found.detail, told) if part]
    return Unserved(found.word, "; ".join(parts), "\n".join(step for step in steps if step))


def _human(reading: Reading) -> str:
    """The command that a human has stopped it by."""
    return "sparkop destroy" if reading.history.intent.destroys else "sparkop stop"


def _unapplied(reading: Reading) -> tuple[str, str]:
    """Of a cluster that is not applied on every node: what a destroy that did not reach one has left there,
    or may have left; and what to do, first what makes a silent Docker readable."""
    observed, cluster = reading.observed, reading.desired.spec.name
    applied = {name: applied_on(cluster, document) for name, document in observed.documents.items()}
    mute = [n for n, there in applied.items() if there is not False and observed.documents[n].docker is None]
    stands = [name for name, there in applied.items() if there and name not in mute]
    hidden = [*observed.unknown, *(n for n, there in applied.items() if there is None and n not in mute)]
    told = [reading.history.unapplied, *(_stands(cluster, name, observed.documents[name]) for name in stands)]
    told += [f"Docker of {name} could not be read: something of it may still run there" for name in mute]
    steps = []
    if hidden:
        told.append(f"{', '.join(hidden)} could not be read: something of it may still run there")
        steps.append(f"if it was destroyed: sparkop destroy again when {', '.join(hidden)} answers")
    if stands or mute:
        steps.append(f"sparkop destroy again removes what is left on {', '.join([*stands, *mute])}")
    then = "; or ".join([*steps, "sparkop apply starts it"])
    first = _told([(name, silent_docker.remedy(observed.documents[name])) for name in mute])
    return "; ".join(told), f"{first}\nthen {then}" if first else then


def _stands(cluster: str, node: str, document: Document) -> str:
    made = [each for role in (ROLE_RANK, ROLE_GUARD) for each, _ in ours(document, cluster, role)]
    found = [each.name for each in made if each.running]
    if not found:
        return f"its state folder is still on {node}"
    return f"{with_verb(found, 'still runs', 'still run')} on {node}"


def unread(reading: Reading) -> str:
    """What hides the group, so that its API is not asked; empty when all of it was seen."""
    observed = reading.observed
    found = [n.name for n in reading.desired.spec.nodes if n.name in observed.unknown]
    found += [f"Docker of {name}" for name, document in observed.documents.items() if not document.docker]
    return f"{', '.join(found)} could not be read" if found else ""


def _next(reading: Reading, plan: Plan, watching: Sign | None, cause: str) -> tuple[str, str]:
    """The cause, with the pause that a watch makes; and what to do."""
    if plan.blockers:
        return cause, mends(plan)
    if watching is None or reading.history.intent.stopped:
        return cause, f"sparkop logs tells why; {AGAIN}"
    asked = Asked(By.WATCH, watching.pauses) if watching.pauses else Asked(By.WATCH)
    allowed = restrain(plan, reading.history, asked, reading.observed.at)
    if allowed.blockers:
        return cause, mends(allowed)
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
        return mends(plan)
    if plan.unknown:
        return reads(plan)
    if serving is Serving.READY:
        return DRIFTED if plan.operations else ""
    if serving is Serving.BUSY:
        return "ask again in a minute: sparkop status; who asked before comes first"
    if serving is Serving.UNAUTHORISED:
        return KEY_REMEDY if reading.observed.key else "sparkop apply restores the key file"
    if loads:
        return "wait for it; sparkop logs -f shows how far it is"
    return "sparkop logs tells why; sparkop apply waits for its tokens"


def reads(plan: Plan) -> str:
    """What makes that readable which could not be read, a line each; where nobody knows, who finds it out."""
    return _told([(each.node, each.remedy) for each in plan.unknown if each.remedy]) or DOCTOR


def mends(plan: Plan) -> str:
    """What a human has to do, a line each."""
    return _told([(each.node, each.remedy) for each in plan.blockers])


def _told(steps: Sequence[tuple[str, str]]) -> str:
    """The same on several nodes once; one that names its node is left as it is."""
    nodes: dict[str, list[str]] = {}
    for node, remedy in steps:
        where = nodes.setdefault(remedy, [])
        where += [] if node in where else [node]
    return "\n".join(
        remedy if any(f"on {node}" in remedy for node in where) else f"on {', '.join(where)}: {remedy}"
        for remedy, where in nodes.items()
    )
