"""The served API. Ready means that tokens come out (principle 5); a rank that ends ends the wait."""

from __future__ import annotations

from sparkop.engines.common import has_key
from sparkop.engines.paths import key_path
from sparkop.hosts.base import ReadableHost
from sparkop.resources.base import Clock, Context, Difference, Resource
from sparkop.resources.compare import human_seconds, precise_seconds
from sparkop.resources.desired import Desired
from sparkop.resources.group import Group, age, examine, start_window
from sparkop.resources.observed import History, Observed
from sparkop.resources.operations import Action, Blocker, Cause, Cost, Operation
from sparkop.resources.ready import wait_ready
from sparkop.serving.canary import EndpointState, Question, Serving, glance, look
from sparkop.spec.models import ClusterSpec

KIND = "endpoint"
NO_GOOD_TOKENS = "the API gave no good tokens"
IF_LOST = "if tokens fail to come, sparkop stop, then sparkop apply makes it anew"
WAITABLE = (
    Serving.SILENT,
    Serving.LOADING,
    Serving.WEDGED,
    Serving.BROKEN,
    Serving.DEGENERATE,
    Serving.GPU_LOST,
)
"""With ranks that run and had no time yet: what a start looks like from outside."""


LARGE = 900.0
"""``ready.deadline``, seconds, above which a spec is taken for a large model's, which starts slowly."""


def normal_start(spec: ClusterSpec, measured: float | None) -> str:
    """How long a start takes as a rule. ``measured``: seconds of the last one here."""
    return f"{_known_start(spec, measured)}; given up after {human_seconds(float(spec.ready.deadline))}"


def _known_start(spec: ClusterSpec, measured: float | None) -> str:
    if measured is not None:
        return f"the last start took {human_seconds(measured)}"
    told = f": {_first_start(spec.weights.repository)}" if spec.ready.deadline > LARGE else ""
    return f"no start was measured here yet{told}"


def _first_start(repository: str) -> str:
    """As published for this model; no figure of another one."""
    from sparkop.engines.budget.checkpoint import known  # here: a tick that starts nothing needs no budget

    shipped = known(repository)
    told = shipped.recorded.get("first_start") if shipped else None
    return f"{shipped.name} needs {told}" if shipped and told else "a large model loads for many minutes"


def loads(endpoint: EndpointState) -> bool:
    """What an API does while its ranks load, as a rule: nothing listens, or it says that it is not ready."""
    return endpoint.serving in (Serving.SILENT, Serving.LOADING)


def loading(desired: Desired, observed: Observed, history: History) -> str:
    """What is to be said of ranks that run, have not served and are within their time; empty for others."""
    group = examine(desired, observed, history)
    told, spec = _starting_for(desired, observed, history, group), desired.spec
    if not told:
        return ""
    if loads(observed.endpoint) and (_youngest(observed, group) or 0.0) <= float(spec.ready.deadline):
        return f"{told}; {normal_start(spec, history.start_seconds)}"
    # the apply that started them has given up, and the next one waits on
    window = human_seconds(start_window(spec, observed.endpoint))
    return f"{told}; {_known_start(spec, history.start_seconds)}; sparkop apply starts it anew after {window}"


def _youngest(observed: Observed, group: Group) -> float | None:
    """Seconds since the last of the ranks was started; None where no age is known."""
    ages = [age(found.container, observed.documents[found.node]) for found in group.found]
    return min((each for each in ages if each is not None), default=None)


def _left(cost: Cost, observed: Observed, group: Group) -> Cost:
    """What the wait for ranks that run already takes still."""
    ran = _youngest(observed, group)
    if cost.seconds is None or ran is None:
        return cost
    left = cost.seconds - ran
    return Cost(seconds=left) if left > 0 else Cost(seconds=None, late=True)


def _starting_for(desired: Desired, observed: Observed, history: History, group: Group) -> str:
    """How long; empty for ranks that have served."""
    if observed.endpoint.serving not in WAITABLE:
        return ""
    if group.causes or 0 < history.ready_epoch == group.epoch:
        return ""
    ages = [age(found.container, observed.documents[found.node]) for found in group.found]
    known = [each for each in ages if each is not None]
    if not known:
        return ""
    late = ", longer than ready.deadline" if min(known) > float(desired.spec.ready.deadline) else ""
    ran = precise_seconds(max(known))
    return f"loading for {ran}{late}" if loads(observed.endpoint) else f"no token {ran} after the start{late}"


