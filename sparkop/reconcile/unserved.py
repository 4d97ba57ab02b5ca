"""Why nothing serves, and what to do: of an API that was not asked, as no rank could answer. Pure."""

from __future__ import annotations

from sparkop.reconcile.history import UNAPPLIED
from sparkop.reconcile.lease_seen import Sign
from sparkop.reconcile.observe import Reading
from sparkop.reconcile.plan import Plan
from sparkop.reconcile.restrain import Asked, By, restrain
from sparkop.records import dataclass
from sparkop.resources.group import elsewhere, not_running
from sparkop.resources.trip import damaged
from sparkop.serving.canary import Serving

AGAIN = "sparkop apply starts it again"


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
    unread = [n.name for n in desired.spec.nodes if n.name in observed.unknown]
    unread += [f"Docker of {name}" for name, document in observed.documents.items() if not document.docker]
    if unread:
        told = f"{', '.join(unread)} could not be read"
        return Unserved(Serving.NOT_ASKED, told, "sparkop doctor tells what is in the way")
    down = not_running(desired, observed)
    if not down:
        told = desired.why_no_ranks
        if elsewhere(desired, observed):
            told = f"the ranks that run do not serve on port {desired.spec.api.port}"
        return Unserved(Serving.NOT_ASKED, told, "sparkop diff tells what differs")
    cause = ", ".join(down)
    if history.trips or any(map(damaged, observed.documents.values())):
        return Unserved("tripped")  # the guard's own words say the rest
    if history.gave_up is not None:
        return Unserved("gave up", cause, f"sparkop logs tells why; when it is mended: {AGAIN}")
    if history.intent.stopped:
        return Unserved("not serving", cause)  # that a human has stopped it is told beside it
    return Unserved("not serving", *_next(reading, plan, watching, cause))


def _next(reading: Reading, plan: Plan, watching: Sign | None, cause: str) -> tuple[str, str]:
    """The cause, with the pause that a watch makes; and what to do."""
    if plan.blockers:
        return cause, "sparkop diff tells what is in the way"
    if watching is None:
        return cause, f"sparkop logs tells why; {AGAIN}"
    asked = Asked(By.WATCH, watching.pauses) if watching.pauses else Asked(By.WATCH)
    held = restrain(plan, reading.history, asked, reading.observed.at).held
    if held:
        return f"{cause}; {', '.join(held)}", "wait for watch, or start it at once: sparkop apply"
    return cause, "watch starts it again; sparkop events tells how that goes"
