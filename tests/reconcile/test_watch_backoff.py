"""What did not help is not done again in a loop, and what was mended is not waited for."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkop.errors import (
    BlockedError,
    LeaseHeldError,
    SparkopError,
    UnreachableError,
    WaitInterruptedError,
)
from sparkop.hosts.simulated_node import SimulatedImage
from sparkop.reconcile.execute import Outcome
from sparkop.reconcile.plan import GROUP, Plan
from sparkop.reconcile.restrain import Asked, By
from sparkop.reconcile.watch.backoff import CAUSES, LONGEST, Backoff, wanted_of
from sparkop.resources.observed import Observed
from sparkop.resources.operations import Action, Cause, Operation, kind_of
from tests.reconcile.simulation import IMAGE, Cluster
from tests.reconcile.watching import Watching, answers, entries, serving, silent, watched
from tests.reconcile.worlds import CHANGES

PERIOD = 10.0
PULL = Operation(Action.PULL, "spark-2", "image", Cause("image", "absent", "present"))
GUARD = Operation(Action.START, "spark-1", "memguard", Cause("guard", "missing", "running"))
START = Operation(Action.START, "spark-1", "rank/0", Cause("state", "exited (1)", "running"))
NOBODY = Observed({})
BROKEN = BlockedError("it does not work")
FRESH = Backoff(first=PERIOD)


def failing(seconds: float, operation: Operation = PULL, error: BaseException = BROKEN) -> list[float]:
    """When an operation is tried that fails every time, and is always wanted."""
    backoff, tried, now = FRESH, [], 0.0
    while now < seconds:
        if backoff.spare(Plan((operation,)), NOBODY, now).operations:
            tried.append(now)
            outcome = Outcome(failed={operation.key: error})
            backoff = backoff.after(Plan((operation,)), NOBODY, outcome, now)
        now += 1.0
    return tried


# The rule


def test_pauses_double_up_to_five_minutes() -> None:
    pauses = [after - before for before, after in pairwise(failing(2000))]
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300, 300, 300]


@pytest.mark.parametrize("error", [UnreachableError("away"), LeaseHeldError("apply works")])
def test_what_every_look_sees_is_not_waited_for(error: SparkopError) -> None:
    """A node that flaps through the night, or a long apply, must not cost five minutes once it is over."""
    assert {after - before for before, after in pairwise(failing(1000, error=error))} == {PERIOD}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UnreachableError("away"), "a node did not answer"),
        (LeaseHeldError("apply works"), "left to another sparkop"),
        (BROKEN, "did not help"),
    ],
)
def test_what_was_never_tried_is_not_told_to_have_been(error: SparkopError, told: str) -> None:
    """ "did not help" was said of steps that were left to an apply."""
    backoff = FRESH.after(Plan((PULL, GUARD)), NOBODY, Outcome(failed={PULL.key: error}), 0.0)
    backoff = backoff.failed(wanted_of((GUARD,), NOBODY), BROKEN, 0.0)
    held = backoff.spare(Plan((PULL, GUARD)), NOBODY, 1.0).held
    assert any("pull image on spark-2" in text and f": {told}; again in " in text for text in held)
    assert any("start memguard on spark-1" in text and ": did not help; " in text for text in held)


def test_a_wait_that_apply_interrupts_has_not_failed() -> None:
    assert len(failing(10, error=WaitInterruptedError("apply asks"))) == 10


def test_another_cause_is_acted_upon_at_once_but_not_forever() -> None:
    backoff = FRESH
    for number in range(CAUSES):
        wanted = {PULL.key: f"cause {number}"}
        assert not backoff.waits(wanted, 1.0)
        backoff = backoff.failed(wanted, BROKEN, 1.0)
        assert backoff.waits(wanted, 2.0)
    assert backoff.waits({PULL.key: "one more"}, 2.0)


def test_a_started_group_has_its_own_budget() -> None:
    backoff = FRESH
    for now in range(20):
        backoff = backoff.after(Plan((START,)), NOBODY, Outcome(done=(START.key,)), float(now))
    assert backoff.spare(Plan((START,)), NOBODY, 20.0).operations


def test_what_comes_back_waits_from_the_second_time_on_until_it_has_lasted() -> None:
    backoff, plan, done = FRESH, Plan((GUARD,)), Outcome(done=(GUARD.key,))
    backoff = backoff.after(plan, NOBODY, done, 0.0)
    assert backoff.spare(plan, NOBODY, 1.0).operations, "a guard that dies is replaced at once"
    backoff = backoff.after(plan, NOBODY, done, 1.0)
    assert not backoff.spare(plan, NOBODY, 2.0).operations
    assert "start memguard on spark-1: did not help" in backoff.spare(plan, NOBODY, 2.0).held[0]
    later = 1.0 + PERIOD + LONGEST
    backoff = backoff.after(plan, NOBODY, done, later)
    assert backoff.spare(plan, NOBODY, later).operations, "it had lasted"


fresh = Cluster.make().plan()
"""Everything that a new cluster needs."""


@given(st.sets(st.sampled_from([operation.key for operation in fresh.operations]), min_size=1))
def test_what_waits_takes_along_what_needs_it_and_the_group_stays_whole(failed: set[str]) -> None:
    outcome = Outcome(failed=dict.fromkeys(failed, BROKEN))
    backoff = FRESH.after(fresh, NOBODY, outcome, 0.0)
    kept = backoff.spare(fresh, NOBODY, 1.0).operations
    keys = {operation.key for operation in kept}
    everything = {operation.key for operation in fresh.operations}
    assert not keys & failed
    assert all(need in keys for operation in kept for need in operation.needs if need in everything)
    whole = {o.key for o in fresh.operations if kind_of(o.resource) in GROUP}
    assert keys & whole in (set(), whole)
    apart = {o.key for o in fresh.operations if not o.needs and kind_of(o.resource) not in GROUP}
    assert apart - failed <= keys, "what needs nothing of it goes on"


ways = st.sampled_from([BROKEN, None])
moments = st.lists(
    st.tuples(st.floats(0.1, 40), st.sampled_from([PULL.key, GUARD.key]), st.text(max_size=2), ways),
    max_size=300,
)


@given(moments)
def test_no_order_of_causes_and_results_makes_a_loop(steps: list[tuple[float, str, str, Any]]) -> None:
    """Within each pause an operation is done a few times at the most, and the pauses grow."""
    backoff, now, acts = FRESH, 0.0, {PULL.key: 0, GUARD.key: 0}
    operations = {PULL.key: PULL, GUARD.key: GUARD}
    for passed, key, words, error in steps:
        now += passed
        known, cause = operations[key], Cause("field", words, "as it should be")
        plan = Plan((Operation(known.action, known.node, known.resource, cause),))
        if backoff.spare(plan, NOBODY, now).operations:
            acts[key] += 1
            outcome = Outcome(failed={key: error}) if error else Outcome(done=(key,))
            backoff = backoff.after(plan, NOBODY, outcome, now)
    rounds = 2 + 5 + now / LONGEST  # two at once, five that grow, then the longest
    assert all(count <= CAUSES * (rounds + 1) for count in acts.values())


# Under a watch


def no_image(cluster: Cluster) -> None:
    """Gone on both nodes, and the registry is away."""
    cluster.world.registry.clear()
    for node in cluster.world.nodes.values():
        node.images.clear()


def dead_rank(cluster: Cluster) -> None:
    node, container = cluster.rank(1)
    node.exit(container.spec.name, 137)


def guards_that_die(cluster: Cluster) -> None:
    """As soon as they are started, from now on."""
    started = cluster.world.on_start

    def start(node: Any, container: Any) -> None:
        started(node, container)
        if container.spec.labels.get("sparkop.role") == "memguard":
            container.state = "exited"

    cluster.world.on_start = start
    cluster.node("spark-2").containers["test-memguard"].state = "exited"


def ranks_that_die(cluster: Cluster) -> None:
    cluster.manner = "die on start of rank 1"
    dead_rank(cluster)


def no_guard(cluster: Cluster) -> None:
    """Somebody removes it, as often as it is started."""
    cluster.node("spark-2").containers.pop("test-memguard", None)


@pytest.mark.parametrize(
    ("happen", "every_second"),
    [(no_image, None), (guards_that_die, None), (ranks_that_die, None), (no_guard, no_guard)],
    ids=["pull-fails", "guard-dies-at-start", "rank-dies-at-start", "guard-removed-every-second"],
)
def test_events_every_second_make_no_hot_loop(
    happen: Callable[[Cluster], None], every_second: Callable[[Cluster], None] | None
) -> None:
    """For half an hour; pauses of the budget are off."""
    cluster = serving()
    watching = Watching(cluster, asked=Asked(By.WATCH, pauses=(0.0,) * 500))
    watching.ticks(3)
    happen(cluster)

    def flap() -> None:
        if every_second is not None:
            every_second(cluster)
        watching.event()

    watching.run(30, [(float(second), flap) for second in range(1800)])
    pauses = [after - before for before, after in pairwise(watching.acts)]
    assert 5 <= len(pauses) <= 15
    assert min(pauses[-3:]) >= 0.9 * LONGEST
    assert len(watching.looks) <= 1.4 * 1800 / PERIOD, "in the end looks, too, come once a period"


def pulled_by_hand(cluster: Cluster) -> None:
    for node in cluster.world.nodes.values():
        node.images[IMAGE] = SimulatedImage("sha256:" + "1d" * 32, (IMAGE,))


def weight_lost(cluster: Cluster) -> None:
    CHANGES["weights"](cluster.node("spark-1"), {"model.safetensors": "absent"})


def booted(cluster: Cluster) -> None:
    """The node on which it fails."""
    cluster.node("spark-1").reboot()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([pulled_by_hand, weight_lost, booted]),
    st.floats(1, 400),
    st.booleans(),
    st.lists(st.floats(0, 400), max_size=20),
)
def test_what_differs_from_what_failed_is_acted_upon_within_a_period(
    happen: Callable[[Cluster], None], at: float, told: bool, events: list[float]
) -> None:
    """However long the pause has grown, with or without an event of it, in whatever order others come."""
    cluster, watching = watched()
    no_image(cluster)
    dead_rank(cluster)
    began = cluster.clock.now

    def change() -> None:
        happen(cluster)
        if told:
            watching.event()

    watching.run((at + 30) / 60, [(at, change), *((each, watching.event) for each in events)])
    after = [act for act in watching.acts if act >= began + at]
    assert after, "it acted"
    assert after[0] - (began + at) <= 1.1 * PERIOD + 2.0


def test_a_mended_cause_serves_again_and_the_failure_is_told_once() -> None:
    """The whole way: the pull fails for ten minutes, somebody loads the image, the group starts."""
    cluster, watching = watched()
    no_image(cluster)
    dead_rank(cluster)
    cluster.started.clear()
    watching.run(12, [(600.0, lambda: pulled_by_hand(cluster))])
    assert cluster.started == ["1@spark-2", "0@spark-1"]
    assert cluster.plan().converged
    assert 5 <= len(entries(cluster, "failed")) <= 7
    held = [fields["text"] for event, fields in watching.said if event == "held"]
    assert len(held) <= len(entries(cluster, "failed")), "once for each pause, although it gets shorter"
    assert held[0].startswith("pull image on spark-1: did not help; again in ")


@pytest.mark.parametrize(("happen", "mend"), [(no_image, pulled_by_hand), (silent, answers)])
def test_that_all_is_well_again_is_told(
    happen: Callable[[Cluster], None], mend: Callable[[Cluster], None]
) -> None:
    """Also when it was nothing that watch did."""
    cluster = serving()
    watching = Watching(cluster)
    watching.run(4, [(30.0, lambda: happen(cluster)), (120.0, lambda: mend(cluster))])
    looked = [fields["converged"] for event, fields in watching.said if event == "looked"]
    assert looked[0] is looked[-1] is True
    assert False in looked


def test_a_boot_is_another_node() -> None:
    cluster = serving()
    before = cluster.observe(canary=False).observed
    cluster.node("spark-2").reboot()
    after = cluster.observe(canary=False).observed
    assert wanted_of((PULL,), before) != wanted_of((PULL,), after)
    assert wanted_of((GUARD,), before) == wanted_of((GUARD,), after)