class Endpoint(Resource):
    """One operation: wait until tokens come."""

    kind = KIND

    def diff(self, desired: Desired, observed: Observed, history: History) -> Difference:
        if not observed.complete or not desired.ranks:
            return Difference()
        if any(observed.documents[name].docker is None for name in desired.nodes):
            return Difference()
        state = observed.endpoint
        cost = Cost(seconds=history.start_seconds)
        told = f"{state.serving}: {state.detail}" if state.detail else str(state.serving)
        group = examine(desired, observed, history)
        if group.causes:
            if state.serving in (Serving.READY, Serving.NOT_ASKED):
                told = "its ranks start anew" if group.found else "nothing serves"
            return Difference((_wait(desired, told, cost),))
        if state.serving in WAITABLE:
            if loads(state):
                told = _starting_for(desired, observed, history, group) or told
            return Difference((_wait(desired, told, _left(cost, observed, group)),))
        if state.serving is Serving.UNAUTHORISED and has_key(desired.spec):
            return Difference()  # the key is lost, and restored first
        if state.serving in (Serving.UNAUTHORISED, Serving.FAILED):
            return Difference(blockers=(_refuses(desired, state),))
        warnings = [f"{observed.loss.node}: {observed.loss.text}; {IF_LOST}"] if observed.loss else []
        if state.serving is Serving.BUSY:
            warnings.append(f"{desired.head}: {NO_GOOD_TOKENS}: {state.detail}")
        return Difference(warnings=tuple(warnings))

    def perform(self, operation: Operation, context: Context) -> None:
        cost = operation.cost
        if cost.seconds is None and not cost.late and context.desired.spec.ready.deadline > LARGE:
            context.progress(normal_start(context.desired.spec, None))
        wait_ready(
            context, question_of(context.desired, read_key(context.desired, context.host(operation.node)))
        )


def _wait(desired: Desired, told: str, cost: Cost) -> Operation:
    return Operation(Action.WAIT, desired.head, KIND, Cause(KIND, told, "tokens"), cost)


def _refuses(desired: Desired, state: EndpointState) -> Blocker:
    if state.serving is Serving.UNAUTHORISED:
        remedy = "the engine asks for a key that the spec does not want: look for what listens on api.port"
    else:
        remedy = "sparkop logs --rank 0 tells more; compare api.servedNames with what the engine serves"
    return Blocker(desired.head, KIND, Cause(KIND, f"{state.serving}: {state.detail}", "tokens"), remedy)


def question_of(desired: Desired, key: str | None) -> Question:
    """What the canary asks of this cluster."""
    spec, metrics = desired.spec, desired.engine.manners.metrics
    return Question(
        port=spec.api.port,
        model=spec.api.served_names[0],
        prompt=spec.ready.canary.prompt,
        max_tokens=spec.ready.canary.max_tokens,
        deadline=float(spec.ready.canary.deadline),
        key=key,
        counters=(metrics.generation_tokens, metrics.prompt_tokens, metrics.kv_usage),
        address=spec.api.own_address,
    )


def read_key(desired: Desired, head: ReadableHost) -> str | None:
    """The API key, from the head; None when the cluster has none, or it is not there yet."""
    if not has_key(desired.spec):
        return None
    content = head.read_file(key_path(desired.spec))
    return content.decode("ascii", "replace").strip() if content else None


def look_at(
    desired: Desired,
    head: ReadableHost,
    key: str | None,
    clock: Clock,
    believed: EndpointState | None = None,
    *,
    brief: bool = False,
) -> EndpointState:
    """One observation of the API: a tiny generation, a second one before anything bad is believed.
    ``brief``: see ``serving.canary.glance``."""
    if brief:
        return glance(head, question_of(desired, key), clock.monotonic, clock.sleep)
    return look(head, question_of(desired, key), clock.monotonic, clock.sleep, believed)
